#!/usr/bin/env python3
"""Writes kinds/NAME.json, small tokenizers with the rules of known models, and kinds/NAME.txt: texts, their ids and what those decode
to, by Hugging Face's tokenizers. Each line is the text in hexadecimal, the ids, "=" and the decoded text in hexadecimal. Run once, with
tokenizers installed:

    tests/data/make_tokenizer_goldens.py
"""
import pathlib
import random

import tokenizer_kinds as kinds

folder = pathlib.Path(__file__).parent / "kinds"
folder.mkdir(exist_ok=True)
for kind in kinds.KINDS:
    r = random.Random(11)
    t = kinds.make(kind, r, 60_000, 700)
    t.save(str(folder / f"{kind}.json"), pretty=False)
    lines = []
    while len(lines) < 60:
        text = next(kinds.texts(r, t, 1, 12))
        try:
            ids = t.encode(text, add_special_tokens=False).ids
        except BaseException as error:  # it gives up where a token begins in spaces that belong to the one before
            if "bad split" not in str(error).lower():
                raise
            continue
        decoded = t.decode(ids, skip_special_tokens=False)
        if "\ufffd" in decoded or len(text) > 500:  # bytes that are not valid UTF-8, which we keep
            continue
        lines.append(" ".join([text.encode().hex() or "-", *map(str, ids), "=", decoded.encode().hex() or "-"]))
    (folder / f"{kind}.txt").write_text("\n".join(lines) + "\n")
