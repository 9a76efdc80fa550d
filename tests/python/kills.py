#!/usr/bin/env python3
"""Kills a random rank of a job on backend lockstep, many times: every other rank must get an error that names it, soon, and nothing may be left.

    python kills.py [TIMES, default 50] [RANKS, default 3] [SEED, default 1]

Prints how long it took the others to learn of it. Exit code 1 if one did not within 5 s, or got another error."""
import os
import random
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import lockstep_torch

times, ranks, seed = (int(v) for v in (sys.argv[1:] + ["50", "3", "1"][len(sys.argv) - 1 :])[:3])
torch.set_num_threads(1)
lockstep_torch.register()
random.seed(seed)


def train(rank, path):
    """One rank: collectives of all sizes until one fails. Writes "TIME MESSAGE"."""
    dist.init_process_group("lockstep", init_method=f"file://{path}/store", rank=rank, world_size=ranks)
    try:
        dist.barrier()
        open(f"{path}/ready-{rank}", "w").close()
        for i in range(10**9):
            size = (1, 1000, 100000, 1000000)[i % 4]
            dist.all_reduce(torch.ones(size)) if i % 3 else dist.all_gather([torch.empty(size) for _ in range(ranks)], torch.ones(size))
    except RuntimeError as error:
        now = time.time()
        with open(f"{path}/error-{rank}", "w") as file:
            file.write(f"{now!r} {error}")
    os._exit(0)


def descriptors():
    return sorted(os.listdir("/dev/shm"))


bad, waits = 0, []
before = descriptors()
for n in range(times):
    with tempfile.TemporaryDirectory() as path:
        pids = []
        for rank in range(ranks):
            pid = os.fork()
            if not pid:
                train(rank, path)
            pids.append(pid)
        while sum(f.startswith("ready") for f in os.listdir(path)) < ranks:
            time.sleep(0.01)
        time.sleep(random.random() * 0.1)
        victim = random.randrange(ranks)
        os.kill(pids[victim], signal.SIGKILL)
        killed = time.time()
        alive = set(pids) - {pids[victim]}
        while alive and time.time() < killed + 5:
            alive -= {pid for pid in alive if os.waitpid(pid, os.WNOHANG)[0]}
            time.sleep(0.005)
        os.waitpid(pids[victim], 0)
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for rank in set(range(ranks)) - {victim}:
            path_of_error = f"{path}/error-{rank}"
            text = open(path_of_error).read() if os.path.exists(path_of_error) else "nothing"
            if f"rank {victim} " not in text:
                bad += 1
                print(f"kill {n} of rank {victim}: rank {rank} got: {text}")
            else:
                waits.append(float(text.split()[0]) - killed)
if descriptors() != before:
    bad += 1
    print("left in /dev/shm:", set(descriptors()) - set(before))
waits.sort()
print(f"{times} kills, {ranks} ranks, {bad} bad; reported after {1000 * waits[len(waits) // 2]:.0f} ms (median), {1000 * waits[-1]:.0f} ms (longest)")
sys.exit(bad > 0)
