#!/usr/bin/env python3
"""Errors of norms, cross-entropy and attention beside torch's: both compute in float32 from the same input, and float64 is right. Ordinary rows, rows with a mean much larger than
their deviation, outliers; widths from 1 to 4096, vocabularies to 50,257. Through the public functions of lockstep/tensor.h. Needs torch:

  tests/tensor/check_errors.py build [SEED]

An error is the largest difference, as a share of the largest element (of its row: results and input gradients of norms), in units of 2^-24. Prints median and worst of each
kind; exits 1 if a median is more than 3 times torch's and 8 units. The worst are of gradients that are 0 but for rounding: norms of one or two elements."""
import ctypes as C
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
lib = C.CDLL(str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build") / "lib/liblockstep.so"))
rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
WIDTHS = (1, 2, 3, 5, 7, 16, 31, 33, 64, 65, 100, 127, 130, 255, 300, 513, 768, 1000, 1024, 1531, 2048, 3072, 4095, 4096)
ROWS, UNIT = 24, 2.0**-24


class Param(C.Structure):
    _fields_ = [("name", C.c_char_p), ("value", C.c_void_p), ("grad", C.c_void_p), ("dims", C.c_int), ("shape", C.c_int64 * 4), ("index", C.c_int), ("pending", C.c_int),
                ("written", C.c_bool), ("ready", C.c_bool), ("tape", C.c_void_p), ("half", C.c_void_p)]


class Tensor(C.Structure):
    _fields_ = [("data", C.POINTER(C.c_float))]


class CrossEntropy(C.Structure):
    _fields_ = [("targets", C.c_void_p), ("weights", C.c_void_p), ("divisor", C.c_double), ("row_losses", C.c_void_p), ("predictions", C.c_void_p), ("reserved", C.c_void_p * 2)]


class Attention(C.Structure):
    _fields_ = [("heads", C.c_int), ("kv_heads", C.c_int), ("full", C.c_bool), ("lengths", C.c_void_p), ("window", C.c_int64), ("dropout", C.c_float), ("cache", C.c_void_p),
                ("reserved", C.c_void_p * 2)]


for name in ("tape_input", "tape_param", "layer_norm", "rms_norm", "mul", "sum", "cross_entropy", "linear_cross_entropy", "attention"):
    getattr(lib, "ls_" + name).restype = C.POINTER(Tensor)
lib.ls_layer_norm.argtypes = [C.c_void_p, C.POINTER(Tensor), C.c_void_p, C.c_void_p, C.c_float]
lib.ls_rms_norm.argtypes = [C.c_void_p, C.POINTER(Tensor), C.c_void_p, C.c_float]
lib.ls_error.restype = C.c_char_p
tape = C.c_void_p()


def ok(status):
    if status:
        sys.exit(lib.ls_error().decode())


def ours(arrays, build, shape, dy=None):
    """The result of build(x, parameters) and the gradients of all arrays; x is the first. dy: the result's gradient, None: the result is the loss."""
    params, grads = (Param * len(arrays))(), [np.zeros_like(a) for a in arrays]
    for p, a, g in zip(params, arrays, grads):
        p.name, p.value, p.grad, p.dims, p.shape = b"p", a.ctypes.data, g.ctypes.data, a.ndim, (*a.shape, *[0] * (4 - a.ndim))
    at = [C.byref(params, i * C.sizeof(Param)) for i in range(len(arrays))]
    ok(lib.ls_tape_begin(tape, params, len(arrays), None))
    y = build(lib.ls_tape_param(tape, at[0]), at)
    ok(lib.ls_tape_status(tape))
    result = np.ctypeslib.as_array(y.contents.data, shape).copy()
    if dy is not None:
        y = lib.ls_sum(tape, lib.ls_mul(tape, y, lib.ls_tape_input(tape, C.c_void_p(dy.ctypes.data), dy.ndim, (C.c_int64 * 4)(*dy.shape))))
    ok(lib.ls_tape_backward(tape, y))
    return [result, *grads]


def torchs(arrays, build, dy=None, kind=torch.float32):
    arrays = [torch.tensor(a).to(kind).requires_grad_() for a in arrays]
    y = build(*arrays)
    y.backward(None if dy is None else torch.tensor(dy).to(kind))
    return [y.detach().numpy(), *(a.grad.numpy() for a in arrays)]


errors = {}


def note(kind, names, arrays, mine, theirs, shape, dy=None, rows=()):
    right = torchs(arrays, theirs, dy, torch.float64)
    for name, *both, r in zip(names, ours(arrays, mine, shape, dy), torchs(arrays, theirs, dy), right):
        largest = np.abs(r).max(-1, keepdims=True) if name in rows else np.abs(r).max()
        largest = np.where(largest == 0, 1, largest)
        errors.setdefault((kind, name), []).append([(np.abs(a.reshape(r.shape) - r) / largest).max() / UNIT for a in both])


def normal(mean, deviation, *shape):
    return rng.normal(mean, deviation, shape).astype(np.float32)


def norms(width, kind, mean, deviation, eps):
    x, w, b, dy = normal(mean, deviation, ROWS, width), normal(1, 0.1, width), normal(0, 0.1, width), normal(0, 1, ROWS, width)
    if kind == "outlier":
        x[:, width // 3] *= 100
    note("layer norm, " + kind, ("y", "dx", "dw", "db"), [x, w, b], lambda t, p: lib.ls_layer_norm(tape, t, p[1], p[2], eps),
         lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, float(np.float32(eps))), x.shape, dy, ("y", "dx"))
    note("RMS norm, " + kind, ("y", "dx", "dw"), [x, w], lambda t, p: lib.ls_rms_norm(tape, t, p[1], eps),
         lambda x, w: F.rms_norm(x, x.shape[-1:], w, float(np.float32(eps))), x.shape, dy, ("y", "dx"))


def cross_entropy(vocabulary, kind, deviation):
    targets = rng.integers(vocabulary, size=ROWS).astype(np.int32)
    options, wanted = CrossEntropy(targets=targets.ctypes.data), torch.tensor(targets).long()
    note("cross-entropy, " + kind, ("loss", "dx"), [normal(0, deviation, ROWS, vocabulary)], lambda t, p: lib.ls_cross_entropy(tape, t, C.byref(options)),
         lambda x: F.cross_entropy(x, wanted), (), rows=("dx",))
    note("fused head, " + kind, ("loss", "dx", "dw"), [normal(0, 1, ROWS, 64), normal(0, deviation / 8, vocabulary, 64)],
         lambda t, p: lib.ls_linear_cross_entropy(tape, t, p[1], C.byref(options)), lambda x, w: F.cross_entropy(x @ w.T, wanted), ())


def attention(length, heads, size, full, kind, deviation):
    def theirs(qkv):
        q, k, v = (s.reshape(2, length, heads, size).transpose(1, 2) for s in qkv.split(heads * size, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=not full).transpose(1, 2).reshape(2, length, -1)
    note("attention, " + kind, ("y", "dqkv"), [normal(0, deviation, 2, length, 3 * heads * size)],
         lambda t, p: lib.ls_attention(tape, t, C.byref(Attention(heads=heads, full=full))), theirs, (2, length, heads * size), normal(0, 1, 2, length, heads * size))


ok(lib.ls_tape_open(C.byref(tape), None))
for width in WIDTHS:
    for kind, mean, deviation in (("ordinary", 0, 1), ("mean 10", 10, 1), ("mean 100", 100, 1), ("mean 1000", 1000, 1), ("deviation 0.001", 1, 1e-3), ("outlier", 0, 1)):
        norms(width, kind, mean, deviation, 1e-5)
for vocabulary in (*WIDTHS[1:], 8192, 50257):
    for kind, deviation in (("fresh weights", 0.1), ("ordinary", 3), ("peaked", 30)):
        cross_entropy(vocabulary, kind, deviation)
for length, heads, size in ((1, 1, 8), (7, 2, 5), (37, 5, 26), (128, 4, 64), (300, 2, 33)):
    for kind, deviation in (("ordinary", 1), ("peaked", 5)):
        for full in (False, True):
            attention(length, heads, size, full, kind, deviation)
bad = False
print(f"{'':32} cases {'median':>8} {'worst':>9}   torch: {'median':>8} {'worst':>9}")
for (kind, name), found in errors.items():
    (mine, most), (theirs, their_most) = ((np.median(e), max(e)) for e in zip(*found))
    worse = mine > 3 * theirs and mine > 8
    bad |= worse
    print(f"{kind:27} {name:5} {len(found):4} {mine:8.1f} {most:9.1f}          {theirs:8.1f} {their_most:9.1f}{'  WORSE' if worse else ''}")
sys.exit(int(bad))
