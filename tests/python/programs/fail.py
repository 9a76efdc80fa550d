"""Ranks that fail. Prints the error that the others get, and after how long."""
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

case = sys.argv[1]
late = case in ("late", "stop")
dist.init_process_group("lockstep", timeout=timedelta(seconds=2) if late else None)
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300)) if case in ("backward", "different models") else None
dist.barrier()
begin = time.time()
try:
    if late and rank == 1:
        if case == "stop":
            subprocess.Popen(["sh", "-c", f"sleep 4; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(4)
        os._exit(0)
    if case == "backward":
        for step in range(4):
            if step == 3 and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(8, 300)).sum().backward()
        os._exit(0)
    if case == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if case == "exit" and rank == 1:
        sys.exit(0)
    if case == "different models":  # DDP compares them with rank 0's
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3 + rank))
    elif case == "mismatch":
        dist.all_reduce(torch.ones(3 if rank == 1 else 4))
    elif case == "shape of a gather":
        dist.all_gather([torch.empty(2), torch.empty(2)], torch.empty(2 + rank))
    else:
        dist.all_reduce(torch.ones(1 << 20))
except RuntimeError as error:
    print(f"{time.time() - begin:.3f} {type(error).__name__}: {error}", flush=True)
    os._exit(3)
os._exit(0)
