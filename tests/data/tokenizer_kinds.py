"""Tokenizers with the rules of known models, and small vocabularies learned from text of many scripts; and such text. For
check_tokenizers.py and make_tokenizer_goldens.py; needs Hugging Face's tokenizers."""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SCRIPTS = [(0x20, 0x7F), (0x61, 0x7B), (0x61, 0x7B), (0xA0, 0x250), (0x370, 0x400), (0x400, 0x530), (0x5D0, 0x5EB), (0x600, 0x700),
           (0x900, 0x980), (0xE00, 0xE60), (0x10A0, 0x1100), (0x1100, 0x1200), (0x3040, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4),
           (0x1F300, 0x1F700), (0x20000, 0x20100), (0, 0x20), (0x2000, 0x2070), (0x660, 0x66A), (0x300, 0x370), (0x1E00, 0x2000),
           (0x1D15E, 0x1D165), (0xF900, 0xFB50), (0x2100, 0x2190), (0x30, 0x3A)]
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u180e\u200b\ufeff"
ENGLISH = ("the quick brown fox isn't they'll we've I'm he'd it's THEY'LL WE'VE It'S 1234567 $%^ <tag attr=\"x\"/> foo_bar(baz); "
           "don't do not . , ! ? naïve café Ünïcödé résumé 12.5% a.b,c e\u0301a\u0301\u0323 \u1100\u1161\u11a8 \u212b ﬁ İstanbul ΣΑΣ").split(" ")
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "❤️", "e\u0301", "\u200d", "🤷🏾‍♀️", "1️⃣", "中文", "\x00", "\x7f", "\x1b[31m", "\ufffd", "▁", "▁▁",
         "<0x0A>", "##ing", "'ſ", "ſ", "K"]


def words(r, count):
    """Random text."""
    parts = []
    for _ in range(count):
        kind = r.randrange(8)
        if kind < 3:
            parts.append(r.choice(ENGLISH))
        elif kind == 3:
            parts.append(r.choice(EMOJI))
        else:
            low, high = r.choice(SCRIPTS)
            parts.append("".join(chr(r.randrange(low, high)) for _ in range(int(r.expovariate(0.25)) + 1)))
        parts.append(r.choice([" ", " ", " ", " ", "", "'s", "'ll", "'RE", "\n", ".\n", "!\r\n", " \n  ", "  ",
                               "".join(r.choices(SPACES, k=r.randrange(6)))]))
    return "".join(parts)


def byte_level(split, normalizer=None, ignore_merges=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, split, decoders.ByteLevel()
    return t, trainers.BpeTrainer(vocab_size=2500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def by_pattern(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", False),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece(normalizer, split, decoder, fallback=True, fuse=True):
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=fuse))
    # Learned as SentencePiece does, in words that begin with the mark; the rules come after.
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    rules = lambda t: (setattr(t, "normalizer", normalizer), setattr(t, "pre_tokenizer", split), setattr(t, "decoder", decoder))
    return t, trainers.BpeTrainer(vocab_size=2500, show_progress=False, limit_alphabet=600, special_tokens=special), rules


def wordpiece(lowercase, accents=None, limit=100, clean=True, cjk=True, cleanup=True):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=limit))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=accents, clean_text=clean, handle_chinese_chars=cjk)
    t.pre_tokenizer, t.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##", cleanup=cleanup)
    return t, trainers.WordPieceTrainer(vocab_size=3000, show_progress=False, limit_alphabet=800,
                                        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def llama2_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


KINDS = {
    "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "roberta": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "llama3": lambda: byte_level(by_pattern(LLAMA3), ignore_merges=True),
    "qwen2": lambda: byte_level(by_pattern(QWEN2), normalizers.NFC()),
    "smollm2": lambda: byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False)])),
    "digits": lambda: byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False),
                                                          pre_tokenizers.ByteLevel(add_prefix_space=True)])),
    "llama2": lambda: sentencepiece(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
                                    llama2_decoder()),
    "tinyllama": lambda: sentencepiece(None, pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False), llama2_decoder()),
    "mistral": lambda: sentencepiece(None, pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True),
                                     decoders.Metaspace("▁", prepend_scheme="always")),
    "unfused": lambda: sentencepiece(normalizers.Replace(" ", "▁"), None, decoders.Replace("▁", " "), fallback=False, fuse=False),
    "fused": lambda: sentencepiece(normalizers.Replace(" ", "▁"), None, decoders.Replace("▁", " "), fallback=False),
    "bert-uncased": lambda: wordpiece(True),
    "bert-cased": lambda: wordpiece(False),
    "bert-accents": lambda: wordpiece(True, accents=False, limit=5, cleanup=False),
    "bert-raw": lambda: wordpiece(False, accents=True, clean=False, cjk=False),
}
BYTE_LEVEL = ["gpt2", "roberta", "llama3", "qwen2", "smollm2", "digits"]
TEMPLATES = {"llama3": ("<|begin_of_text|>", None), "llama2": ("<s>", None), "bert-uncased": ("[CLS]", "[SEP]")}


def make(kind, r, size=120_000, vocabulary=None):
    """A tokenizer of a kind. Its added tokens are of all sorts."""
    t, trainer, *rules = KINDS[kind]()
    if vocabulary:
        trainer.vocab_size = vocabulary
        trainer.limit_alphabet = vocabulary // 4 if kind not in BYTE_LEVEL else None
    t.train_from_iterator([words(r, 50).replace("\0", " ") for _ in range(size // 200)], trainer)
    for change in rules:
        change(t)
    special = {"llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
               "bert-uncased": ["[CLS]", "[SEP]"]}.get(kind, ["<|endoftext|>"])
    t.add_special_tokens([AddedToken(s, normalized=False) for s in special])
    t.add_tokens([AddedToken("<tool>"), AddedToken("FooBar" if kind in ("qwen2", "llama2", "bert-uncased") else "Foo Bar", single_word=True), AddedToken("<Ž>", lstrip=True),
                  AddedToken("<raw>", normalized=False, rstrip=True)])
    if kind in TEMPLATES:
        first, last = TEMPLATES[kind]
        names = [n for n in (first, last) if n]
        t.post_processor = processors.TemplateProcessing(single=" ".join(filter(None, [first, "$A", last])),
                                                         special_tokens=[(n, t.token_to_id(n)) for n in names])
    return t


def added_texts(t):
    return [a["content"] for a in json.loads(t.to_str())["added_tokens"] if not a["content"].startswith("<0x")]


def texts(r, t, count, size):
    """Random texts with added tokens in them."""
    added = added_texts(t) + ["foo bar", "FOO BAR", "foobar", "<Z\u030c>", "<TOOL>"]
    for _ in range(count):
        yield "".join(words(r, r.randrange(size)) + (r.choice(["", " ", "\n"]) + r.choice(added) + r.choice(["", " "]) if r.random() < 0.7 else "")
                      for _ in range(r.randrange(1, 6)))


def code_points(r):
    """Code points in several surroundings: all below U+3400, and one in eight of the others."""
    some = [c for c in range(0x110000) if c < 0x3400 or (not 0xD800 <= c < 0xE000 and r.random() < 0.125 / (1 + 20 * (c > 0x32000)))]
    for start in range(0, len(some), 1_000):
        yield "".join(f"a{c}b 1{c}2 {c}{c}\n\n{c}' {c}s's{c} '{c}l {c}\u0301{c}\u0323\n{c}\r\n\t{c}x" for c in map(chr, some[start : start + 1_000]))


UNASSIGNED = [0x378, 0x530, 0x2FE0, 0x1FFFE, 0xFDD0, 0xFFFE, 0xFFFF, 0xE0FFF, 0x10FFFF, 0xE000, 0xF8FF, 0x1C000, 0x50000, 0x2B81E]
MARKS = [*range(0x300, 0x370), *range(0x591, 0x5BE), *range(0x64B, 0x660), *range(0x1DC0, 0x1E00), *range(0x20D0, 0x20F1), 0x3099, 0x309A, 0x93C, 0xE38, 0x1D165, 0x16FF0]
BIDI = [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
RTL = [*range(0x5D0, 0x5EB), *range(0x620, 0x64B), *range(0x660, 0x66A), *range(0x710, 0x730), *range(0x7C0, 0x7EB), *range(0x10A00, 0x10A10), *range(0x1E900, 0x1E95F)]
FACES = [0x1F468, 0x1F469, 0x1F467, 0x1F3FB, 0x1F3FF, 0x1F308, 0x1F3F4, 0xE0067, 0xE007F, 0x1F1E9, 0x1F1EA, 0x2764, 0xFE0F, 0xFE0E, 0x20E3, 0x200D, 0x200D]
JAMO = [0x1100, 0x1112, 0x1161, 0x1175, 0x11A7, 0x11A8, 0x11C2, 0xAC00, 0xAC01, 0xD7A3]
COMPOSING = [0x41, 0x61, 0x45, 0x4F, 0x55, 0x3C9, 0x1F00, 0x212B, 0x1E9B, 0x344, 0xFB1D, 0x2126, 0x958, 0x9CB, 0x1D15E, 0xF900, 0x2F81A]
BROKEN = [b"\xff", b"\xc0\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80",
          b"\x80", b"\xe0\x80\xaf", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc2"]


def hostile(r):
    """Bytes that nobody means to write: random ones, broken UTF-8 and lone surrogates, very long words, zeros, code points without a character, piles of combining marks,
    text from right to left, joined emoji; mostly several of these in one another."""
    def some(points, most):
        return "".join(chr(c) for c in r.choices(points, k=r.randrange(1, most))).encode()

    def one():
        kind = r.randrange(12)
        if kind == 0:
            return r.randbytes(r.randrange(1, 300))
        if kind == 1:
            return words(r, r.randrange(1, 30)).encode() + r.choice(BROKEN) * r.randrange(1, 4)
        if kind == 2:
            data = bytearray(words(r, r.randrange(1, 60)).encode())
            for _ in range(r.randrange(1, 6)):
                data[r.randrange(len(data))] = r.randrange(256)
            return bytes(data)
        if kind == 3:
            return b"\0" * r.randrange(1, 50) + r.choice([b"", b"a\0b", b" \0 ", b"\0\n"])
        if kind == 4:
            return some(UNASSIGNED, 12)
        if kind == 5:
            return b"".join(some(COMPOSING + JAMO, 3) + some(MARKS, r.choice([3, 6, 60])) for _ in range(r.randrange(1, 8)))
        if kind == 6:
            return some(RTL + BIDI + [0x20, 0x20], 40)
        if kind == 7:
            return some(FACES, 30)
        if kind == 8:
            return some(JAMO + COMPOSING, 40)
        if kind == 9:
            return some([ord(c) for c in SPACES], 12)
        if kind == 10:
            return some([0xFFFD, 0x2581, 0x20, 0x23, 0x27, 0x3C, 0x3E, 0x30, 0x78, 0x41], 20)
        return words(r, r.randrange(1, 40)).encode()

    if r.random() < 0.01:  # a word without end
        part = r.choice([b"a", b"ab", "\u4e2d".encode(), b"\xff", b"\0", "e\u0301".encode(), b"1", b"'", "\u0301".encode(), bytes(r.choices(b"abcdefgh", k=997))])
        return one() + part * r.randrange(1, 60_000 // len(part)) + one()
    return b"".join(one() + r.choice([b"", b"", b" ", b"\n", b"'s", "\u200d".encode(), b"\xe2"]) for _ in range(r.randrange(1, 8)))
