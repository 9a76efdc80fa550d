#!/usr/bin/env python3
"""torch's DataLoader over the same shard and batch shape as `lockstep bench loader`, and the ratio.

    bench/peers/torch_loader.py PROGRAM [--seconds S]

A file of 20 M uint16 tokens; a Dataset as training scripts have it (numpy.memmap, inputs and targets of 1,024 tokens);
batches of 8, shuffled, with each number of workers (persistent, prefetch 2 and 8). Then its best alternating with ours,
three times. Both sides touch nothing of the batch but take it. torch delivers int64, which its
embeddings want in most scripts; int32 is measured too.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
import time
import warnings

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

ROWS, LENGTH, TOKENS, ROUNDS = 8, 1024, 20 << 20, 3


class Shard(Dataset):
    def __init__(self, path, dtype):
        self.path, self.dtype, self.data = path, dtype, None

    def __len__(self):
        return (TOKENS - 1) // LENGTH

    def __getitem__(self, i):
        if self.data is None:
            self.data = numpy.memmap(self.path, numpy.uint16, "r")
        row = torch.from_numpy(self.data[i * LENGTH : (i + 1) * LENGTH + 1].astype(self.dtype))
        return row[:-1], row[1:]


def torch_rate(path, dtype, workers, prefetch, seconds):
    options = {"persistent_workers": True, "prefetch_factor": prefetch} if workers else {}
    loader = DataLoader(Shard(path, dtype), ROWS, shuffle=True, num_workers=workers, **options)
    begin, n = None, 0
    while True:
        for _ in loader:
            if begin is None:
                begin = time.perf_counter()  # the first batch starts the workers
                continue
            n += 1
            if time.perf_counter() - begin > seconds:
                return n / (time.perf_counter() - begin)


def lockstep_rates(program, path, seconds):
    """Batches a second by (workers, prefetch)."""
    out = subprocess.run([program, "bench", "loader", "--data", path, "--seconds", str(seconds), "--json", "--workers",
                          "0,1,2", "--prefetch", "2,8"], check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    return {(row["workers"], row["prefetch"]): row["batches_per_s"] for row in rows}


def main():
    warnings.simplefilter("ignore")  # of more workers than cores
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=1)
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".bin") as shard:
        numpy.random.default_rng(1).integers(0, 50257, TOKENS, numpy.uint16).tofile(shard.name)
        best = (0,)
        for dtype in (numpy.int64, numpy.int32):
            for workers in (0, 1, 2, 4):
                for prefetch in (2, 8) if workers else (0,):
                    rate = torch_rate(shard.name, dtype, workers, prefetch, args.seconds)
                    print(f"torch {torch.__version__} DataLoader, {numpy.dtype(dtype).name}, {workers} workers, "
                          f"prefetch {prefetch}: {rate:.0f} batches/s", flush=True)
                    best = max(best, (rate, (dtype, workers, prefetch)), key=lambda b: b[0])
        # Its best once more, alternating with ours.
        theirs, ours = [], []
        for _ in range(ROUNDS):
            theirs.append(torch_rate(shard.name, *best[1], args.seconds))
            ours.append(lockstep_rates(args.program, shard.name, args.seconds / 2))
        peer = statistics.median(theirs)
        print(f"alternating, medians of {ROUNDS}: torch's best, {numpy.dtype(best[1][0]).name}, {best[1][1]} workers: {peer:.0f}")
        for key in ours[0]:
            rate = statistics.median(o[key] for o in ours)
            print(f"lockstep, int32, {key[0]} workers, prefetch {key[1]}: {rate:.0f} batches/s, {rate / peer:.1f}x")


main()
