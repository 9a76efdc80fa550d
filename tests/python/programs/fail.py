"""Ranks that fail. Prints the error that the others get, and after how long."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

case = sys.argv[1]
dist.init_process_group("lockstep")
rank = dist.get_rank()
dist.barrier()
begin = time.time()
try:
    if case == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if case == "exit" and rank == 1:
        sys.exit(0)
    if case == "mismatch":
        dist.all_reduce(torch.ones(3 if rank == 1 else 4))
    elif case == "shape of a gather":
        dist.all_gather([torch.empty(2), torch.empty(2)], torch.empty(2 + rank))
    else:
        dist.all_reduce(torch.ones(1 << 20))
except RuntimeError as error:
    print(f"{time.time() - begin:.3f} {type(error).__name__}: {error}", flush=True)
    os._exit(3)
os._exit(0)
