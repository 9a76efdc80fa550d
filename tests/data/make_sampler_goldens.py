#!/usr/bin/env python3
"""Writes sampler_goldens.txt: what torch.utils.data.DistributedSampler deals, for 2,000 random cases.

Needs torch and numpy; run by hand, when torch changes its mind:  tests/data/make_sampler_goldens.py
A line is a case: samples ranks rank seed epoch drop_last shuffle hash. The hash is that of test_sampler.c: over the
rank's indices in order, h = h * M + index + 1 (mod 2^64).

--check BIN SEED compares 2,000 other cases with what `BIN data order` prints, index for index (two minutes).
--large BIN also checks the branch of randperm for 2^32 / 20 samples and more, against the program BIN (5 GB, a minute).
"""
import math
import pathlib
import random
import subprocess
import sys

import numpy
import torch
from torch.utils.data import DistributedSampler

CASES = 2000
M = 0x9E3779B97F4A7C15


class Sized:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


def dealt(samples, ranks, rank, seed, epoch, drop_last, shuffle):
    sampler = DistributedSampler(Sized(samples), ranks, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return numpy.fromiter(sampler, numpy.uint64)


def hash_of(indices):
    if not len(indices):
        return 0
    powers = numpy.full(len(indices), M, numpy.uint64)
    powers[0] = 1
    with numpy.errstate(over="ignore"):
        powers = numpy.cumprod(powers, dtype=numpy.uint64)[::-1]
        return int(((indices + numpy.uint64(1)) * powers).sum(dtype=numpy.uint64))


def random_case(r):
    samples = int(math.exp(r.uniform(0, math.log(1_000_000)))) if r.random() < 0.95 else r.randint(500_000, 1_000_000)
    ranks = r.choice([1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 200])
    seed = r.choice([0, 1, 42, r.getrandbits(16), r.getrandbits(32), r.getrandbits(48)])
    epoch = r.choice([0, 0, 1, 2, r.randrange(1000)])
    return samples, ranks, r.randrange(ranks), seed, epoch, r.random() < 0.5, r.random() < 0.8


def check_large(program):
    n = (2**32 - 1) // 20 + 1
    expected = torch.randperm(n, generator=torch.Generator().manual_seed(7)).numpy()
    out = subprocess.Popen([program, "data", "order", "--order", "torch", "--samples", str(n), "--seed", "7"],
                           stdout=subprocess.PIPE)
    got = numpy.fromiter((int(line) for line in out.stdout), numpy.int64, n)
    assert out.wait() == 0 and numpy.array_equal(expected, got), "the large branch differs"
    print(f"randperm({n}): equal")


def check(program, seed):
    r = random.Random(seed)
    indices = 0
    for i in range(CASES):
        samples, ranks, rank, case_seed, epoch, drop_last, shuffle = case = random_case(r)
        command = [program, "data", "order", "--order", "torch", "--samples", str(samples), "--ranks", str(ranks), "--rank",
                   str(rank), "--seed", str(case_seed), "--epoch", str(epoch), *["--drop-last"] * drop_last,
                   *["--no-shuffle"] * (not shuffle)]
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        got = numpy.array(out.split(), numpy.uint64)
        assert numpy.array_equal(dealt(*case), got), f"case {i} differs: {' '.join(command)}"
        indices += len(got)
    print(f"{CASES} cases, {indices} indices: equal to torch {torch.__version__}")


def main():
    if sys.argv[1:2] == ["--check"]:
        return check(sys.argv[2], int(sys.argv[3]))
    if sys.argv[1:2] == ["--large"]:
        return check_large(sys.argv[2])
    r = random.Random(20261115)
    lines = [f"# torch {torch.__version__}, DistributedSampler; made by make_sampler_goldens.py"]
    for _ in range(CASES):
        case = random_case(r)
        lines.append(" ".join(str(int(x)) for x in case) + f" {hash_of(dealt(*case)):016x}")
    pathlib.Path(__file__).with_name("sampler_goldens.txt").write_text("\n".join(lines) + "\n")


main()
