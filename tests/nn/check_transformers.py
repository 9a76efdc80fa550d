#!/usr/bin/env python3
"""Folders of models, checked with the real library: one written by lockstep gives transformers the same logits and its tokenizer the
same tokens, and the reverse. Every architecture of family.py: logits, all gradients, the losses of 10 steps, greedy text, and folders
there and back. Needs torch and transformers, so it is no part of `make test`:

  pip install torch transformers
  tests/nn/check_transformers.py build

Prints the largest difference of each case; exits 1 if one is above 1e-4."""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import family

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
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0]


def compare(name, folder):
    global failed
    a, b = ours(folder), theirs(folder)
    worst = (a - b).abs().max().item()
    print(f"{name}: largest difference {worst:.2e}, largest logit {b.abs().max():.2f}")
    failed |= a.shape != b.shape or not worst <= LIMIT


def compare_tokens(name, folder):
    """AutoTokenizer and lockstep on texts with all kinds of characters and added tokens."""
    global failed
    random.seed(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pieces = ["hello", " the", "word", " ", "  \n", "\t", "é", "日本", "🙂", "'s", "123", "<|endoftext|>", "<|im_end|>", "<|", "foo bar", "x"]
    text = ["".join(random.choice(pieces) for _ in range(20)) for _ in range(500)]
    theirs = []
    for t in text:
        theirs += tokenizer.encode(t, add_special_tokens=False) + [tokenizer.eos_token_id]
    pathlib.Path(folder, "check.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in text))
    subprocess.run([build / "bin" / "lockstep", "data", "tokenize", "--tokenizer", folder, "-o", pathlib.Path(folder, "check"), "--format", "u32",
                    "--quiet", pathlib.Path(folder, "check.jsonl")], check=True, stdout=subprocess.DEVNULL)
    data = pathlib.Path(folder, "check-00000.bin").read_bytes()
    same = list(struct.unpack(f"<{len(data) // 4}I", data)) == theirs
    print(f"{name}: {len(theirs)} tokens of {type(tokenizer).__name__}, {'the same' if same else 'DIFFERENT'}")
    failed |= not same


def compare_family(name, folder, kind=torch.float32, **save):
    """See family.compare()."""
    global failed
    family.make(name).to(kind).save_pretrained(folder, **save)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    failed |= not family.report(folder.name, family.compare(build, model, folder, family.batches(37), attn_implementation="eager"), LIMIT)


def compare_encoder(name, folder):
    global failed
    model = family.make_encoder(name)
    model.save_pretrained(folder)
    failed |= not family.report(name, family.compare_encoder(build, model, folder, family.encoder_batches(model)), LIMIT)


print(f"torch {torch.__version__}, transformers {transformers.__version__}")
with tempfile.TemporaryDirectory() as folder:
    for name in family.ENCODERS:
        compare_encoder(name, pathlib.Path(folder, name))
    for name in family.CONFIGS:
        compare_family(name, pathlib.Path(folder, name))
    for kind in (torch.float16, torch.bfloat16):
        compare_family("llama3", pathlib.Path(folder, f"llama3 in {str(kind)[6:]}"), kind)
    compare_family("qwen3", pathlib.Path(folder, "qwen3 in shards"), max_shard_size="20KB")
    for model in ("llama", "qwen2", "qwen3", "mistral"):
        run = pathlib.Path(folder, "new " + model)
        subprocess.run([build / "bin" / "lockstep", "train", "--model", model, "--steps", "3", "--seq-len", "64", "--run-dir", run, "--quiet",
                        "--threads", "1"] + (["--rope", "llama3", "--rope-factor", "8", "--rope-context", "16"] if model == "llama" else []), check=True)
        compare(f"written by lockstep train --model {model}", run)
    run = pathlib.Path(folder, "run")
    subprocess.run([build / "bin" / "lockstep", "train", "--steps", "30", "--layers", "4", "--width", "96", "--heads", "3",
                    "--seq-len", "64", "--run-dir", run, "--quiet", "--threads", "1"], check=True)
    compare("written by lockstep train", run)
    compare_tokens("bytes, written by lockstep train", run)

    # A tokenizer with added tokens and an end of its own, written by transformers and kept by lockstep.
    base, tuned = pathlib.Path(folder, "base"), pathlib.Path(folder, "tuned")
    backend = Tokenizer.from_file(str(pathlib.Path(__file__).parent / "../data/added_tokenizer.json"))
    backend.add_special_tokens(["<|im_end|>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", bos_token="<|endoftext|>")
    fast.save_pretrained(base)
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=len(fast), n_positions=64, eos_token_id=fast.eos_token_id,
                               bos_token_id=fast.bos_token_id)).save_pretrained(base)
    pathlib.Path(folder, "text.txt").write_text("the word foo bar, <|im_end|> and more of it\n" * 200)
    subprocess.run([build / "bin" / "lockstep", "train", "--init", base, "--data", pathlib.Path(folder, "text.txt"), "--seq-len", "32",
                    "--steps", "3", "--run-dir", tuned, "--quiet", "--threads", "1"], check=True)
    compare_tokens("written by transformers", base)
    compare_tokens("kept by lockstep train", tuned)
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        same = (base / name).read_bytes() == (tuned / name).read_bytes()
        print(f"{name}: {'kept' if same else 'CHANGED'}")
        failed |= not same

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
