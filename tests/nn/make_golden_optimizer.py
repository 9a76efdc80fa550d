#!/usr/bin/env python3
"""Writes golden_optimizer.h: what torch's optimizers make of the same weights and gradients.
Usage: make_golden_optimizer.py > golden_optimizer.h"""
import torch

torch.manual_seed(1)
SHAPES, STEPS = [(3, 4), (5,)], 4
start = [torch.randn(s) for s in SHAPES]
grads = [[torch.randn(s) * 10 ** -k for s in SHAPES] for k in range(STEPS)]


def text(values):
    return "{ " + ", ".join(float(v).hex() + "f" for v in values.flatten()) + " }"


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


def run(make, clip=None):
    params = [torch.nn.Parameter(t.clone()) for t in start]
    optimizer = make([dict(params=[params[0]]), dict(params=[params[1]], weight_decay=0.0)])
    for k in range(STEPS):
        for p, g in zip(params, grads[k]):
            p.grad = g.clone()
        if clip:
            torch.nn.utils.clip_grad_norm_(params, clip)
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.1 / (k + 1)
        optimizer.step()
    return flat(params)


print(f"/* Made by make_golden_optimizer.py with torch {torch.__version__.split('+')[0]}; see there. */")
print(f"enum {{ STEPS = {STEPS}, COUNT = {flat(start).numel()} }};")
print(f"static const float golden_start[COUNT] = {text(flat(start))};")
print("static const float golden_grads[STEPS][COUNT] = {")
for k in range(STEPS):
    print(f"    {text(flat(grads[k]))},")
print("};")
adamw = lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)
print(f"static const float golden_adamw[COUNT] = {text(run(adamw))};")
print(f"static const float golden_adamw_clipped[COUNT] = {text(run(adamw, 0.5))};")
sgd = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.7, weight_decay=0.3)
print(f"static const float golden_sgd[COUNT] = {text(run(sgd))};")
plain = lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.3)
print(f"static const float golden_sgd_plain[COUNT] = {text(run(plain))};")

# Muon for a wide and a tall matrix, AdamW for a table and a vector. torch rounds the iteration to bfloat16: here it stays float32.
MUON = [(6, 10), (9, 4), (7, 3), (5,)]
torch.Tensor.bfloat16 = torch.Tensor.clone  # until 2.13
torch.bfloat16 = torch.float32  # since 2.14
muon_start = [torch.randn(s) for s in MUON]
muon_grads = [[torch.randn(s) * 10 ** -k for s in MUON] for k in range(STEPS)]
params = [torch.nn.Parameter(t.clone()) for t in muon_start]
optimizers = [torch.optim.Muon(params[:2], lr=0.1, weight_decay=0.3, momentum=0.8, adjust_lr_fn="match_rms_adamw"),
              torch.optim.AdamW([dict(params=[params[2]]), dict(params=[params[3]], weight_decay=0.0)], lr=0.1, betas=(0.8, 0.95),
                                eps=1e-6, weight_decay=0.3)]
for k in range(STEPS):
    for p, g in zip(params, muon_grads[k]):
        p.grad = g.clone()
    for o in optimizers:
        for group in o.param_groups:
            group["lr"] = 0.1 / (k + 1)
        o.step()
print(f"enum {{ MUON_COUNT = {flat(muon_start).numel()} }};")
print(f"static const float golden_muon_start[MUON_COUNT] = {text(flat(muon_start))};")
print("static const float golden_muon_grads[STEPS][MUON_COUNT] = {")
for k in range(STEPS):
    print(f"    {text(flat(muon_grads[k]))},")
print("};")
print(f"static const float golden_muon[MUON_COUNT] = {text(flat(params))};")
