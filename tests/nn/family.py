"""Tiny models of each supported architecture with random weights, made by transformers. For make_golden_models.py and
check_transformers.py."""
import torch
import transformers as tf

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


def make_encoder(name):
    torch.manual_seed(list(ENCODERS).index(name) + 50)
    model = ENCODERS[name]()
    model.config.architectures = [type(model).__name__]
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.2))
    return model.eval()


def encoder_batches(model, steps=10, rows=3, length=11):
    """Sequences of different lengths with token types; targets are tokens at some positions, or a class of each sequence."""
    g = torch.Generator().manual_seed(6)
    tokens = torch.randint(3, 37, (steps, rows, length), generator=g)
    lengths = torch.randint(4, length + 1, (steps, rows), generator=g)
    lengths[:, 0] = length
    seen = torch.arange(length) < lengths[..., None]
    tokens = torch.where(seen, tokens, torch.tensor(model.config.pad_token_id))
    types = (torch.arange(length) >= lengths[..., None] // 2).long() * seen
    if getattr(model.config, "type_vocab_size", 1) < 2:
        types *= 0
    if "MaskedLM" in type(model).__name__:
        weights = ((torch.rand(tokens.shape, generator=g) < 0.4) & seen).float()
        weights[:, :, 1] = 1
        targets = torch.randint(0, 37, tokens.shape, generator=g)
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
    """A model whose biases and norms are not 0 and 1, and whose logits are not small."""
    torch.manual_seed(list(CONFIGS).index(name) + 1)
    model = tf.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.2))
    return model.eval()


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
