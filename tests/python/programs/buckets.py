"""DDP whose buckets move to shared memory, beside DDP on Gloo with the same data: the same gradients in every step. `full`: /dev/shm has no room, as it
seems; `tiny`: it has none."""
import gc
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import lockstep_torch

case = sys.argv[1]
moves = case == "room"
if case == "full":
    os.statvfs = lambda path: type("Full", (), {"f_bavail": 16, "f_frsize": 4096})
torch.set_num_threads(1)
dist.init_process_group("lockstep")
rank = dist.get_rank()
gloo = dist.new_group(backend="gloo")
world = dist.group.WORLD._world


def make(group, **options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 10))
    return nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.3, **options)


def steps(n, *models, zero):
    """Trains all models side by side, and compares them."""
    for _ in range(n):
        x = torch.randn(8, 300)
        for model in models:
            model(x).square().mean().backward()
        for one, *more in zip(*[m.parameters() for m in models]):
            assert all(torch.equal(one.grad, other.grad) for other in more)
        for model in models:
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
            model.zero_grad(set_to_none=zero)


torch.manual_seed(100 + rank)
for zero in True, False:
    for views in True, False:
        ours, theirs = make(None, gradient_as_bucket_view=views), make(gloo, gradient_as_bucket_view=views)
        steps(5, ours, theirs, zero=zero)
        moved = world.shared.moved
        assert moved >= 2 if moves else moved == 0, moved
        if views and not zero and moved:  # a gradient is where the reduction happens
            address = next(ours.parameters()).grad.untyped_storage().data_ptr()
            with open("/proc/self/maps") as maps:
                inside = [line for line in maps if int(line.split("-")[0], 16) <= address < int(line.split("-")[1].split()[0], 16)]
            assert "lockstep-job" in inside[0], inside
        del ours, theirs
        gc.collect()
# Buckets that were freed make way.
for _ in range(3):
    steps(4, make(None), zero=True)
    gc.collect()
assert world.shared.moved <= 6, world.shared.moved
# What a program's own hook reduces during a backward stays where it is: there may be arrays of it.
before, own, weight = world.shared.moved, torch.ones(100_000), torch.ones(2, requires_grad=True)
array, works = own.numpy(), []
weight.register_hook(lambda _: works.append(dist.all_reduce(own, async_op=True)))
for _ in range(4):
    weight.sum().backward()
    works.pop().wait()
assert world.shared.moved == before and own.data_ptr() == array.ctypes.data and array[0] == 16, (before, world.shared.moved)
# A tensor that the program moves, with another one in the same storage.
x = torch.arange(100_000, dtype=torch.float32)
part = x[5000:60_000]
assert lockstep_torch.share_(x) == moves and lockstep_torch.share_(part) == moves
dist.all_reduce(part)
assert torch.equal(x[5000:60_000], 2 * torch.arange(5000.0, 60_000)) and x[4999] == 4999 and x[60_000] == 60_000
print("done")
dist.destroy_process_group()
