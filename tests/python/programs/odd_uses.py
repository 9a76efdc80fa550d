"""Uses of torch.distributed beyond DDP and plain collectives, on backend lockstep: odd_uses.py [CASES...]; all of those that these ranks can run by default.
Each checks values that follow from its arguments. Prints the cases that held."""

import gc
import os
import random
import signal
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cases = {}


def case(ranks):
    """For at least so many ranks."""
    return lambda function: cases.update({function.__name__: (ranks, function)})


def total(value, group=None, **options):
    t = torch.tensor([float(value)])
    dist.all_reduce(t, group=group, **options)
    return t.item()


@case(1)
def objects():
    thing = {"rank": rank, "text": "x" * (1000 * rank), "numbers": list(range(rank))}
    everyone = [None] * size
    dist.all_gather_object(everyone, thing)
    assert [o["rank"] for o in everyone] == list(range(size)) and len(everyone[-1]["text"]) == 1000 * (size - 1)
    last = size - 1
    collected = [None] * size if rank == last else None
    dist.gather_object(thing, collected, dst=last)
    assert rank != last or collected == everyone
    mine = [None]
    dist.scatter_object_list(mine, [("for", r) for r in range(size)] if rank == last else None, src=last)
    assert mine == [("for", rank)]
    box = [thing, 5] if rank == last else [None, None]
    dist.broadcast_object_list(box, src=last)
    assert box[0]["rank"] == last and box[1] == 5
    if size > 1:
        if rank == 0:
            dist.send_object_list([thing, "hello"], dst=last)
        elif rank == last:
            got = [None, None]
            dist.recv_object_list(got, src=0)
            assert got[0]["rank"] == 0 and got[1] == "hello"


@case(2)
def crossed_groups():
    """Works of two groups that the ranks start and wait for in different orders."""
    groups = [dist.new_group(list(range(size))) for _ in range(2)]
    for turn in range(50):
        data = [torch.full((1000 + turn,), 1.0 + i) for i in range(2)]
        order = [0, 1] if (rank + turn) % 2 else [1, 0]
        works = {i: dist.all_reduce(data[i], group=groups[i], async_op=True) for i in order}
        for i in order[:: 1 if turn % 3 else -1]:
            works[i].wait()
        assert data[0].eq(size).all() and data[1].eq(2 * size).all()


@case(2)
def groups_of_some():
    rng = random.Random(5)
    for turn in range(3):
        sets = [sorted(rng.sample(range(size), rng.randint(1, size))) for _ in range(4)]
        groups = [(ranks, dist.new_group(ranks)) for ranks in sets]
        for ranks, group in groups[::-1]:
            if rank in ranks:
                assert total(rank, group) == sum(ranks), ranks
        for ranks, group in groups:
            if rank in ranks:
                dist.destroy_process_group(group)
    own = [r for r in range(size) if r % 2 == rank % 2]  # made by its members alone
    assert total(rank, dist.new_group(own, use_local_synchronization=True)) == sum(own)
    subgroup, _ = dist.new_subgroups_by_enumeration([[r] for r in range(size)])
    assert total(3, subgroup) == 3


@case(2)
def twice_the_same_group():
    groups = [dist.new_group(list(range(size))) for _ in range(30)]  # all open at once
    for i, group in enumerate(groups):
        assert total(i, group) == i * size
    for group in groups[::2]:
        dist.destroy_process_group(group)
    for group in groups[1::2]:
        assert total(1, group) == size
    more = [dist.new_group(list(range(size))) for _ in range(30)]
    assert total(1, more[-1]) == size


@case(2)
def threads():
    """A group for each thread, of which one is faster than the other."""
    groups = [dist.new_group(list(range(size))) for _ in range(3)]
    errors = []

    def work(i):
        try:
            rng = random.Random(10 * i + rank)
            for turn in range(100):
                t = torch.full((1 + 700 * (turn % 5) * i,), float(turn))
                pending = dist.all_reduce(t, group=groups[i], async_op=turn % 2 == 0)
                if rng.random() < 0.1:
                    time.sleep(0.002)
                if turn % 2 == 0:
                    pending.wait()
                assert t.eq(turn * size).all()
                out = [torch.empty(3) for _ in range(size)]
                dist.all_gather(out, torch.full((3,), float(rank)), group=groups[i])
                assert [o[0].item() for o in out] == list(map(float, range(size)))
        except Exception as error:
            errors.append(error)

    running = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not errors, errors


@case(2)
def messages_of_threads():
    """A thread that receives while another one makes collectives."""
    got = []

    def receive():
        for i in range(50):
            t = torch.empty(10 + i)
            dist.recv(t, (rank - 1) % size, tag=i)
            got.append(t[0].item())

    thread = threading.Thread(target=receive)
    thread.start()
    for i in range(50):
        dist.send(torch.full((10 + i,), float(i)), (rank + 1) % size, tag=i)
    thread.join()
    assert got == list(map(float, range(50)))


@case(2)
def fork():
    """A child has no part in the group, and its end is not that of the rank."""
    for how in "exit", "os._exit", "collect", "call":
        child = os.fork()
        if not child:
            signal.alarm(20)
            code = 1
            try:
                if how == "call":
                    dist.all_reduce(torch.ones(1))
                elif how == "collect":
                    dist.destroy_process_group()
                    gc.collect()
                    code = 0
                elif how == "exit":
                    sys.exit(0)
                else:
                    code = 0
            except RuntimeError as error:
                code = 0 if "fork" in str(error) else 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0, how
        assert total(1) == size, how
    pool = torch.multiprocessing.get_context("fork").Pool(2)  # whose workers end as Python programs do
    assert pool.map(abs, [-1, -2]) == [1, 2]
    pool.close()
    pool.join()
    loader = torch.utils.data.DataLoader(torch.arange(20.0), batch_size=5, num_workers=2)
    assert sum(b.sum().item() for b in loader) == 190 and total(1) == size


@case(1)
def again():
    """Groups that end and begin again, in a process that goes on."""
    for turn in range(4):
        dist.destroy_process_group()
        dist.init_process_group("lockstep")
        assert total(turn) == turn * size
        group = dist.new_group(list(range(size)))
        assert total(turn, group) == turn * size
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(3):
        dist.destroy_process_group()
        dist.init_process_group("lockstep")
    dist.barrier()
    assert len(os.listdir("/proc/self/fd")) <= before + 2, "descriptors are left"


@case(2)
def works_of_a_group_that_is_gone():
    group = dist.new_group(list(range(size)))
    if rank == 0:
        collective = dist.all_reduce(torch.ones(500_000), group=group, async_op=True)
        message = dist.irecv(torch.empty(3), 1, group=group)
        dist.destroy_process_group(group)
        for work in collective, message:
            try:
                work.wait()
            except RuntimeError as error:
                assert "destroyed" in str(error), error
            else:
                raise AssertionError("it has an end")
        del collective, message, work
        gc.collect()
    dist.barrier()


@case(2)
def autograd():
    """Collectives that have gradients."""
    import torch.distributed.nn.functional as functional

    x = torch.full((3,), rank + 1.0, requires_grad=True)
    y = functional.all_reduce(x.clone())
    (y * (rank + 1)).sum().backward()
    assert y[0] == size * (size + 1) / 2 and x.grad[0] == size * (size + 1) / 2, (y, x.grad)
    x = torch.full((2,), rank + 1.0, requires_grad=True)
    parts = functional.all_gather(x)
    sum((i + 1) * p.sum() for i, p in enumerate(parts)).backward()
    assert x.grad[0] == (rank + 1) * size, x.grad
    x = torch.ones(2 * size, requires_grad=True)
    out = functional.all_to_all_single(torch.empty(2 * size), x)
    (out * (rank + 1)).sum().backward()
    assert x.grad.tolist() == [1.0 + i // 2 for i in range(2 * size)], x.grad


@case(2)
def functional():
    import torch.distributed._functional_collectives as f

    everyone = list(range(size))
    x = torch.arange(4.0) + rank

    def all_of_them(x):
        a = f.all_reduce(x, "sum", everyone)
        b = f.all_gather_tensor(x, 0, everyone)
        c = f.reduce_scatter_tensor(b, "sum", 0, everyone)
        d = f.all_to_all_single(b, None, None, everyone)
        e = f.broadcast(x, 0, everyone)
        return a + c, b, d, e

    results = all_of_them(x)
    assert results[0].tolist() == [size * v + sum(range(size)) + size * (v + rank) for v in range(4)], results[0]
    assert results[1].tolist() == [v + r for r in range(size) for v in range(4)]
    assert results[3].tolist() == [0.0, 1, 2, 3]
    compiled = torch.compile(all_of_them, backend=os.environ.get("COMPILE", "aot_eager"), fullgraph=True)(x)
    assert all(torch.equal(a, b) for a, b in zip(results, compiled))


@case(2)
def mesh():
    """DTensors, tensor parallelism and FSDP2 on it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    one = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    whole = torch.randn(2 * size + 1, 6)  # uneven parts
    sharded = distribute_tensor(whole, one, [Shard(0)])
    assert torch.equal(sharded.full_tensor(), whole)
    again = sharded.redistribute(one, [Shard(1)]).redistribute(one, [Replicate()])
    assert torch.equal(again.to_local(), whole)
    assert isinstance(sharded, DTensor)
    two = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")) if size == 4 else None
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(6, 8 * size), nn.ReLU(), nn.Linear(8 * size, 3))
    model = nn.Sequential(nn.Linear(6, 8 * size), nn.ReLU(), nn.Linear(8 * size, 3))
    model.load_state_dict(plain.state_dict())
    parallelize_module(model, two["tp"] if two else one, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if two:
        fully_shard(model, mesh=two["dp"])
    x = torch.randn(5, 6)
    torch.testing.assert_close(model(x), plain(x))
    model(x).sum().backward()
    plain(x).sum().backward()
    torch.testing.assert_close(model[0].weight.grad.full_tensor(), plain[0].weight.grad)
    torch.manual_seed(2)
    half = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))
    fully_shard(half, mesh=one, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    half(x).float().sum().backward()
    assert all(p.grad.full_tensor().isfinite().all() for p in half.parameters())


@case(2)
def pipeline():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(0)
    layers = [nn.Linear(8, 8) for _ in range(size)]
    stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    x, y = torch.ones(8, 8), torch.zeros(8, 8)
    losses = []
    if rank == 0:
        schedule.step(x, **({"target": y} if size == 1 else {}))
    elif rank == size - 1:
        schedule.step(target=y, losses=losses)
        out = x
        for layer in layers:
            out = layer(out)
        assert abs(sum(l.item() for l in losses) / 4 - nn.functional.mse_loss(out, y).item()) < 1e-6
    else:
        schedule.step()
    assert layers[rank].weight.grad is not None


@case(2)
def profiler():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        assert total(1) == size
    assert p.key_averages()


@case(2)
def coalesced():
    with dist._coalescing_manager(async_ops=True) as manager:
        tensors = [torch.full((n,), rank + 1.0) for n in (1, 100, 3000)]
        for t in tensors:
            dist.all_reduce(t)
    manager.wait()
    assert all(t.eq(size * (size + 1) / 2).all() for t in tensors)
    tensors = [torch.full((n,), rank + 1.0) for n in (1, 100, 3000)]
    dist.all_reduce_coalesced(tensors)
    assert all(t.eq(size * (size + 1) / 2).all() for t in tensors)


@case(2)
def names():
    assert dist.get_backend() == "lockstep" and dist.is_initialized() and dist.get_world_size() == size
    group = dist.new_group(list(range(size)), group_desc="mine")
    assert group.group_desc == "mine" and dist.get_process_group_ranks(group) == list(range(size))
    assert dist.get_group_rank(group, rank) == rank and dist.get_global_rank(group, 0) == 0
    assert group.size() == size and group.rank() == rank and group.name() == "lockstep"


@case(2)
def not_a_number():
    """NaN is not lost by a reduction."""
    for op in dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT:
        t = torch.tensor([float("nan") if rank == 0 else 1.0, float("inf")])
        dist.all_reduce(t, op)
        assert t[0].isnan() and t[1].isinf(), (op, t)


dist.init_process_group("lockstep")
store = dist.distributed_c10d._get_default_store()  # stays, also when the group is made again: ranks must not find one that is about to end
for name, (least, function) in cases.items():
    if (sys.argv[1:] and name not in sys.argv[1:]) or size < least:
        continue
    try:
        function()
        dist.barrier()
        print("held:", name, flush=True)
    except Exception as error:
        traceback.print_exc()
        print("FAILED:", name, repr(error)[:300], flush=True)
        os._exit(1)
dist.destroy_process_group()
