#!/usr/bin/env python3
"""Writes unicode_words.c: the code points that belong to words (\\w) as Hugging Face's tokenizers see them, asked one by one, because
its edition of Unicode is that of its regular expressions. Needs tokenizers; run by hand when its edition changes."""
import pathlib

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.add_tokens([AddedToken("<w>", single_word=True, normalized=False)])
W = tokenizer.token_to_id("<w>")

ranges = []
points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
for first in range(0, len(points), 4096):
    part = points[first:first + 4096]
    for c, e in zip(part, tokenizer.encode_batch([chr(c) + "<w>" for c in part], add_special_tokens=False)):
        if e.ids[-1] == W:
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
lines = [f"/* Made by make_unicode_words.py; do not edit. What belongs to a word as tokenizers {tokenizers.__version__} sees it:",
         f" * {sum(b - a + 1 for a, b in ranges)} code points in {len(ranges)} ranges, first and last of each. */",
         '#include "data/split.h"', "", f"const size_t ls__word_range_count = {len(ranges)};",
         f"const int32_t ls__word_ranges[{len(ranges)}][2] = {{"]
row = "   "
for a, b in ranges:
    item = f" {{ {a}, {b} }},"
    if len(row) + len(item) > 120:
        lines.append(row)
        row = "   "
    row += item
lines += [row, "};", ""]
pathlib.Path(__file__).with_name("unicode_words.c").write_text("\n".join(lines))
