#!/usr/bin/env python3
"""The Gloo peer of `lockstep bench allreduce`: torch.distributed's all-reduce of float32 on CPUs, in place.

Speaks the protocol described in cli/bench/peer.c: its name first, then "TOTAL CHUNK ROUNDS" in, times in microseconds out.
Rank 0 is the process that was started and talks; it starts the others, which sleep in a broadcast when there is nothing to do
(Gloo waits without spinning)."""
import os
import subprocess
import sys
import time

ranks = int(os.environ.get("PEER_RANKS", "2"))
rank = int(os.environ.get("RANK", "0"))
others = []
if "RANK" not in os.environ:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ.update(WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    for r in range(1, ranks):
        others.append(subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": str(r)},
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
    os.environ["RANK"] = "0"

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit("gloo.py: python3 has no torch here; pip install torch")
from datetime import timedelta

torch.set_num_threads(1)  # and not bound to a core, as torchrun has it: Gloo's own threads want another one
dist.init_process_group("gloo", timeout=timedelta(hours=1))


def one_round(x, chunk):
    x.fill_(1)
    dist.barrier()
    begin = time.perf_counter()
    for part in x.split(chunk):
        dist.all_reduce(part)
    us = (time.perf_counter() - begin) * 1e6
    assert x[0].item() == ranks and x[-1].item() == ranks
    return us


if rank == 0:
    print("Gloo, torch", torch.__version__, flush=True)
buffer = torch.empty(0)
while True:
    request = torch.zeros(3, dtype=torch.int64)
    if rank == 0:
        line = sys.stdin.readline()
        if line.strip():
            request = torch.tensor([int(word) for word in line.split()])
    dist.broadcast(request, 0)
    total, chunk, rounds = (int(n) for n in request)
    if rounds == 0:
        break
    if buffer.numel() * 4 < total:
        buffer = torch.empty(total // 4)
    us = torch.tensor([one_round(buffer[: total // 4], chunk // 4) for _ in range(rounds)], dtype=torch.float64)
    dist.all_reduce(us, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(*(f"{t:.3f}" for t in us.tolist()), flush=True)
dist.destroy_process_group()
for other in others:
    other.wait()
