"""GPT-2 folders made by hand, without any library: for tests of lockstep eval. Run as a program it prints what transformers makes of
them, which is recorded in tests/cli/eval:

    python3 tests/cli/eval_model.py        # needs torch and transformers
"""
import json
import math
import os
import re
import struct

TEXT = ("The mill by the river turned all night. Ada counted 12 lamps, Ben 7; that made 19. \u201eGr\u00fc\u00dfe\u201c, said Mira, "
        "and nobody answered.\n") * 3


# In HellaSwag's form.
QUESTIONS = [
    {"activity_label": "Fixing a lamp", "ctx_a": "A man holds a lamp.", "ctx_b": "he", "label": "2",
     "endings": ["sings to a \u00fcber-duck.", "eats it.", "turns it on [and waits] for a while.", "runs."]},
    {"activity_label": "Baking", "ctx_a": "[header] How to bake [title] Take flour. [step] Mix it.", "ctx_b": "THE \u00c4PFEL are", "label": 0,
     "endings": [" [substeps] Wait.  Then eat.", "[title] Go home", "Sleep", "Sit [on"]},
    {"ctx": "Nobody answered, so Mira [laughed] ", "label": 3, "endings": ["left.", "stayed for the night, and the next one, and one more.", "ate", "x"]},
    {"ctx": "Two", "label": "1", "endings": ["and two", "or more"]},
    {"activity_label": "A long story", "ctx_a": "The mill by the river turned all night, and the other one, too.", "ctx_b": "", "label": 1,
     "endings": ["Ada counted lamps until the morning came and she was tired.", "It stopped.", "Ben.", "No."]},
    {"activity_label": "Travel", "ctx_a": "", "ctx_b": "\u65e5\u672c Is It,", "label": 1, "endings": ["he said.", "No"]},
    {"activity_label": "Ducks", "ctx_a": "", "ctx_b": "\u00fcber-DUCKS", "label": 0, "endings": ["fly.", "Swim"]},
    {"activity_label": "Apples", "ctx_a": "Red.", "ctx_b": "\u00c4PFEL Fall", "label": 1, "endings": ["down", "Up"]},
]


def questions():
    """As lm-evaluation-harness reads them: the text before, the endings, the right one."""
    def clean(text):
        return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")
    for q in QUESTIONS:
        before = q["activity_label"] + ": " + q["ctx_a"] + " " + q["ctx_b"].capitalize() if "ctx_a" in q else q["ctx"]
        yield clean(before), [clean(e) for e in q["endings"]], int(q["label"])


def shapes(layers, width, vocab, context):
    yield "wte.weight", (vocab, width)
    yield "wpe.weight", (context, width)
    for i in range(layers):
        for name, shape in (("ln_1.weight", (width,)), ("ln_1.bias", (width,)), ("attn.c_attn.weight", (width, 3 * width)),
                            ("attn.c_attn.bias", (3 * width,)), ("attn.c_proj.weight", (width, width)), ("attn.c_proj.bias", (width,)),
                            ("ln_2.weight", (width,)), ("ln_2.bias", (width,)), ("mlp.c_fc.weight", (width, 4 * width)),
                            ("mlp.c_fc.bias", (4 * width,)), ("mlp.c_proj.weight", (4 * width, width)), ("mlp.c_proj.bias", (width,))):
            yield f"h.{i}.{name}", shape
    yield "ln_f.weight", (width,)
    yield "ln_f.bias", (width,)


def write(folder, layers, width, heads, vocab, context, value, extra=None):
    """`value(tensor, index, count)` is element `index` of a tensor."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes(layers, width, vocab, context):
        count = math.prod(shape)
        blob = struct.pack(f"<{count}f", *(value(name, i, count) for i in range(count)))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": layers, "n_embd": width, "n_head": heads,
                   "vocab_size": vocab, "n_positions": context, "bos_token_id": None, "eos_token_id": None, **(extra or {})}, f)


def unigram(folder, logits, context):
    """Whatever it has read, the logits are these: all weights are 0 but the last bias, which picks a column of the embedding."""
    write(folder, 1, 4, 1, len(logits), context, lambda name, i, n: logits[i // 4] if name == "wte.weight" and i % 4 == 2 else
          1.0 if name == "ln_f.bias" and i == 2 else 0.0)


def waves(folder):
    """A model in which everything matters, of numbers that any language can make again."""
    def value(name, i, n):
        phase = sum(name.encode()) % 97
        x = math.sin(1.7 * i + phase) + 0.5 * math.cos(0.013 * i * (1 + phase % 5))
        return 1 + 0.1 * x if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else 0.3 * x
    write(folder, 2, 24, 3, 257, 40, value)


def main():
    import tempfile
    import torch
    from transformers import GPT2LMHeadModel
    with tempfile.TemporaryDirectory() as at:
        waves(at)
        model = GPT2LMHeadModel.from_pretrained(at, dtype=torch.float64).eval()
        tokens = list(TEXT.encode()) + [256]
        for length in (40, 16):
            nats = 0.0
            for first in range(0, len(tokens) - 1, length):
                part = torch.tensor(tokens[first:first + length + 1])
                with torch.no_grad():
                    logits = model(part[None, :-1]).logits[0]
                nats += torch.nn.functional.cross_entropy(logits, part[1:], reduction="sum").item()
            print(f"sequences of {length}: {len(tokens) - 1} tokens, {nats!r} nats, loss {nats / (len(tokens) - 1)!r}, bits per byte "
                  f"{nats / math.log(2) / (len(tokens) - 2)!r}")
        for before, endings, _ in questions():
            scores = []
            for ending in endings:
                whole = list((before + " " + ending).encode())
                count = len(whole) - len(before.rstrip().encode())
                whole = torch.tensor(whole[-41:])
                with torch.no_grad():
                    logits = model(whole[None, :-1]).logits[0]
                losses = torch.nn.functional.cross_entropy(logits, whole[1:], reduction="none")
                scores.append(-losses[-count:].sum().item())
            print("    [" + ", ".join(f"{s:.6f}" for s in scores) + "],")


if __name__ == "__main__":
    main()
