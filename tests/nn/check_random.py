#!/usr/bin/env python3
"""Random tiny models of every family, checked with transformers as in check_transformers.py: odd sizes, heads that do not divide the width, one head of keys and values, tied and
untied heads, all kinds of rotary positions, windows shorter than the sequence, biases, types of weights, shards. Needs torch and transformers:

  tests/nn/check_random.py build [COUNT] [SEED]

Prints what differs by more than 1e-4; exits 1 if anything does."""
import math
import pathlib
import random
import sys
import tempfile

import torch
import transformers as tf

import family

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((2, 100), (3, 1)))
pick, number = random.choice, random.randint


def share(what):
    """Gradients below this share of the largest are compared with it. With a window of one token some are 0 but for rounding. Norms of one or two elements are constant, so
    that all before them are, times 1 / deviation, which has no limit: then gradients are not compared."""
    width = getattr(what, "hidden_size", None) or getattr(what, "dim", None) or what.n_embd
    return math.inf if width < 3 else 0.1 if getattr(what, "sliding_window", None) == 1 else 1e-3


def rope():
    theta, kind = pick([50.0, 10000.0, 500000.0, 1e6]), pick(["default", "linear", "llama3"])
    more = {"default": {}, "linear": dict(factor=pick([1.0, 2.5, 8.0])),
            "llama3": dict(factor=pick([4.0, 8.0, 32.0]), low_freq_factor=pick([1.0, 0.5]), high_freq_factor=pick([4.0, 2.0]), original_max_position_embeddings=number(4, 64))}
    return family.rope(dict(rope_type=kind, rope_theta=theta, **more[kind]))


def causal():
    heads = pick([1, 2, 3, 4, 6])
    kv = pick([k for k in range(1, heads + 1) if heads % k == 0])
    dim = 2 * number(1, 9)
    kind = pick(["llama", "llama", "qwen2", "qwen3", "mistral", "gpt2"])
    common = dict(vocab_size=number(20, 90), num_hidden_layers=number(1, 3), max_position_embeddings=number(24, 70), bos_token_id=1, eos_token_id=pick([2, [2, 3]]))
    if kind == "gpt2":
        return tf.GPT2Config(n_layer=number(1, 3), n_embd=heads * number(1, 12), n_head=heads, vocab_size=common["vocab_size"], n_positions=number(24, 70), bos_token_id=1,
                             eos_token_id=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, layer_norm_epsilon=pick([1e-5, 1e-3]))
    common |= dict(hidden_size=heads * dim, intermediate_size=number(3, 70), num_attention_heads=heads, num_key_value_heads=kv, rms_norm_eps=pick([1e-6, 1e-5, 1e-2]),
                   tie_word_embeddings=pick([True, False]), **rope())
    width = heads * number(1, 9) if kind == "llama" else number(3, 50)  # transformers 5 refuses other widths of a Llama
    free = dict(common, hidden_size=width, head_dim=2 * number(1, 12)) if number(0, 1) else common
    if kind == "llama":
        return tf.LlamaConfig(**free, attention_bias=pick([True, False]), mlp_bias=pick([True, False]))
    if kind == "qwen2":
        window = dict(use_sliding_window=True, sliding_window=number(1, 12), max_window_layers=number(0, common["num_hidden_layers"])) if number(0, 1) else {}
        return tf.Qwen2Config(**common, **window)
    if kind == "qwen3":
        window = dict(use_sliding_window=True, sliding_window=number(1, 12), max_window_layers=number(0, common["num_hidden_layers"])) if number(0, 1) else {}
        return tf.Qwen3Config(**{**free, "head_dim": free.get("head_dim", dim)}, **window, attention_bias=pick([True, False]))
    return tf.MistralConfig(**free, sliding_window=pick([None, 1, 2, number(3, 30)]))


def encoder():
    heads = number(1, 5)
    width = heads * number(1, 12)
    kind, head = pick(["Bert", "Roberta", "DistilBert"]), pick(["ForMaskedLM", "ForSequenceClassification"])
    positions = number(16, 50)
    if kind == "DistilBert":
        config = dict(dim=width, hidden_dim=number(3, 60), n_layers=number(1, 3), n_heads=heads, max_position_embeddings=positions, dropout=0, attention_dropout=0,
                      seq_classif_dropout=0)
    else:
        config = dict(hidden_size=width, intermediate_size=number(3, 60), num_hidden_layers=number(1, 3), num_attention_heads=heads, hidden_dropout_prob=0,
                      attention_probs_dropout_prob=0, max_position_embeddings=positions + 2 * (kind == "Roberta"), type_vocab_size=1 if kind == "Roberta" else number(1, 3),
                      layer_norm_eps=pick([1e-12, 1e-5]), tie_word_embeddings=True)
    return getattr(tf, kind + head)(getattr(tf, kind + "Config")(**config, vocab_size=number(20, 90), num_labels=number(2, 7))), positions


def check(i, folder):
    """One model; False if something differs."""
    random.seed(seed * 1000003 + i)
    torch.manual_seed(seed * 1000003 + i)
    save = dict(max_shard_size=pick(["3KB", "20KB", "1GB", "1GB"]))
    steps, rows = 4, number(1, 4)
    if number(0, 3) == 0:
        model, positions = encoder()
        model.config.architectures = [type(model).__name__]
        family.roughen(model).save_pretrained(folder, **save)
        what = model.config
        result = family.compare_encoder(build, model, folder, family.encoder_batches(model, steps, rows, number(2, positions)), share(what))
    else:
        what = causal()
        kind = pick([torch.float32, torch.float32, torch.bfloat16, torch.float16])
        model = family.roughen(tf.AutoModelForCausalLM.from_config(what, dtype=torch.float32, attn_implementation="eager")).to(kind)
        model.save_pretrained(folder, **save)
        model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        length = number(4, getattr(what, "max_position_embeddings", None) or what.n_positions)
        data = torch.randint(0, what.vocab_size, (steps, rows, length + 1))
        result = family.compare(build, model, folder, data, share(what), attn_implementation="eager")
    good = max(result["logits"], result["gradients"], result["losses"]) <= 1e-4 and result["greedy"] and result["same"]
    if not good:
        family.report(f"{i}", result)
        print(what)
    return good, {**result, "without": share(what) == math.inf}


tf.logging.set_verbosity_error()
tf.utils.logging.disable_progress_bar()
failed, without, most = 0, 0, dict(logits=0, gradients=0, losses=0)
for i in range(count):
    with tempfile.TemporaryDirectory() as folder:
        try:
            good, result = check(i, pathlib.Path(folder, "model"))
        except Exception as error:  # the next one may be good
            print(f"{i}: {type(error).__name__}: {error}", flush=True)
            good, result = False, {}
    failed += not good
    without += result.get("without", False)
    most = {k: max(v, result.get(k, 0)) for k, v in most.items()}
print(f"torch {torch.__version__}, transformers {tf.__version__}: {count} models ({without} without gradients), {failed} failed; largest differences {most}")
sys.exit(failed > 0)
