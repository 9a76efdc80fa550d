#!/usr/bin/env python3
"""Writes unicode_forms.c: what normalizers and pre-tokenizers of Hugging Face's tokenizers see in each code point. The library is
asked, because its tables are of several versions of Unicode. Run once, with tokenizers installed:

    src/data/make_unicode_forms.py
"""
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
nfd, nfc, lower = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str, normalizers.Lowercase().normalize_str
clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False).normalize_str
cjk = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False).normalize_str
accents = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False).normalize_str
digits, bert = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.BertPreTokenizer()
UNSTABLE, CHANGES, REMOVED, SPACE, CJK, MARK, PUNCTUATION, DIGIT = (1 << i for i in range(8))

# Combining classes: the library has those of characters that it reorders.
classes = {}
for c in CODES:
    value = unicodedata.combining(chr(c))
    if not value:
        continue
    other = "\u0334" if value > 1 else "\u0301"  # of class 1, of class 230
    before, after = (chr(c) + other, other + chr(c)) if value > 1 else (other + chr(c), chr(c) + other)
    if nfd("a" + before) == "a" + nfd(after):
        classes[c] = value

hangul = range(0xAC00, 0xAC00 + 11172)
decompositions, compositions = [], []
for c in CODES:
    if c in hangul or nfd(chr(c)) == chr(c):
        continue
    parts = [int(x, 16) for x in unicodedata.decomposition(chr(c)).split()]
    assert 1 <= len(parts) <= 2 and nfd("".join(map(chr, parts))) == nfd(chr(c)), hex(c)
    decompositions.append((c, *parts, 0)[:3])
    if len(parts) == 2 and nfc("".join(map(chr, parts))) == chr(c):
        compositions.append((*parts, c))
compositions.sort()
seconds = {b for _, b, _ in compositions} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))


def flags_of(c):
    s = chr(c)
    first = ord(nfd(s)[0])
    flags = UNSTABLE if classes.get(first) or first in seconds else 0
    flags |= CHANGES if nfc(s) != s else 0
    cleaned = clean(f"a{s}b")
    flags |= REMOVED if cleaned == "ab" else 0
    flags |= CJK if cjk(s) == f" {s} " else 0
    flags |= MARK if accents(s) == "" else 0
    flags |= DIGIT if len(digits.pre_tokenize_str(f"a{s}b")) == 3 else 0
    pieces = [p for p, _ in bert.pre_tokenize_str(f"a{s}b")]
    assert cleaned == ("ab" if flags & REMOVED else "a b" if len(pieces) == 2 else f"a{s}b"), hex(c)
    return flags | (PUNCTUATION if len(pieces) == 3 else SPACE if len(pieces) == 2 else 0)


table = [0 if 0xD800 <= c < 0xE000 else flags_of(c) for c in range(0x110000)]
blocks, index = [], []
for i in range(0, 0x110000, 256):
    block = table[i : i + 256]
    if block not in blocks:
        blocks.append(block)
    index.append(blocks.index(block))
assert len(blocks) <= 256

lowered = []
for c in CODES:
    if lower(chr(c)) != chr(c):
        lowered.append((c, *map(ord, lower(chr(c))), 0)[:3])
        assert len(lower(chr(c))) <= 2

ranges = []
for c in sorted(classes):
    if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == classes[c]:
        ranges[-1][1] = c
    else:
        ranges.append([c, c, classes[c]])


def rows(values, per_line):
    text = [", ".join(map(str, v)) if isinstance(v, (tuple, list)) else str(v) for v in values]
    text = [f"{{ {t} }}" if isinstance(v, (tuple, list)) else t for t, v in zip(text, values)]
    return "".join("    " + ", ".join(text[i : i + per_line]) + ",\n" for i in range(0, len(text), per_line))


out = [f"""/* Made by make_unicode_forms.py; do not edit. What tokenizers {tokenizers.__version__} sees in each code point: {len(classes)} combining
 * classes, {len(decompositions)} decompositions, {len(compositions)} compositions, {len(lowered)} with another lower case. */
#include "data/unicode.h"

/* clang-format off */
const uint8_t ls__form_index[{len(index)}] = {{
{rows(index, 32)}}};
const uint8_t ls__form_blocks[{len(blocks)}][256] = {{
"""]
for block in blocks:
    out.append("    {\n" + rows(block, 32) + "    },\n")
out.append("};\n")
for name, values, per_line in (("combining", ranges, 6), ("decompositions", decompositions, 5), ("compositions", compositions, 5),
                               ("lowered", lowered, 6)):
    out.append(f"const size_t ls__{name}_count = {len(values)};\nconst int32_t ls__{name}[{len(values)}][3] = {{\n"
               f"{rows(values, per_line)}}};\n")
out.append("/* clang-format on */\n")
path = pathlib.Path(__file__).parent / "unicode_forms.c"
path.write_text("".join(out))
print(f"{path}: {len(blocks)} blocks, {len(ranges)} ranges", file=sys.stderr)
