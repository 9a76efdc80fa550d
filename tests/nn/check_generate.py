#!/usr/bin/env python3
"""`lockstep generate`, checked with transformers: token ids of greedy text of random tiny models, with real kinds of tokenizers (tests/data/kinds), templates that put
tokens before a text, tokens that end it, repetition penalties, one prompt and several side by side. Needs torch and transformers:

  tests/nn/check_generate.py build [COUNT] [SEED]

A text may differ from a token on whose logit is within 1e-4 of the largest; the line at the end counts these. Exits 1 if another one differs."""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers as tf

import family

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((2, 40), (3, 1)))
pick, number = random.choice, random.randint
KINDS = pathlib.Path(__file__).resolve().parents[1] / "data/kinds"
WORDS = ["the", "a", "hello", "123", "don't", "it's", "naïve", "日本", "🙂", "\t", "x", "foo_bar", "", "The", "THE", "\u0301", "\ufffd", "שלום"]


def make_model(vocab):
    heads = pick([2, 4])
    common = dict(vocab_size=vocab, bos_token_id=None, eos_token_id=None)
    kind = pick([tf.LlamaConfig, tf.Qwen2Config, tf.Qwen3Config, tf.MistralConfig, tf.GPT2Config])
    if kind is tf.GPT2Config:
        config = kind(**common, n_embd=heads * 8, n_layer=2, n_head=heads, n_positions=200)
    else:
        more = {tf.MistralConfig: dict(sliding_window=pick([None, 5, 20])), tf.Qwen3Config: dict(head_dim=8)}.get(kind, {})
        config = kind(**common, **more, hidden_size=heads * 8, intermediate_size=40, num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=pick([1, 2]),
                      max_position_embeddings=200)
    model = family.roughen(tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager"))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    return model


def greedy(model, prompt, tokens, penalty, ends):
    """Ids that transformers generates, and how much the chosen logit is above the next one."""
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=tokens, do_sample=False, repetition_penalty=penalty,
                         eos_token_id=ends, pad_token_id=0, return_dict_in_generate=True, output_scores=True)
    best = [s[0].topk(2).values for s in out.scores]
    return out.sequences[0, len(prompt):].tolist(), [(b[0] - b[1]).item() for b in best]


def generate(folder, tokens, penalty, *more):
    command = [build / "bin/lockstep", "generate", folder, "--temperature", "0", "--threads", "1", "--max-tokens", tokens, "--repetition-penalty", penalty, *more]
    return [json.loads(line) for line in subprocess.run(list(map(str, command)), check=True, capture_output=True).stdout.decode().splitlines()]


def check(i, folder):
    """One model and its texts: how many there are, how many differ, how many of these are ties."""
    random.seed(seed * 1000003 + i)
    torch.manual_seed(seed * 1000003 + i)
    kind = pick(sorted(p.stem for p in KINDS.glob("*.json") if not p.stem.startswith("bert")))
    (folder / "tokenizer.json").write_text((KINDS / f"{kind}.json").read_text())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))  # transformers 4's class changes add_prefix_space
    vocab = tokenizer.get_vocab_size()
    model = make_model(vocab)
    end = pick([t.content for _, t in sorted(tokenizer.get_added_tokens_decoder().items())])
    ends = [number(0, vocab - 1) for _ in range(number(0, 2))]
    model.generation_config = tf.GenerationConfig(eos_token_id=ends or None, pad_token_id=0)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(eos_token=end)))
    prompts = [" ".join(pick(WORDS) for _ in range(number(1, 8))) for _ in range(number(1, 4))]
    prompts = [p for p in prompts if p.strip()] or ["a"]
    penalty, tokens = pick([1.0, 1.2, 0.8, 3.0]), number(1, 60)
    (folder / "prompts").write_text("\n".join(prompts) + "\n")
    differ = ties = 0
    lines = generate(folder, tokens, penalty, "--prompts", folder / "prompts")
    alone = generate(folder, tokens, penalty, "--prompt", prompts[0], "--samples", 1)
    assert [line["prompt"] for line in lines] == prompts, (lines, prompts)
    for line in lines + alone:
        expected, margins = greedy(model, tokenizer.encode(line["prompt"]).ids, tokens, penalty, [tokenizer.token_to_id(end), *ends])
        if line["ids"] == expected:
            continue
        differ += 1
        at = next((k for k, (x, y) in enumerate(zip(line["ids"], expected)) if x != y), min(len(line["ids"]), len(expected)))
        ties += at < len(margins) and margins[at] < 1e-4
        print(f"{i}: {kind}, {model.config.model_type}, penalty {penalty}, {line['prompt']!r}: token {at} differs, margin {margins[at] if at < len(margins) else 0:.1e}:\n"
              f"  {line['ids']}\n  {expected}", flush=True)
    return len(lines) + 1, differ, ties


tf.logging.set_verbosity_error()
tf.utils.logging.disable_progress_bar()
total = [0, 0, 0]
for i in range(count):
    with tempfile.TemporaryDirectory() as name:
        total = [a + b for a, b in zip(total, check(i, pathlib.Path(name)))]
print(f"torch {torch.__version__}, transformers {tf.__version__}: {count} models, {total[0]} texts, {total[1]} differ, {total[2]} of them by ties")
sys.exit(total[1] > total[2])
