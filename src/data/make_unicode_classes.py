#!/usr/bin/env python3
"""Writes unicode_classes.c: for every code point, whether it is a letter, a number, white space or none of them.

The classes are asked from the engine that the reference tokenizer splits with, so that they are of the same edition of
Unicode. Needs tiktoken; run by hand when its edition changes:  src/data/make_unicode_classes.py
"""
import pathlib
import subprocess

import tiktoken

PATTERNS = {1: r"\p{L}", 2: r"\p{N}", 3: r"\s"}
BLOCK = 256


def members(pattern):
    """The characters that the engine finds with `pattern` in a text that has all of them once."""
    text = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    encoding = tiktoken.Encoding("all", pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)},
                                 special_tokens={})
    return bytes(encoding.encode_ordinary(text)).decode()


def main():
    classes = bytearray(0x110000)
    for number, pattern in PATTERNS.items():
        for c in members(pattern):
            classes[ord(c)] = number
    blocks, index = {}, []
    for start in range(0, 0x110000, BLOCK):
        packed = tuple(sum(classes[start + i + k] << 2 * k for k in range(4)) for i in range(0, BLOCK, 4))
        index.append(blocks.setdefault(packed, len(blocks)))
    counts = ", ".join(f"{classes.count(n)} {name}" for n, name in ((1, "letters"), (2, "numbers"), (3, "white space")))
    lines = ["/* Made by make_unicode_classes.py; do not edit. The classes of Unicode as tiktoken " + tiktoken.__version__,
             f" * sees them: {counts}. */", '#include "data/split.h"', "",
             f"const uint8_t ls__class_index[{len(index)}] = {{ {', '.join(map(str, index))} }};", "",
             f"const uint8_t ls__class_blocks[{len(blocks)}][64] = {{"]
    lines += [f"    {{ {', '.join(map(str, b))} }}," for b in blocks] + ["};", ""]
    path = pathlib.Path(__file__).with_name("unicode_classes.c")
    path.write_text("\n".join(lines))
    subprocess.run(["clang-format", "-i", path], check=True)


main()
