#!/usr/bin/env python3
"""torch's best effort at what `lockstep train` does: a model of the shape of GPT-2 (or, with --model llama or bert, of Llama, or of BERT with a classifier) in float32, with fused attention and fused AdamW;
with WORLD_SIZE above 1 (and RANK, MASTER_ADDR, MASTER_PORT) under DistributedDataParallel over Gloo, gradients as views of
its buckets. Denormal numbers are flushed to zero, without which torch is several times slower on Intel's CPUs once gradients get
tiny. --compile: through torch.compile. --bf16: gradients are communicated as bfloat16 (its own hook). Rank 0 prints one JSON line:
median step, tokens/s, peak resident memory, time from start to the first step; and with --show-steps a line after each step."""
import argparse
import json
import os
import resource
import statistics
import time

start = time.time()
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Llama(nn.Module):
    """As Hugging Face's: RMS norms, rotary positions, grouped queries, SwiGLU, tied head; each projection of one input in one product."""

    class Block(nn.Module):
        def __init__(self, a):
            super().__init__()
            self.heads, self.kv, self.inner, c = a.heads, a.kv_heads, a.inner, a.width
            d = c // a.heads
            self.norm_1, self.norm_2 = nn.RMSNorm(c, 1e-5), nn.RMSNorm(c, 1e-5)
            self.qkv, self.o = nn.Linear(c, (a.heads + 2 * a.kv_heads) * d, bias=False), nn.Linear(c, c, bias=False)
            self.gate_up, self.down = nn.Linear(c, 2 * a.inner, bias=False), nn.Linear(a.inner, c, bias=False)

        def forward(self, x, cos, sin):
            b, t, c = x.shape
            d = c // self.heads
            y = self.qkv(self.norm_1(x)).view(b, t, -1, d).transpose(1, 2)
            q, k, v = y.split([self.heads, self.kv, self.kv], 1)
            q, k = (z * cos + torch.cat((-z[..., d // 2:], z[..., :d // 2]), -1) * sin for z in (q, k))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
            gate, up = self.gate_up(self.norm_2(x)).split(self.inner, 2)
            return x + self.down(F.silu(gate) * up)

    def __init__(self, a):
        super().__init__()
        self.wte = nn.Embedding(a.vocab, a.width)
        self.h = nn.ModuleList(Llama.Block(a) for _ in range(a.layers))
        self.norm = nn.RMSNorm(a.width, 1e-5)
        d = a.width // a.heads
        angle = torch.outer(torch.arange(a.seq), 10000.0 ** (-torch.arange(0, d, 2) / d)).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x, y):
        h = self.wte(x)
        for block in self.h:
            h = block(h, self.cos, self.sin)
        return F.cross_entropy((self.norm(h) @ self.wte.weight.T).flatten(0, 1), y.flatten())


class Bert(nn.Module):
    """As Hugging Face's, with a classifier of two classes: norms after each part, queries, keys and values in one product."""

    class Block(nn.Module):
        def __init__(self, a):
            super().__init__()
            self.heads, c = a.heads, a.width
            self.qkv, self.out, self.inner, self.outer = nn.Linear(c, 3 * c), nn.Linear(c, c), nn.Linear(c, a.inner), nn.Linear(a.inner, c)
            self.norm_1, self.norm_2 = nn.LayerNorm(c, 1e-12), nn.LayerNorm(c, 1e-12)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v)
            x = self.norm_1(x + self.out(y.transpose(1, 2).reshape(b, t, c)))
            return self.norm_2(x + self.outer(F.gelu(self.inner(x))))

    def __init__(self, a):
        super().__init__()
        self.wte, self.wpe, self.types, self.norm = nn.Embedding(a.vocab, a.width), nn.Embedding(a.seq, a.width), nn.Embedding(2, a.width), nn.LayerNorm(a.width, 1e-12)
        self.h = nn.ModuleList(Bert.Block(a) for _ in range(a.layers))
        self.pooler, self.classifier = nn.Linear(a.width, a.width), nn.Linear(a.width, 2)

    def forward(self, x, y):
        h = self.norm(self.wte(x) + self.types(torch.zeros_like(x)) + self.wpe(torch.arange(x.shape[1])))
        for block in self.h:
            h = block(h)
        return F.cross_entropy(self.classifier(torch.tanh(self.pooler(h[:, 0]))), y[:, 0] % 2)


class GPT(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(a.vocab, a.width), nn.Embedding(a.seq, a.width)
        self.h = nn.ModuleList(Block(a.width, a.heads) for _ in range(a.layers))
        self.ln_f = nn.LayerNorm(a.width)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            h = block(h)
        return F.cross_entropy((self.ln_f(h) @ self.wte.weight.T).flatten(0, 1), y.flatten())


p = argparse.ArgumentParser()
for name, default in dict(layers=6, width=384, heads=6, vocab=50257, batch=4, seq=256, steps=10, threads=1, kv_heads=3, inner=1024).items():
    p.add_argument("--" + name.replace("_", "-"), type=int, default=default)
p.add_argument("--model", choices=("gpt", "llama", "bert"), default="gpt")
for name in "compile", "bf16", "show-steps":
    p.add_argument("--" + name, action="store_true")
a = p.parse_args()
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
torch.set_num_threads(a.threads)
torch.set_flush_denormal(True)
torch.manual_seed(0)
model = dict(gpt=GPT, llama=Llama, bert=Bert)[a.model](a)
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if a.bf16:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
        model.register_comm_hook(None, bf16_compress_hook)
run = torch.compile(model) if a.compile else model
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ready, times = time.time() - start, []
for step in range(a.steps + 2):  # the first two are not counted: memory, compiler
    begin = time.time()
    x, y = torch.randint(0, a.vocab, (2, a.batch, a.seq))
    optimizer.zero_grad(set_to_none=True)
    run(x, y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    times.append(time.time() - begin)
    if a.show_steps and rank == 0:
        print("step", step, flush=True)
step = statistics.median(times[2:])
if rank == 0:
    print(json.dumps(dict(peer="torch " + torch.__version__, step_s=step, tokens_per_s=world * a.batch * a.seq / step,
                          peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, start_s=ready)))
if world > 1:
    torch.distributed.destroy_process_group()
