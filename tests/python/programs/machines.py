"""Ranks on several machines: sums of each size, the collectives, groups, messages and DDP, compared with what one process computes. Prints a digest of the
sums' bits."""
import hashlib
import os
import socket
import sys

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("lockstep")
rank, size = dist.get_rank(), dist.get_world_size()
digest = hashlib.sha256()
for n in 1, 1000, 100_000, 1_000_000:
    parts = [torch.randn(n, generator=torch.Generator().manual_seed(1000 * n + r)) for r in range(size)]
    mine = parts[rank].clone()
    dist.all_reduce(mine)
    torch.testing.assert_close(mine, torch.stack(parts).sum(0))
    digest.update(mine.numpy().tobytes())
    out = [torch.empty(n) for _ in range(size)]
    dist.all_gather(out, parts[rank])
    assert all(torch.equal(a, b) for a, b in zip(out, parts))
hosts = [None] * size
dist.all_gather_object(hosts, socket.gethostname())
ends = dist.new_group([0, size - 1])
middle = dist.new_group(list(range(1, size)))
for group in ends, middle:
    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        x = torch.ones(50_000)
        dist.all_reduce(x, group=group)
        assert x.eq(dist.get_world_size(group)).all()
token = torch.zeros(3)
if rank == 0:
    dist.send(torch.full((3,), 7.0), size - 1, tag=4)
elif rank == size - 1:
    dist.recv(token, 0, tag=4)
    assert token.tolist() == [7.0] * 3
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 300))
for step in range(4):
    x = torch.randn(5, 200, generator=torch.Generator().manual_seed(100 * step + rank))
    model(x).square().mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None
for p in model.parameters():
    digest.update(p.detach().numpy().tobytes())
print(f"{len(set(hosts))} machines, bits {digest.hexdigest()}", flush=True)
if sys.argv[1:] == ["kill"]:
    if rank == size - 1:
        os.kill(os.getpid(), 9)
    try:
        while True:
            dist.all_reduce(torch.ones(1000))
    except RuntimeError as error:
        print("told:", error, flush=True)
        os._exit(0)
dist.destroy_process_group()
