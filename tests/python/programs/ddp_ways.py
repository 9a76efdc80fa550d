"""DDP and its relatives in the ways that programs use them, over lockstep and over Gloo side by side, on the same data: the same bits in every parameter
(on 2 ranks there is one way to add). Prints each way that was compared."""

import contextlib
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("lockstep")
rank, size = dist.get_rank(), dist.get_world_size()
gloo = dist.new_group(backend="gloo")
ways = []


def way(function):
    ways.append(function)
    return function


class Net(nn.Module):
    """Has a branch that not every forward takes, a parameter that is used twice, a buffer, and a batch norm."""

    def __init__(self, branches=False, dtype=torch.float32):
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(40, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.norm = nn.BatchNorm1d(64)
        self.left, self.right = (nn.Linear(64, 64), nn.Linear(64, 64)) if branches else (None, None)
        self.to(dtype)

    def forward(self, x, turn=0):
        h = self.norm(torch.relu(self.first(x)))
        h = torch.relu(self.shared(torch.relu(self.shared(h))))
        if self.left is not None:
            h = (self.left if turn % 2 else self.right)(h)
        return self.last(h)


def make(group, branches=False, dtype=torch.float32, **options):
    torch.manual_seed(3)
    options.setdefault("bucket_cap_mb", 0.01)
    return DistributedDataParallel(Net(branches, dtype), process_group=group, **options)


def train(model, steps=6, dtype=torch.float32, uneven=False, step=None, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(7 + rank)
    for i in range(steps + (rank if uneven else 0)):
        x, y = torch.randn(8, 40, generator=generator).to(dtype), torch.randint(0, 10, (8,), generator=generator)
        if step:
            step(model, x, y, i)
        else:
            nn.functional.cross_entropy(model(x, turn=i + rank) if model.module.left is not None else model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def state(model):
    return [t.detach().clone() for t in (*model.parameters(), *model.buffers())]


def both(function):
    """Runs it on both backends. Bits that differ, and ranks that do, are an error."""
    ours, theirs = function(None), function(gloo)
    assert len(ours) == len(theirs) and ours
    for i, (a, b) in enumerate(zip(ours, theirs)):
        assert a.dtype == b.dtype and torch.equal(a, b), f"{function.__name__}: tensor {i} differs by {(a - b).abs().max()}"


@way
def plain(group):
    return state(train(make(group)))


@way
def unused_parameters(group):  # another branch on each rank
    return state(train(make(group, branches=True, find_unused_parameters=True)))


@way
def static_graph(group):
    return state(train(make(group, static_graph=True)))


@way
def bucket_views(group):
    return state(train(make(group, gradient_as_bucket_view=True)))


@way
def buckets_of_all_and_of_one(group):
    return state(train(make(group, bucket_cap_mb=100))) + state(train(make(group, bucket_cap_mb=1e-6)))


@way
def no_sync(group):
    def step(model, x, y, i):
        for micro, (a, b) in enumerate(zip(x.split(2), y.split(2))):
            with model.no_sync() if micro < 3 else contextlib.nullcontext():
                nn.functional.cross_entropy(model(a), b).backward()

    return state(train(make(group), step=step)) + state(train(make(group, gradient_as_bucket_view=True), step=step))


@way
def autocast(group):
    def step(model, x, y, i):
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()

    return state(train(make(group), step=step))


@way
def other_dtypes(group):
    return [t for d in (torch.bfloat16, torch.float64) for t in state(train(make(group, dtype=d), dtype=d))]


@way
def hooks(group):
    out = []
    for hook in default_hooks.allreduce_hook, default_hooks.fp16_compress_hook:
        model = make(group)
        model.register_comm_hook(group, hook)
        out += state(train(model))
    model = make(group, bucket_cap_mb=25)
    model.register_comm_hook(powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    return out + state(train(model))


@way
def gradient_checkpointing(group):
    from torch.utils.checkpoint import checkpoint

    out = []
    for reentrant in False, True:  # a backward in a backward
        torch.manual_seed(3)
        inner = Net()
        inner.norm = nn.Identity()
        head = inner.first
        inner.first = nn.Identity()
        whole = nn.Sequential(head, inner)
        forward = inner.forward
        inner.forward = lambda x: checkpoint(forward, x, use_reentrant=reentrant)
        whole.left = None
        out += state(train(DistributedDataParallel(whole, process_group=group, bucket_cap_mb=0.01, static_graph=reentrant)))
    return out


@way
def join(group):  # ranks with different numbers of batches
    model = make(group)
    with model.join(divide_by_initial_world_size=False):
        train(model, uneven=True)
    return state(model)


@way
def zero_optimizer(group):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make(group)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=group or dist.group.WORLD, lr=1e-2)
    return state(train(model, optimizer=optimizer))


@way
def local_sgd(group):
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    model = make(group)
    averager = PeriodicModelAverager(period=2, warmup_steps=1, process_group=group or dist.group.WORLD)

    def step(model, x, y, i):
        with model.no_sync():
            nn.functional.cross_entropy(model(x), y).backward()
        averager.average_parameters(model.parameters())

    return state(train(model, step=step))


@way
def two_models_in_turns(group):
    one, two = make(group), make(group, gradient_as_bucket_view=True)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (one, two)]
    generator = torch.Generator().manual_seed(rank)
    for i in range(5):
        x = torch.randn(8, 40, generator=generator)
        (one(x).square().mean() + two(x).abs().mean()).backward()  # one backward, buckets of both
        for o in optimizers:
            o.step()
            o.zero_grad()
    return state(one) + state(two)


@way
def checkpoint_of_torch(group):
    import torch.distributed.checkpoint as dcp

    model = train(make(group))
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box, 0, group=group)
    dcp.save({"model": model.module.state_dict()}, checkpoint_id=box[0], process_group=group)
    other = make(group)
    loaded = {"model": other.module.state_dict()}
    dcp.load(loaded, checkpoint_id=box[0], process_group=group)
    other.module.load_state_dict(loaded["model"])
    dist.barrier(group=group)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    return list(other.parameters())


@way
def compiled(group):
    torch._dynamo.reset()
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1000  # the compiler cuts the graph where buckets end; its first one must not be larger than the others
    model = make(group)
    model.compile(backend=os.environ.get("COMPILE", "aot_eager"))
    return state(train(model))


chosen = sys.argv[1:]
failed = []
for function in ways:
    if chosen and function.__name__ not in chosen:
        continue
    try:
        both(function)
        print("same:", function.__name__, flush=True)
    except Exception as error:
        import traceback

        traceback.print_exc()
        failed.append(function.__name__)
        print("FAILED:", function.__name__, error, flush=True)
        break  # the ranks may be at different places now
dist.barrier() if not failed else None
print(f"{len(chosen or ways)} ways" if not failed else f"failed: {failed}", flush=True)
dist.destroy_process_group() if not failed else os._exit(1)
