#!/usr/bin/env python3
"""Compares lockstep's tokenizers with Hugging Face's tokenizers, for the rules of many models (tokenizer_kinds.py).

    tests/data/check_tokenizers.py build/lib/liblockstep.so [--megabytes 4] [--kind NAME]... [--speed | --hostile]

For each kind: code points of all of Unicode in several surroundings, and random text of many scripts with added tokens in it:
encoding is equal; decoding is equal (except that what is not valid UTF-8 stays so); a saved folder is the same tokenizer for both
libraries. --speed measures one thread of each on the same text by turns, and tokenizers' batches with all threads.

--hostile: text that nobody means to write (tokenizer_kinds.hostile()), and bytes that are not UTF-8. tokenizers takes only valid text, so that each
invalid byte is given to it as a character of its own which no rule knows, and what it makes of that is given back as the byte.
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
from tokenizers import pre_tokenizers

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


def make(library, kind, folder, r):
    """A tokenizer of a kind, made at random: theirs, and ours from the file that it saves."""
    t = kinds.make(kind, r)
    path = folder / kind
    path.mkdir()
    t.save(str(path / "tokenizer.json"))
    return t, Lockstep(library, path)


def check(library, kind, megabytes, folder, seed):
    r = random.Random(seed)
    t, ls = make(library, kind, folder, r)
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


FIRST = 0xF700  # private characters, which are in no vocabulary: FIRST + byte stands for an invalid byte


def stand_in(data):
    """Bytes as text: each byte that is not valid UTF-8 is a private character."""
    return "".join(chr(FIRST + ord(c) - 0xDC00) if 0xDC80 <= ord(c) < 0xDD00 else c for c in data.decode("utf-8", "surrogateescape"))


def expected_ids(kind, t, data):
    """What tokenizers makes of any bytes."""
    text = stand_in(data)
    bad = {c for c in text if FIRST + 0x80 <= ord(c) < FIRST + 0x100}
    if not bad:
        return t.encode(text, add_special_tokens=False).ids
    if kind.startswith("bert"):
        return t.encode("".join("\ufffd" if c in bad else c for c in text), add_special_tokens=False).ids
    if kind in kinds.BYTE_LEVEL:  # word by word, because a vocabulary has parts of these characters, too
        pieces = t.pre_tokenizer.pre_tokenize_str(t.normalizer.normalize_str(text) if t.normalizer else text)
        mapped = {c: "".join(x for x, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(c)) for c in bad}
        alphabet = byte_alphabet()
        words = [piece for piece, _ in pieces]
        for c in bad:
            words = [w.replace(mapped[c], alphabet[ord(c) - FIRST]) for w in words]
        return [token.id for w in words for token in t.model.tokenize(w)]
    ids = t.encode(text, add_special_tokens=False).ids
    if t.token_to_id("<0x00>") is None:
        return ids
    for c in bad:  # byte_fallback
        three, one = ([t.token_to_id(f"<0x{b:02X}>") for b in x] for x in (c.encode(), [ord(c) - FIRST]))
        at = 0
        while at < len(ids):
            if ids[at : at + 3] == three:
                ids[at : at + 3] = one
            at += 1
    return ids


def byte_alphabet():
    """GPT-2's characters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def check_hostile(library, kind, megabytes, folder, seed):
    r = random.Random(seed)
    t, ls = make(library, kind, folder, r)
    added = [a.encode() for a in kinds.added_texts(t)]
    total, texts, invalid, left_out, bare = 0, 0, 0, 0, kind in ("gpt2", "llama3", "smollm2")
    while total < megabytes * 1e6:
        data = kinds.hostile(r)
        is_valid = data.decode("utf-8", "replace").encode() == data
        if not is_valid and kind in kinds.BYTE_LEVEL and any(a in data for a in added):
            left_out += 1
            continue
        try:
            theirs = expected_ids(kind, t, data)
        except BaseException as error:
            if "bad split" not in str(error).lower():
                raise
            left_out += 1
            continue
        ours = ls.encode(data)
        compare(kind, data, ours, theirs, t)
        if bare and not any(a in data for a in added) and ls.decode(ours) != data:
            sys.exit(f"{kind}: decoding gives other bytes: {data[:60]!r}...")
        total, texts, invalid = total + len(data), texts + 1, invalid + (not is_valid)
    print(f"{kind}: {texts} hostile texts, {total / 1e6:.1f} MB, {invalid} of them not valid UTF-8: encoded equally; {left_out} left out", flush=True)


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
    parser.add_argument("--hostile", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for kind in args.kind or kinds.KINDS:
            if args.speed:
                speed(args.library, kind, pathlib.Path(temporary))
            elif args.hostile:
                check_hostile(args.library, kind, args.megabytes, pathlib.Path(temporary), args.seed)
            else:
                check(args.library, kind, args.megabytes, pathlib.Path(temporary), args.seed)


main()
