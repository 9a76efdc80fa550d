"""Tiny models of each supported architecture with random weights, made by transformers, and what lockstep computes of them. For make_golden_models.py,
check_transformers.py, check_random.py and check_peft.py."""
import pathlib
import subprocess
import tempfile

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

SMALL = dict(hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, vocab_size=37, max_position_embeddings=32,
             bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)


def rope(parameters):
    """Rotary positions as the installed version of transformers takes them."""
    if int(tf.__version__.split(".")[0]) >= 5:
        return dict(rope_parameters=parameters)
    scaling = {k: v for k, v in parameters.items() if k != "rope_theta"}
    return dict(rope_theta=parameters["rope_theta"], rope_scaling=None if scaling["rope_type"] == "default" else scaling)


CONFIGS = {
    "gpt2": lambda: tf.GPT2Config(n_layer=2, n_embd=16, n_head=4, vocab_size=37, n_positions=32, bos_token_id=1, eos_token_id=2, resid_pdrop=0,
                                  embd_pdrop=0, attn_pdrop=0),
    "llama2": lambda: tf.LlamaConfig(**SMALL, rms_norm_eps=1e-5),
    "llama3": lambda: tf.LlamaConfig(**SMALL, num_key_value_heads=2, rms_norm_eps=1e-5, **rope(LLAMA3)),
    "llama_biases": lambda: tf.LlamaConfig(**SMALL, num_key_value_heads=1, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                           **rope(dict(rope_type="linear", rope_theta=100.0, factor=2.0))),
    "smollm2": lambda: tf.LlamaConfig(**{**SMALL, "hidden_size": 24, "num_attention_heads": 3}, num_key_value_heads=1, rms_norm_eps=1e-5,
                                      tie_word_embeddings=True, **rope(dict(rope_type="default", rope_theta=100000.0))),
    "qwen2": lambda: tf.Qwen2Config(**SMALL, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen2_window": lambda: tf.Qwen2Config(**SMALL, num_key_value_heads=2, use_sliding_window=True, sliding_window=3, max_window_layers=1),
    "qwen3": lambda: tf.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True),
    "mistral": lambda: tf.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=4),
}

ENCODER = dict(hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, vocab_size=37, hidden_dropout_prob=0,
               attention_probs_dropout_prob=0)
DISTIL = dict(dim=16, hidden_dim=40, n_layers=2, n_heads=4, vocab_size=37, max_position_embeddings=32, dropout=0, attention_dropout=0,
              seq_classif_dropout=0)
ENCODERS = {
    "bert_mlm": lambda: tf.BertForMaskedLM(tf.BertConfig(**ENCODER, max_position_embeddings=32)),
    "bert_classes": lambda: tf.BertForSequenceClassification(tf.BertConfig(**ENCODER, max_position_embeddings=32, num_labels=3)),
    "roberta_mlm": lambda: tf.RobertaForMaskedLM(tf.RobertaConfig(**ENCODER, max_position_embeddings=34, type_vocab_size=1)),
    "roberta_classes": lambda: tf.RobertaForSequenceClassification(tf.RobertaConfig(**ENCODER, max_position_embeddings=34, type_vocab_size=1)),
    "distilbert_mlm": lambda: tf.DistilBertForMaskedLM(tf.DistilBertConfig(**DISTIL)),
    "distilbert_classes": lambda: tf.DistilBertForSequenceClassification(tf.DistilBertConfig(**DISTIL, num_labels=4)),
}


def probe(build, folder, data, out):
    """What lockstep computes of a folder: see probe_model.c."""
    tokens = pathlib.Path(out, "tokens")
    tokens.write_text(f"{data.shape[0]} {data.shape[1]} {data.shape[2] - 1}\n" + " ".join(map(str, data.flatten().tolist())))
    subprocess.run([build / "tests" / "probe_model", folder, tokens, pathlib.Path(out, "saved"), pathlib.Path(out, "probe.safetensors")], check=True)
    return load_file(pathlib.Path(out, "probe.safetensors"))


def probe_encoder(build, folder, data, out):
    """What lockstep computes of an encoder: see probe_encoder.c."""
    batches = pathlib.Path(out, "batches.safetensors")
    save_file({k: v.contiguous() if k == "weights" else v.to(torch.int32).contiguous() for k, v in data.items()}, batches)
    subprocess.run([build / "tests" / "probe_encoder", folder, batches, pathlib.Path(out, "saved"), pathlib.Path(out, "probe.safetensors")], check=True)
    return load_file(pathlib.Path(out, "probe.safetensors"))


def worst(a, b, least=0.0):
    """The largest difference, relative to the largest value, or to `least` if that is larger."""
    return ((a - b).abs().max() / b.abs().max().clamp_min(least)).item()


def roughen(model):
    """Biases and norms that are not 0 and 1, and logits that are not small."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.2))
    return model.eval()


def make_encoder(name):
    torch.manual_seed(list(ENCODERS).index(name) + 50)
    model = ENCODERS[name]()
    model.config.architectures = [type(model).__name__]
    return roughen(model)


def encoder_batches(model, steps=10, rows=3, length=11):
    """Sequences of different lengths with token types; targets are tokens at some positions, or a class of each sequence."""
    g = torch.Generator().manual_seed(6)
    vocab = model.config.vocab_size
    tokens = torch.randint(3, vocab, (steps, rows, length), generator=g)
    lengths = torch.randint(min(4, length), length + 1, (steps, rows), generator=g)
    lengths[:, 0] = length
    seen = torch.arange(length) < lengths[..., None]
    tokens = torch.where(seen, tokens, torch.tensor(model.config.pad_token_id))
    types = (torch.arange(length) >= lengths[..., None] // 2).long() * seen
    if getattr(model.config, "type_vocab_size", 1) < 2:
        types *= 0
    if "MaskedLM" in type(model).__name__:
        weights = ((torch.rand(tokens.shape, generator=g) < 0.4) & seen).float()
        weights[:, :, 1] = 1
        targets = torch.randint(0, vocab, tokens.shape, generator=g)
    else:
        targets = torch.randint(0, model.config.num_labels, (steps, rows), generator=g)
        weights = torch.ones(steps, rows)
    return dict(tokens=tokens, types=types, lengths=lengths, targets=targets, weights=weights)


def run_encoder(model, data, step):
    mask = (torch.arange(data["tokens"].shape[-1]) < data["lengths"][step, :, None]).long()
    types = dict(token_type_ids=data["types"][step]) if getattr(model.config, "type_vocab_size", 1) > 1 else {}
    return model(data["tokens"][step], attention_mask=mask, **types).logits


def measure_encoder(model, data):
    """As measure(), without text. Logits of padding are not computed by us as by them: they are left out."""
    out = {}
    with torch.no_grad():
        out["logits"] = run_encoder(model, data, 0)
    params = dict(model.named_parameters())
    optimizer = torch.optim.AdamW([dict(params=[p for p in params.values() if p.dim() > 1], weight_decay=0.1),
                                   dict(params=[p for p in params.values() if p.dim() == 1], weight_decay=0.0)],
                                  lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(len(data["tokens"])):
        optimizer.zero_grad()
        logits, targets, weights = run_encoder(model, data, step), data["targets"][step], data["weights"][step]
        rows = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
        loss = (rows * weights.flatten()).sum() / weights.sum()
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out.update({f"grad.{k}": p.grad.clone() for k, p in params.items() if p.grad is not None})
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        optimizer.step()
    out["losses"] = torch.stack(losses)
    return out


def make(name):
    torch.manual_seed(list(CONFIGS).index(name) + 1)
    return roughen(tf.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32, attn_implementation="eager"))


def batches(vocab, steps=10, rows=3, length=11):
    g = torch.Generator().manual_seed(5)
    return torch.randint(0, vocab, (steps, rows, length + 1), generator=g)


def measure(model, data):
    """Logits of the first batch, all gradients of its loss, the losses of a step of AdamW on each, and greedy text before that."""
    out = {}
    inputs, targets = data[:, :, :-1], data[:, :, 1:]
    prompt = inputs[0, :1, :4]
    with torch.no_grad():
        out["logits"] = model(inputs[0]).logits
        text = prompt
        for _ in range(16):  # by hand: generate() would stop at the end token
            text = torch.cat([text, model(text).logits[:, -1:].argmax(-1)], 1)
        out["greedy"] = text[0, 4:].to(torch.int32)
    params = dict(model.named_parameters())
    optimizer = torch.optim.AdamW([dict(params=[p for p in params.values() if p.dim() > 1], weight_decay=0.1),
                                   dict(params=[p for p in params.values() if p.dim() == 1], weight_decay=0.0)],
                                  lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(len(data)):
        optimizer.zero_grad()
        logits = model(inputs[step]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[step].flatten())
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out.update({f"grad.{k}": p.grad.clone() for k, p in params.items()})
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        optimizer.step()
    out["losses"] = torch.stack(losses)
    return out


def unlike(config):
    """A config without what a folder may change."""
    return {k: v for k, v in config.to_dict().items() if k not in ("dtype", "_name_or_path", "transformers_version")}


def least(expected, share):
    """That share of the model's largest gradient."""
    return share * max(v.abs().max().item() for k, v in expected.items() if k.startswith("grad."))


def compare(build, model, folder, data, share=0.0, **load):
    """A folder by transformers, in lockstep; and one by lockstep, in transformers again. Returns differences of logits, gradients (the largest, and of which) and losses, and
    whether greedy text, and weights and settings that were read and saved, are equal. A gradient that is 0 but for rounding is compared with `share` of the largest one."""
    again_by = type(model)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as out:
        got, expected = probe(build, folder, data, out), measure(model, data)
        again = again_by.from_pretrained(pathlib.Path(out, "saved"), dtype=torch.float32, **load).eval()
    settings = unlike(again.config)
    kept = settings == {k: v for k, v in model.config.to_dict().items() if k in settings}
    prefix = "transformer." if model.config.model_type == "gpt2" else ""
    grads = {k: worst(got["grad." + k[5:].removeprefix(prefix)], v, least(expected, share)) for k, v in expected.items() if k.startswith("grad.")}
    largest = max(grads, key=grads.get)
    same = kept and len(again.state_dict()) == len(before) and all(torch.equal(v, before[k]) for k, v in again.state_dict().items())
    return dict(logits=(got["logits"] - expected["logits"]).abs().max().item(), gradients=grads[largest], of=largest[5:],
                losses=(got["losses"] - expected["losses"]).abs().max().item(), greedy=got["greedy"].tolist() == expected["greedy"].tolist(), same=same)


def compare_encoder(build, model, folder, data, share=0.0):
    """As compare(), without text. Logits of padding have no meaning, and the gradient of a key's bias is 0 but for rounding."""
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as out:
        got, expected = probe_encoder(build, folder, data, out), measure_encoder(model, data)
        again = type(model).from_pretrained(pathlib.Path(out, "saved"))
    settings = unlike(again.config)
    kept = settings == {k: v for k, v in model.config.to_dict().items() if k in settings}
    seen = torch.arange(data["tokens"].shape[-1]) < data["lengths"][0, :, None]
    difference = (got["logits"] - expected["logits"]).abs()
    grads = {k: worst(got[k], v, least(expected, share)) for k, v in expected.items() if k.startswith("grad.") and not k.endswith(("key.bias", "k_lin.bias"))}
    largest = max(grads, key=grads.get)
    same = kept and len(again.state_dict()) == len(before) and all(torch.equal(v, before[k]) for k, v in again.state_dict().items())
    return dict(logits=(difference[seen] if difference.dim() == 3 else difference).max().item(), gradients=grads[largest], of=largest[5:],
                losses=(got["losses"] - expected["losses"]).abs().max().item(), greedy=True, same=same)


def report(name, r, limit=1e-4):
    """Prints a comparison; whether it is good."""
    good = max(r["logits"], r["gradients"], r["losses"]) <= limit and r["greedy"] and r["same"]
    print(f"{name}: logits {r['logits']:.1e}, gradients {r['gradients']:.1e} ({r['of']}), losses {r['losses']:.1e}, greedy {'equal' if r['greedy'] else 'DIFFERENT'}, "
          f"round trip {'equal' if r['same'] else 'DIFFERENT'}{'' if good else '  FAILED'}", flush=True)
    return good
