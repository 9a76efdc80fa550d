"""A sum over ranks that were started by torchrun, `lockstep run`, mpirun, or (argument "spawn") by this program itself. Each rank prints it."""

import os
import sys

import torch
import torch.distributed as dist


def rank_main(rank=None, size=None, port=None):
    if rank is not None:
        dist.init_process_group("lockstep", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    else:
        dist.init_process_group("lockstep")
    t = torch.full((1000,), dist.get_rank() + 1.0)
    dist.all_reduce(t)
    sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()}: {t[-1].item():g}\n")  # at once: print() would write the end of the line by itself
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["spawn"]:
        torch.multiprocessing.spawn(rank_main, args=(3, sys.argv[2]), nprocs=3)
    else:
        for name, others in ("RANK", ("OMPI_COMM_WORLD_RANK", "PMI_RANK")), ("WORLD_SIZE", ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
            for other in others:  # as torch's documentation asks of programs under mpirun
                if other in os.environ:
                    os.environ.setdefault(name, os.environ[other])
        rank_main()
