#!/usr/bin/env python3
"""Compares lockstep's tokenizers with Hugging Face's tokenizers, for the rules of many models (tokenizer_kinds.py).

    tests/data/check_tokenizers.py build/lib/liblockstep.so [--megabytes 4] [--kind NAME]... [--speed]

For each kind: code points of all of Unicode in several surroundings, and random text of many scripts with added tokens in it:
encoding is equal; decoding is equal (except that what is not valid UTF-8 stays so); a saved folder is the same tokenizer for both
libraries. --speed measures one thread of each on the same text by turns, and tokenizers' batches with all threads.
"""
import argparse
import ctypes
import os
import pathlib
import random
import sys
import tempfile
import time

import numpy
import tokenizers

import tokenizer_kinds as kinds


class Lockstep:
    """The public interface through the shared library."""

    def __init__(self, library, name):
        self.lib = ctypes.CDLL(library)
        self.lib.ls_error.restype = ctypes.c_char_p
        self.tokenizer, self.encoder = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.ls_tokenizer_open(ctypes.byref(self.tokenizer), str(name).encode(), None))
        self.check(self.lib.ls_encoder_open(ctypes.byref(self.encoder), self.tokenizer))

    def check(self, status):
        assert status == 0, self.lib.ls_error().decode()

    def encode(self, data):
        tokens, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        self.check(self.lib.ls_encode(self.encoder, data, ctypes.c_size_t(len(data)), ctypes.byref(tokens), ctypes.byref(count)))
        return numpy.ctypeslib.as_array(tokens, (count.value,)).copy() if count.value else numpy.zeros(0, numpy.int32)

    def decode(self, tokens):
        text, count = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.lib.ls_tokenizer_decode(self.tokenizer, numpy.ascontiguousarray(tokens, numpy.int32).ctypes,
                                                ctypes.c_size_t(len(tokens)), ctypes.byref(text), ctypes.byref(count)))
        data = ctypes.string_at(text, count.value)
        ctypes.CDLL(None).free(text)
        return data

    def save(self, folder):
        self.check(self.lib.ls_tokenizer_save(self.tokenizer, str(folder).encode()))


def compare(kind, text, ours, theirs, t):
    if numpy.array_equal(ours, theirs):
        return
    i = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    show = lambda ids: [t.id_to_token(int(x)) for x in ids[max(i - 3, 0) : i + 5]]
    sys.exit(f"{kind}: token {i} of {len(theirs)} differs: {show(ours)}, tokenizers has {show(theirs)}; "
             f"decoded before: {t.decode(theirs[max(i-12,0):i])!r}; {text[:60]!r}...")


def same_text(ours, theirs):
    """Bytes that are not valid UTF-8 are U+FFFD there, one or several."""
    squeeze = lambda s: s.replace("\ufffd", "")
    text = ours.decode("utf-8", "replace")
    return text == theirs or ("\ufffd" in theirs and squeeze(text) == squeeze(theirs))


def check(library, kind, megabytes, folder, seed):
    r = random.Random(seed)
    t = kinds.make(kind, r)
    path = folder / kind
    path.mkdir()
    t.save(str(path / "tokenizer.json"))
    ls = Lockstep(library, path)
    total = decoded = exact = 0
    given_up = 0

    def one(text):
        nonlocal total, decoded, exact, given_up
        try:
            theirs = t.encode(text, add_special_tokens=False).ids
        except BaseException as error:  # it gives up where a token begins in spaces that belong to the one before
            if "bad split" not in str(error).lower():
                raise
            given_up += 1
            return
        data = text.encode()
        ours = ls.encode(data)
        compare(kind, text, ours, theirs, t)
        back, expected = ls.decode(ours), t.decode(theirs, skip_special_tokens=False)
        if not same_text(back, expected):
            a = back.decode("utf-8", "replace")
            i = next((i for i, (x, y) in enumerate(zip(a, expected)) if x != y), min(len(a), len(expected)))
            sys.exit(f"{kind}: decoding differs at {i}: {a[max(i-20,0):i+20]!r}, tokenizers {expected[max(i-20,0):i+20]!r}")
        # any tokens in any order, too; but bytes that are not valid UTF-8 stay what they are
        some = [i for i in (r.randrange(t.get_vocab_size()) for _ in range(50)) if not t.id_to_token(i).startswith("<0x")]
        if not same_text(ls.decode(some), t.decode(some, skip_special_tokens=False)):
            sys.exit(f"{kind}: decoding {some}: {ls.decode(some)!r}, tokenizers {t.decode(some, skip_special_tokens=False)!r}")
        exact += back.decode("utf-8", "replace") == expected
        decoded += 1
        total += len(data)

    for text in kinds.code_points(r):
        one(text)
    while total < megabytes * 1e6:
        for text in kinds.texts(r, t, 50, 400):
            one(text)
        for text in kinds.texts(r, t, 50, 4):
            one(text)
        one("" if r.random() < 0.5 else r.choice(["a", "-", " ", "\n", "0", "é", "▁", "\u0301", "中", "'"]) * r.randrange(3000))
    saved = folder / (kind + "-saved")
    ls.save(saved)
    again, theirs = Lockstep(library, saved), tokenizers.Tokenizer.from_file(str(saved / "tokenizer.json"))
    for text in kinds.texts(r, t, 20, 50):
        try:
            expected = t.encode(text, add_special_tokens=False).ids
        except BaseException:
            continue
        compare(kind + ", saved", text, again.encode(text.encode()), expected, t)
        assert theirs.encode(text, add_special_tokens=False).ids == expected
    print(f"{kind}: {total / 1e6:.1f} MB encoded equally; {decoded} texts decoded equally ({exact} of them to the byte); "
          f"{given_up} left out; saved folder equal", flush=True)


def prose(r):
    """Text with many different words: this project's sources and manual, Python's library, and random scripts."""
    files = sorted(pathlib.Path(__file__).resolve().parents[2].glob("docs/**/*.md")) + sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    text = "".join(f.read_text(errors="ignore") for f in files)[:3_000_000] + kinds.words(r, 60_000)
    return [text[i : i + 20_000] for i in range(0, len(text), 20_000)]


def speed(library, kind, folder):
    """The best of three, by the clock and by the time of the processor, which other programs hardly change."""
    r = random.Random(9)
    t = kinds.make(kind, r)
    t.save(str(folder / f"{kind}.json"))
    ls = Lockstep(library, folder / f"{kind}.json")
    parts = prose(r)
    data = [p.encode() for p in parts]
    mb = sum(map(len, data)) / 1e6
    ways = [lambda: [ls.encode(d) for d in data], lambda: [t.encode(p, add_special_tokens=False) for p in parts],
            lambda: t.encode_batch_fast(parts, add_special_tokens=False)]
    clock, processor = [1e9] * 3, [1e9] * 3
    for _ in range(3):
        for i, way in enumerate(ways):
            start, cpu = time.perf_counter(), time.process_time()
            way()
            clock[i], processor[i] = min(clock[i], time.perf_counter() - start), min(processor[i], time.process_time() - cpu)
    show = lambda i: f"{mb / clock[i]:.1f} MB/s (processor {processor[i]:.2f} s)"
    print(f"{kind}: {mb:.1f} MB: lockstep, one thread {show(0)}; tokenizers, one thread {show(1)}, {clock[1] / clock[0]:.1f} x by the clock, "
          f"{processor[1] / processor[0]:.1f} x by the processor; batch of {len(parts)} {show(2)}, {clock[2] / clock[0]:.1f} x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--kind", action="append", choices=kinds.KINDS)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--speed", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for kind in args.kind or kinds.KINDS:
            if args.speed:
                speed(args.library, kind, pathlib.Path(temporary))
            else:
                check(args.library, kind, args.megabytes, pathlib.Path(temporary), args.seed)


main()
