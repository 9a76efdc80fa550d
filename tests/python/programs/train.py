"""A small training loop with DDP, with something wrong in it if the second argument says so. It knows nothing of lockstep but record()."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

folder, case = sys.argv[1], sys.argv[2]
steps = 16
torch.set_num_threads(1)
if case not in ("autoload", "plain"):
    import lockstep_torch

    if case != "late record":
        lockstep_torch.record(folder)
dist.init_process_group(os.environ.get("BACKEND", "gloo"))
rank, slow = dist.get_rank(), dist.get_rank() == 1
accumulate = 2 if case in ("accumulate", "no_sync") else 1


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * steps * accumulate * dist.get_world_size()

    def __getitem__(self, i):
        if case == "data" and slow:
            time.sleep(0.004)
        generator = torch.Generator().manual_seed(i)
        return torch.randn(64, generator=generator), i % 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64)

    def forward(self, x):
        if case == "forward" and slow:
            time.sleep(0.01)
        x = torch.relu(self.fc(x))
        if case == "backward" and slow and x.requires_grad:
            x.register_hook(lambda g: time.sleep(0.01))
        return x


torch.manual_seed(0)
inner = nn.Sequential(Block(), Block(), Block(), nn.Linear(64, 10))
if case == "data_parallel":
    model = lockstep_torch.DataParallel(inner)
elif case == "unwrapped":
    model = inner
else:
    cap = 25 if case.startswith("compiled") else 0.02  # the compiler wants no bucket smaller than the first one, which has 1 MB
    model = nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=cap)
if case == "compiled":
    model = torch.compile(model, backend="aot_eager")
elif case == "compiled in place":
    model.compile(backend="aot_eager")
if case == "late record":
    lockstep_torch.record(folder)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = Numbers()
loader = torch.utils.data.DataLoader(
    data,
    batch_size=8,
    sampler=torch.utils.data.distributed.DistributedSampler(data),
    num_workers=1 if case == "workers" else 0,
)
batches = iter(loader)
for step in range(steps):
    for micro in range(accumulate):
        x, y = next(batches)
        if case == "update" and slow:
            optimizer.register_step_pre_hook(lambda *_: time.sleep(0.03)) if step == 0 and micro == 0 else None
        if case == "module":
            nn.functional.cross_entropy(inner(x), y).backward()
        elif case == "data_parallel":
            assert model.backward(nn.functional.cross_entropy(model(x), y))
        elif case == "no_sync" and micro:  # the forward decides, and it is in the wrong place
            with model.no_sync():
                out = model(x)
            nn.functional.cross_entropy(out, y).backward()
        elif case == "accumulate" and not micro:
            with model.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()
        else:
            nn.functional.cross_entropy(model(x), y).backward()
    if case == "manual" or case == "unwrapped" and len(sys.argv) > 3:
        for p in inner.parameters():
            dist.all_reduce(p.grad)
    optimizer.step()
    optimizer.zero_grad()
    if case == "drift" and slow:
        with torch.no_grad():
            inner[1].fc.weight[0, 0] += 1
if case == "eval":
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            model(x)
model = None if case == "data_parallel" else model
os.makedirs(folder, exist_ok=True)
torch.save({k: v for k, v in inner.state_dict().items()}, os.path.join(folder, f"state-{rank}.pt"))
if case == "restored":
    lockstep_torch._record._active.close()
    names = [
        torch._C._distributed_c10d.ProcessGroup.allreduce,
        torch._C._distributed_c10d.Work.wait,
        dist.Reducer,
        torch.autograd.backward,
        torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
    ]
    assert not any("lockstep" in getattr(f, "__module__", "") for f in names), [f.__module__ for f in names]
    assert not torch.nn.modules.module._global_forward_hooks and not model._forward_hooks
    assert all(not (p._post_accumulate_grad_hooks or {}) for p in inner.parameters())
dist.destroy_process_group()
