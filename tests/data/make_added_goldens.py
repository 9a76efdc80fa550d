#!/usr/bin/env python3
"""Writes added_tokenizer.json and added_goldens.txt: texts with added tokens of every kind in them, and the ids that Hugging Face's
tokenizers give them. Each line is the text in hexadecimal, then the ids. Run once, with tokenizers installed:

    tests/data/make_added_goldens.py
"""
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

here = pathlib.Path(__file__).parent
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = [("e", "r"), ("t", "h"), ("th", "e"), ("Ġ", "the"), ("w", "o"), ("wo", "r"), ("wor", "d"), ("Ġ", "f"), ("Ġf", "o")]
vocab = {c: i for i, c in enumerate(ALPHABET)}
for a, b in MERGES:
    vocab[a + b] = len(vocab)
vocab["<|endoftext|>"] = len(vocab)
tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=MERGES))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken("<|endoftext|>"), AddedToken("<|im_start|>"), AddedToken("<|im"),
                              AddedToken("<mask>", lstrip=True), AddedToken("<r>", rstrip=True),
                              AddedToken("<b>", lstrip=True, rstrip=True), AddedToken("<w>", single_word=True)])
tokenizer.add_tokens([AddedToken("foo bar"), AddedToken("word", single_word=True), AddedToken(" x "), AddedToken("é"),
                      AddedToken("the", normalized=False, single_word=True), AddedToken("<|im_start|>system"),
                      AddedToken(" fo"), AddedToken("bar", rstrip=True, normalized=False), AddedToken("日本"),
                      AddedToken("\n\n", lstrip=True), AddedToken("  ", lstrip=True, rstrip=True)])
tokenizer.save(str(here / "added_tokenizer.json"), pretty=False)

PARTS = ["<|endoftext|>", "<|im_start|>", "<|im", "<|im_start|>system", "<mask>", "<r>", "<b>", "<w>", "foo bar", "foo", "bar",
          "word", "words", " x ", "x", "é", "the", " the", "then", "日本", "日", " ", "  ", "\n", "\n\n", "\t", "\u00a0", "\u3000", "a", "1",
          "_", ".", "'s", " fo", "<", "|", "<|", "<|endoftext|", "ß", "🙂", "²"]
random.seed(4)
lines = []
while len(lines) < 400:
    text = "".join(random.choice(PARTS) for _ in range(random.randrange(0, 12)))
    try:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
    except BaseException as error:  # it gives up where a token begins in spaces that belong to the one before
        if "bad split" not in str(error):
            raise
        continue
    lines.append(" ".join([text.encode().hex() or "-", *map(str, ids)]))
(here / "added_goldens.txt").write_text("\n".join(lines) + "\n")
