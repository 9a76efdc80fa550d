#!/usr/bin/env python3
"""Writes golden_gpt2.safetensors: a small GPT-2 computed by torch: weights, tokens, logits, loss, every gradient, and the
losses of 10 AdamW steps. Usage: make_golden_gpt2.py golden_gpt2.safetensors"""
import json
import struct
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(7)
LAYERS, WIDTH, HEADS, VOCAB, CONTEXT = 4, 16, 2, 37, 8
ROWS, LENGTH, STEPS = 3, 7, 10


def make_weights():
    c, w = WIDTH, {}
    w["wte.weight"], w["wpe.weight"] = torch.randn(VOCAB, c) * 0.3, torch.randn(CONTEXT, c) * 0.2
    for i in range(LAYERS):
        h = f"h.{i}."
        for name, (a, b) in {"attn.c_attn": (c, 3 * c), "attn.c_proj": (c, c), "mlp.c_fc": (c, 4 * c),
                             "mlp.c_proj": (4 * c, c)}.items():
            w[h + name + ".weight"], w[h + name + ".bias"] = torch.randn(a, b) * 0.2, torch.randn(b) * 0.1
        for name in ("ln_1", "ln_2"):
            w[h + name + ".weight"], w[h + name + ".bias"] = 1 + torch.randn(c) * 0.1, torch.randn(c) * 0.1
    w["ln_f.weight"], w["ln_f.bias"] = 1 + torch.randn(c) * 0.1, torch.randn(c) * 0.1
    return w


def logits_of(w, tokens):
    norm = lambda x, name: F.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"], 1e-5)
    linear = lambda x, name: x @ w[name + ".weight"] + w[name + ".bias"]
    b, t = tokens.shape
    x = w["wte.weight"][tokens] + w["wpe.weight"][:t]
    for i in range(LAYERS):
        h = f"h.{i}."
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + linear(y, h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def write(path, tensors):
    """safetensors by hand, so that our reader gets a file that it did not write."""
    kinds = {torch.float32: "F32", torch.int32: "I32"}
    header, data = {}, b""
    for name, t in tensors.items():
        raw = t.detach().contiguous().numpy().tobytes()
        header[name] = dict(dtype=kinds[t.dtype], shape=list(t.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


w = {k: v.requires_grad_() for k, v in make_weights().items()}
start = {k: v.detach().clone() for k, v in w.items()}
batches = torch.randint(0, VOCAB, (STEPS, ROWS, LENGTH + 1))
loss_of = lambda batch: F.cross_entropy(logits_of(w, batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
out = {f"weight.{k}": v for k, v in start.items()}
out["tokens"], out["targets"] = (batches[:, :, :-1].to(torch.int32), batches[:, :, 1:].to(torch.int32))
out["logits"] = logits_of(w, batches[0][:, :-1])
optimizer = torch.optim.AdamW([dict(params=[p for p in w.values() if p.dim() > 1], weight_decay=0.1),
                               dict(params=[p for p in w.values() if p.dim() == 1], weight_decay=0.0)],
                              lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
losses = []
for step in range(STEPS):
    optimizer.zero_grad()
    loss = loss_of(batches[step])
    loss.backward()
    losses.append(loss.detach())
    if step == 0:
        out.update({f"grad.{k}": v.grad.clone() for k, v in w.items()})
    torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
    optimizer.step()
out["losses"] = torch.stack(losses)
write(sys.argv[1], out)
