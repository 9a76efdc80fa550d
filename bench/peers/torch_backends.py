#!/usr/bin/env python3
"""all_reduce of torch.distributed on backend lockstep and on gloo, in turns in the same processes:

    torchrun --nproc-per-node 2 bench/peers/torch_backends.py

Needs torch and lockstep-torch (python/README.md). Prints the median of the times, and the median of the ratios of neighbouring turns."""
import statistics
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("lockstep")
groups = {"lockstep": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
for size, calls in (4 << 10, 100), (64 << 10, 50), (1 << 20, 10), (25 << 20, 2):
    data = torch.ones(size // 4)
    times = {name: [] for name in groups}
    for turn in range(12):
        for name, group in groups.items():
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(data, group=group)
            times[name].append((time.perf_counter() - begin) / calls)
            data.fill_(1)
    if dist.get_rank() == 0:
        ratio = statistics.median(g / ours for g, ours in zip(times["gloo"][2:], times["lockstep"][2:]))
        ours, gloo = (statistics.median(times[n][2:]) * 1e6 for n in ("lockstep", "gloo"))
        print(f"{size / 1024:8.0f} KiB  lockstep {ours:10.1f} us  gloo {gloo:10.1f} us  {ratio:6.1f} x", flush=True)
dist.destroy_process_group()
