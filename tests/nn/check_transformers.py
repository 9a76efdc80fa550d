#!/usr/bin/env python3
"""Folders of models, checked with the real library: one written by lockstep gives transformers the same logits, and the
reverse. Needs torch and transformers, so it is no part of `make test`:

  pip install torch transformers
  tests/nn/check_transformers.py build

Prints the largest difference of each case; exits 1 if one is above 1e-4."""
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
LIMIT = 1e-4
TOKENS = [72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100, 33, 10, 0, 255]
failed = False


def ours(folder):
    """The logits that lockstep computes, (tokens, vocabulary)."""
    out = subprocess.run([build / "tests" / "print_logits", folder, *map(str, TOKENS)], check=True, capture_output=True,
                         text=True).stdout
    return torch.tensor([[float(x) for x in line.split()] for line in out.splitlines()])


def theirs(folder):
    model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0]


def compare(name, folder):
    global failed
    a, b = ours(folder), theirs(folder)
    worst = (a - b).abs().max().item()
    print(f"{name}: largest difference {worst:.2e}, largest logit {b.abs().max():.2f}")
    failed |= a.shape != b.shape or not worst <= LIMIT


print(f"torch {torch.__version__}, transformers {transformers.__version__}")
with tempfile.TemporaryDirectory() as folder:
    run = pathlib.Path(folder, "run")
    subprocess.run([build / "bin" / "lockstep", "train", "--steps", "30", "--layers", "4", "--width", "96", "--heads", "3",
                    "--seq-len", "64", "--run-dir", run, "--quiet", "--threads", "1"], check=True)
    compare("written by lockstep train", run)

    torch.manual_seed(3)
    config = GPT2Config(n_layer=3, n_embd=64, n_head=4, vocab_size=300, n_positions=40, bos_token_id=None,
                        eos_token_id=None)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)  # biases and norms that are not 0 and 1
    for name, kind in (("float32", torch.float32), ("float16", torch.float16), ("bfloat16", torch.bfloat16)):
        model.to(kind).save_pretrained(pathlib.Path(folder, name))
        compare(f"written by transformers, {name}", pathlib.Path(folder, name))
sys.exit(failed)
