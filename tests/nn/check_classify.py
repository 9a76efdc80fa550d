#!/usr/bin/env python3
"""Fine-tuning on pairs of texts beside torch: a BERT by transformers with random weights, rows of MRPC's shape, 200 steps of `lockstep train --task
classify` and of torch from the same weights and batches. Needs torch and transformers, so it is no part of `make test`:

  tests/nn/check_classify.py build

Prints losses of both; exits 1 if one differs by more than 1 %, or if the task was not learned."""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import Tokenizer

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
STEPS, BATCH, LENGTH, RATE = 200, 16, 40, 5e-4
PEOPLE, THINGS = "mira tom ada ben lena max rosa paul".split(), "lamp key stone coin drum boat shell book letter basket".split()
GOOD, BAD = "found kept bought".split(), "lost broke sold".split()


def pair():
    """The second text says the same of the thing, or the opposite."""
    who, thing, good = random.choice(PEOPLE), random.choice(THINGS), random.random() < 0.5
    label = random.random() < 0.6
    first, second = random.choice(GOOD if good else BAD), random.choice(GOOD if label else BAD)
    return f"{who.title()} {first} the {thing}, and went home.", f"In the end the {thing} was {second} by {who.title()}.", int(label)


random.seed(3)
rows = [pair() for _ in range(STEPS * BATCH + 333)]
train, val = rows[:STEPS * BATCH], rows[STEPS * BATCH:]
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    base = folder / "base"
    base.mkdir()
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *letters, *("##" + c for c in letters), *PEOPLE, *THINGS, *GOOD, *BAD,
                  "the", "and", "went", "home", "in", "end", "was", "by"]
    (base / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    for file, part in ("train.tsv", train), ("val.tsv", val):
        (folder / file).write_text("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" +
                                   "".join(f"{y}\t{i}\t{i}\t{a}\t{b}\n" for i, (a, b, y) in enumerate(part)))
    torch.manual_seed(1)
    config = transformers.BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=len(vocabulary),
                                     max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)
    model = transformers.BertForSequenceClassification(config)
    model.save_pretrained(base)
    run = folder / "run"
    arguments = ["--task", "classify", "--init", base, "--data", folder / "train.tsv", "--val-data", folder / "val.tsv", "--order", "sequential", "--steps",
                 STEPS, "--batch-size", BATCH, "--seq-len", LENGTH, "--lr", RATE, "--schedule", "constant", "--warmup", 0, "--run-dir", run, "--quiet",
                 "--threads", 1]
    subprocess.run([build / "bin/lockstep", "train", *map(str, arguments)], check=True)
    ours = [json.loads(line) for line in open(run / "metrics.jsonl")]
    tokenizer = Tokenizer.from_file(str(run / "tokenizer.json"))  # written by lockstep, read by the real library
    tokenizer.enable_padding()
    tokenizer.enable_truncation(LENGTH)

    def batch(part):
        encoded = tokenizer.encode_batch([(a, b) for a, b, _ in part])
        return (*(torch.tensor([getattr(e, k) for e in encoded]) for k in ("ids", "attention_mask", "type_ids")), torch.tensor([y for *_, y in part]))

    def loss_of(part):
        ids, mask, types, labels = batch(part)
        logits = model(ids, attention_mask=mask, token_type_ids=types).logits
        return torch.nn.functional.cross_entropy(logits, labels), logits, labels

    params = list(model.parameters())
    optimizer = torch.optim.AdamW([dict(params=[p for p in params if p.dim() > 1], weight_decay=0.1),
                                   dict(params=[p for p in params if p.dim() == 1], weight_decay=0.0)], lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    model.train()
    worst = 0
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(train[step * BATCH:(step + 1) * BATCH])[0]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        got, expected = ours[step]["loss"], loss.item()
        worst = max(worst, abs(got - expected) / expected)
        if step % 20 == 19 or step == 0:
            print(f"step {step + 1:3}  lockstep {got:.6f}  torch {expected:.6f}")
    model.eval()
    with torch.no_grad():
        loss, logits, labels = loss_of(val)
    best = logits.argmax(1)
    right = (best == labels).float().mean().item()
    f1 = 2 * (best & labels).sum().item() / (best.sum() + labels.sum()).item()
    last = ours[-1]
    print(f"largest difference {100 * worst:.4f} %; validation: lockstep loss {last['eval_loss']:.6f} accuracy {last['eval_accuracy']:.6f} f1 "
          f"{last['eval_f1']:.6f}, torch {loss.item():.6f} {right:.6f} {f1:.6f}")
    again = transformers.BertForSequenceClassification.from_pretrained(run)
    with torch.no_grad():
        difference = max((a - b).abs().max().item() for a, b in zip(again.parameters(), model.parameters()))
    print(f"the saved folder in transformers: weights differ by {difference:.2e} at most")
    good = worst <= 0.01 and last["eval_accuracy"] > 0.95 and abs(last["eval_accuracy"] - right) < 1e-6 and abs(last["eval_f1"] - f1) < 1e-6
sys.exit(not good)
