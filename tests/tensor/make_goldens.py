#!/usr/bin/env python3
"""Writes tests/tensor/goldens.bin: what PyTorch computes for each case of cases.c, and for a 4-layer GPT-2.

  python3 tests/tensor/make_goldens.py [OUT]      needs torch and numpy; the tests need only the file

Inputs are not stored: both sides make them with the same small hash (test_value in harness.h). The file is a row of records,
each a line of text "name count\\n" and then `count` float32, little-endian.
"""
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F


def values(seed, count):
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed * 40503 + 12345)
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x7FEB352D)
        x ^= x >> np.uint32(15)
        x *= np.uint32(0x846CA68B)
        x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)


def tensor(seed, shape, scale, shift):
    v = values(seed, int(np.prod(shape))) * np.float32(scale) + np.float32(shift)
    return torch.tensor(v.reshape(shape))


TOKENS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])
TARGETS = torch.tensor([4, 0, 6, 2, 2, 5])
WEIGHTS = torch.tensor([1, 0.5, 0, 2, 1, 1])


def attention(qkv, heads, causal, lengths=None):
    b, t, c3 = qkv.shape
    q, k, v = (y.view(b, t, heads, -1).transpose(1, 2) for y in qkv.split(c3 // 3, 2))
    seen = torch.arange(t) < torch.tensor(lengths)[:, None, None, None] if lengths else None
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=causal)
    return y.transpose(1, 2).reshape(b, t, c3 // 3)


def grouped(qkv, heads, kv, window=None):
    b, t, c = qkv.shape
    d = c // (heads + 2 * kv)
    q, k, v = (y.view(b, t, -1, d).transpose(1, 2) for y in qkv.split([heads * d, kv * d, kv * d], 2))
    k, v = (y.repeat_interleave(heads // kv, 1) for y in (k, v))
    i = torch.arange(t)
    seen = (i[None, :] <= i[:, None]) & (i[None, :] > i[:, None] - (window or t))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).reshape(b, t, heads * d)


def images(function):
    """Channels last outside, first inside, as torch has them."""
    return lambda x, *rest: function(x.permute(0, 3, 1, 2), *rest).permute(0, 2, 3, 1)


def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


def rotary(x, heads, frequencies, first):
    """Heads at the front of each row; first: a position per sequence."""
    d = 2 * len(frequencies)
    frequencies = torch.tensor(frequencies, dtype=torch.float32)
    position = torch.tensor(first)[:, None] + torch.arange(x.shape[1])
    angle = (position[:, :, None].float() * frequencies).double()[:, :, None, :]
    h = x[..., :heads * d].reshape(*x.shape[:2], heads, d)
    a, b = h[..., :d // 2], h[..., d // 2:]
    turned = torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
    return torch.cat([turned.flatten(2), x[..., heads * d:]], -1)


def llama3(theta, d, factor, low, high, context):
    """As transformers computes them."""
    out = []
    for i in range(d // 2):
        f = theta ** (-2 * i / d)
        length = 2 * np.pi / f
        if length > context / low:
            out.append(f / factor)
        elif length < context / high:
            out.append(f)
        else:
            smooth = (context / length - low) / (high - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return out


def head_norm(x, q, k):
    h = x[..., :28].reshape(-1, 4, 7)
    h = h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5) * torch.stack([q, q, q, k])
    return torch.cat([h.flatten(1), x[..., 28:]], -1)


def rms_norm(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def weighted(x):
    return (F.cross_entropy(x, TARGETS, reduction="none") * WEIGHTS).sum() / 7.5


# name: (shapes with scale and shift, function). The order of arguments is that of the case's parameters.
CASES = {
    "linear": ([((2, 3, 5), 1, 0), ((5, 7), 1, 0), ((7,), 1, 0)], lambda x, w, b: x @ w + b),
    "linear_plain": ([((6, 5), 1, 0), ((5, 7), 1, 0)], lambda x, w: x @ w),
    "linear_out_in": ([((6, 5), 1, 0), ((7, 5), 1, 0), ((7,), 1, 0)], F.linear),
    "linear_gelu": ([((6, 5), 1, 0), ((5, 40), 1, 0), ((40,), 1, 0)], lambda x, w, b: F.gelu(x @ w + b, approximate="tanh")),
    "linear_all": ([((6, 5), 1, 0), ((5, 7), 1, 0), ((7,), 1, 0), ((6, 7), 1, 0)], lambda x, w, b, y: F.silu(x @ w + b) + y),
    "linear_of_gelu": ([((6, 5), 3, 0), ((5, 7), 1, 0), ((7,), 1, 0)], lambda x, w, b: F.gelu(x, approximate="tanh") @ w + b),
    "linear_of_silu_out_in": ([((6, 5), 3, 0), ((7, 5), 1, 0)], lambda x, w: F.linear(F.silu(x), w)),
    "linear_of_gelu_times_input": ([((31, 5), 3, 0), ((5, 5), 1, 0), ((5,), 1, 0)], lambda x, w, b: (F.gelu(x) @ w + b) * x),
    "embedding": ([((10, 5), 1, 0), ((9, 5), 1, 0)], lambda e, p: e[TOKENS.view(2, 6)] + p[2:8]),
    "embedding_tokens_only": ([((10, 5), 1, 0)], lambda e: e[TOKENS.view(3, 4)]),
    "layer_norm": ([((70, 37), 2, 0.5), ((37,), 1, 1), ((37,), 1, 0)], lambda x, w, b: F.layer_norm(x, (37,), w, b, 1e-5)),
    "rms_norm": ([((70, 37), 2, 0.5), ((37,), 1, 1)], rms_norm),
    "gelu_tanh": ([((3, 50), 5, 0)], lambda x: F.gelu(x, approximate="tanh")),
    "gelu_erf": ([((3, 50), 5, 0)], F.gelu),
    "silu": ([((3, 50), 5, 0)], F.silu),
    "relu": ([((3, 50), 5, 0)], F.relu),
    "tanh": ([((3, 50), 5, 0)], torch.tanh),
    "select_rows": ([((2, 3, 5), 1, 0)], lambda x: x.view(6, 5)[[5, 1, 5, 0, 2, 3]] + F.silu(x.view(6, 5))),
    "select_rows_alone": ([((2, 3, 5), 1, 0)], lambda x: x.view(6, 5)[[4, 0]]),
    "add": ([((3, 20), 1, 0), ((3, 20), 1, 0)], lambda a, b: a + b),
    "mul": ([((3, 20), 1, 0), ((3, 20), 1, 0)], lambda a, b: a * b),
    "x_thrice": ([((3, 20), 1, 0)], lambda x: x + x * x),
    "shared_gradient": ([((3, 20), 1, 0)], lambda x: x + 0.5 * x + F.silu(x)),
    "scale": ([((3, 20), 1, 0)], lambda x: x * -1.7),
    "mean": ([((3, 20), 1, 0)], lambda x: x.mean()),
    "sum": ([((3, 20), 1, 0)], lambda x: x.sum()),
    "attention": ([((2, 70, 24), 2, 0)], lambda x: attention(x, 2, True)),
    "attention_full": ([((2, 9, 27), 2, 0)], lambda x: attention(x, 3, False)),
    "attention_lengths": ([((3, 90, 27), 2, 0)], lambda x: attention(x, 3, False, [90, 35, 1])),
    "attention_grouped": ([((2, 75, 16), 2, 0)], lambda x: grouped(x, 4, 2)),
    "attention_window": ([((2, 90, 20), 2, 0)], lambda x: grouped(x, 3, 1, 25)),
    "attention_window_alone": ([((1, 83, 18), 2, 0)], lambda x: grouped(x, 2, 2, 5)),
    "swiglu": ([((3, 50), 5, 0)], lambda x: F.silu(x[:, :25]) * x[:, 25:]),
    "linear_joint": ([((2, 3, 5), 1, 0), ((4, 5), 1, 0), ((2, 5), 1, 0), ((3, 5), 1, 0)],
                     lambda x, a, b, c: torch.cat([F.linear(x, a), F.linear(x, b), F.linear(x, c)], -1)),
    "linear_joint_bias": ([((70, 5), 1, 0), ((4, 5), 1, 0), ((4,), 1, 0)], F.linear),
    "linear_joint_shared": ([((6, 5), 1, 0), ((4, 5), 1, 0)], lambda x, w: torch.cat([F.linear(x, w), F.linear(x, w)], -1)),
    "rotary": ([((2, 5, 14), 1, 0)], lambda x: rotary(x, 2, [100 ** (-i / 3) for i in range(3)], [3, 3])),
    "rotary_llama3": ([((2, 5, 4), 1, 0), ((13, 4), 1, 0)], lambda x, w: rotary(F.linear(x, w), 1, llama3(100, 12, 8, 1, 4, 32), [3, 0])),
    "head_norm": ([((70, 33), 2, 0.5), ((7,), 1, 1), ((7,), 1, 1)], head_norm),
    "block": ([((6, 5), 1, 0), ((5,), 1, 1), ((5, 5), 1, 0)], lambda x, w, v: x * (F.gelu(rms_norm(x, w) @ v) + x)),
    "cross_entropy": ([((6, 7), 3, 0)], lambda x: F.cross_entropy(x, TARGETS)),
    "cross_entropy_weighted": ([((6, 7), 3, 0)], weighted),
    "conv2d": ([((3, 5, 6, 2), 1, 0), ((4, 2, 3, 3), 1, 0), ((4,), 1, 0)], images(lambda x, w, b: F.conv2d(x, w, b, padding=1))),
    "conv2d_stride": ([((11, 6, 7, 2), 1, 0), ((3, 2, 3, 2), 1, 0)], images(lambda x, w: F.conv2d(x, w, stride=2, padding=1))),
    "conv2d_wide": ([((2, 9, 8, 3), 1, 0), ((35, 3, 7, 7), 1, 0)], images(lambda x, w: F.conv2d(x, w, stride=2, padding=3))),
    "conv2d_winograd": ([((2, 5, 7, 32), 1, 0), ((48, 32, 3, 3), 0.3, 0), ((48,), 1, 0)], images(lambda x, w, b: F.conv2d(x, w, b, padding=1))),
    "conv2d_pointwise": ([((2, 4, 5, 3), 1, 0), ((4, 3, 1, 1), 1, 0), ((4,), 1, 0)], images(F.conv2d)),
    "conv2d_pointwise_stride": ([((2, 5, 4, 3), 1, 0), ((4, 3, 1, 1), 1, 0)], images(lambda x, w: F.conv2d(x, w, stride=2))),
    "batch_norm": ([((3, 4, 5, 3), 2, 0.5), ((3,), 1, 1), ((3,), 1, 0)], images(batch_norm)),
    "batch_norm_relu": ([((3, 4, 5, 3), 2, 0.5), ((3,), 1, 1), ((3,), 1, 0)], images(lambda x, w, b: F.relu(batch_norm(x, w, b)))),
    "batch_norm_block": ([((3, 4, 5, 3), 2, 0.5), ((3,), 1, 1), ((3,), 1, 0), ((3, 4, 5, 3), 2, 0.5)],
                         lambda x, w, b, y: F.relu(images(batch_norm)(x, w, b) + y) * y),
    "max_pool2d": ([((2, 6, 4, 2), 10, 0)], images(lambda x: F.max_pool2d(x, 2, 2))),
    "max_pool2d_overlapping": ([((2, 7, 5, 2), 10, 0)], images(lambda x: F.max_pool2d(x, 3, 2))),
    "max_pool2d_padded": ([((2, 6, 5, 2), 10, 0)], images(lambda x: F.max_pool2d(x, 3, 2, 1))),
    "avg_pool2d": ([((2, 7, 6, 2), 1, 0)], images(lambda x: F.avg_pool2d(x, 3, 2, 1))),
    "global_avg_pool2d": ([((3, 4, 5, 2), 1, 0)], lambda x: x.mean((1, 2))),
    "class_token": ([((3, 2, 2, 5), 1, 0), ((1, 1, 5), 1, 0), ((1, 5, 5), 1, 0)], lambda x, token, p: torch.cat((token.expand(3, 1, 5), x.reshape(3, 4, 5)), 1) + p),
}


def record(out, name, x):
    x = x.detach().to(torch.float32).contiguous().numpy().reshape(-1)
    out.write(f"{name} {x.size}\n".encode() + x.astype("<f4").tobytes())


def write_case(out, name, shapes, function):
    """Forward and gradients in double, from the float32 inputs: the truth that both sides approximate."""
    params = [tensor(i + 1, *s).double().requires_grad_() for i, s in enumerate(shapes)]
    y = function(*params)
    weights = torch.tensor(values(99, y.numel())).double().view(y.shape)
    (y * weights).sum().backward()
    record(out, name, y)
    for i, p in enumerate(params):
        record(out, f"{name}.{'xabc'[i]}", p.grad)


# ---- A GPT-2 of 4 layers, 16 wide, 2 heads, vocabulary 61, batch 2 x 12. See test_gpt.c.

LAYERS, C, HEADS, V, B, T = 4, 16, 2, 61, 2, 12
BLOCK = [("ln_1.weight", (C,)), ("ln_1.bias", (C,)), ("attn.c_attn.weight", (C, 3 * C)), ("attn.c_attn.bias", (3 * C,)),
         ("attn.c_proj.weight", (C, C)), ("attn.c_proj.bias", (C,)), ("ln_2.weight", (C,)), ("ln_2.bias", (C,)),
         ("mlp.c_fc.weight", (C, 4 * C)), ("mlp.c_fc.bias", (4 * C,)), ("mlp.c_proj.weight", (4 * C, C)), ("mlp.c_proj.bias", (C,))]


def gpt_params():
    names = [("wte.weight", (V, C)), ("wpe.weight", (T, C))]
    for layer in range(LAYERS):
        names += [(f"h.{layer}.{n}", s) for n, s in BLOCK]
    names += [("ln_f.weight", (C,)), ("ln_f.bias", (C,))]
    params = {}
    for i, (name, shape) in enumerate(names):
        is_gain = len(shape) == 1 and name.endswith("weight")
        params[name] = tensor(100 + i, shape, 0.2, 1 if is_gain else 0).requires_grad_()
    return params


def gpt_loss(p, tokens, targets):
    x = p["wte.weight"][tokens] + p["wpe.weight"][:T]
    for layer in range(LAYERS):
        q = {n: p[f"h.{layer}.{n}"] for n, _ in BLOCK}
        h = F.layer_norm(x, (C,), q["ln_1.weight"], q["ln_1.bias"], 1e-5)
        h = attention(h @ q["attn.c_attn.weight"] + q["attn.c_attn.bias"], HEADS, True)
        x = x + h @ q["attn.c_proj.weight"] + q["attn.c_proj.bias"]
        h = F.layer_norm(x, (C,), q["ln_2.weight"], q["ln_2.bias"], 1e-5)
        h = F.gelu(h @ q["mlp.c_fc.weight"] + q["mlp.c_fc.bias"], approximate="tanh")
        x = x + h @ q["mlp.c_proj.weight"] + q["mlp.c_proj.bias"]
    x = F.layer_norm(x, (C,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    return F.cross_entropy((x @ p["wte.weight"].T).view(-1, V), targets.view(-1))


def gpt_tokens(seed):
    v = values(seed, B * T).astype(np.float64)
    return torch.tensor(((v + 1) / 2 * V).astype(np.int64)).view(B, T)


def write_gpt(out):
    p = gpt_params()
    optimizer = torch.optim.AdamW(p.values(), lr=1e-2, weight_decay=0.01)
    losses = []
    for step in range(10):
        optimizer.zero_grad()
        loss = gpt_loss(p, gpt_tokens(200 + step), gpt_tokens(300 + step))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            for name, q in p.items():
                record(out, f"gpt.{name}", q.grad)
        optimizer.step()
    record(out, "gpt.loss", torch.tensor(losses[:1]))
    record(out, "gpt.losses", torch.tensor(losses))


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("goldens.bin")
    torch.set_num_threads(1)
    with open(path, "wb") as out:
        for name, (shapes, function) in CASES.items():
            write_case(out, name, shapes, function)
        write_gpt(out)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
