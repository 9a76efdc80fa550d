#!/usr/bin/env python3
"""lockstep eval --task hellaswag beside transformers, counted as lm-evaluation-harness does (_encode_pair, acc, acc_norm): random questions, tiny random models with
tokenizers of several kinds, with and without a token before each text. Needs torch and transformers:

  tests/nn/check_choices.py build/bin/lockstep

Prints the largest difference of a log-probability; exits 1 if one is above 1e-3, or if an accuracy differs."""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

KINDS = pathlib.Path(__file__).parents[1] / "data/kinds"
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import eval_model  # noqa: E402


def encode_pair(tokenizer, context, continuation):
    spaces = len(context) - len(context.rstrip())
    if spaces:
        continuation, context = context[-spaces:] + continuation, context[:-spaces]
    whole, before = tokenizer.encode(context + continuation), tokenizer.encode(context)
    return before, whole[len(before):]


def check(kind, template, program):
    random.seed(kind)
    words = "the a he she 12 don't 'll [title] [substeps] naïve the. It, 日本 Where? 3.5 and\u00a0or".split(" ")

    def text(n):
        return " ".join(random.choice(words) for _ in range(random.randint(1, n)))
    eval_model.QUESTIONS[:] = [{"activity_label": text(3), "ctx_a": text(30), "ctx_b": text(6), "endings": ["go " + text(9) for _ in range(4)], "label": random.randrange(4)}
                               for _ in range(80)]
    with tempfile.TemporaryDirectory() as at:
        data = json.loads((KINDS / f"{kind}.json").read_text())
        if template:
            name = data["added_tokens"][1]["content"]
            data["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                                      "special_tokens": {name: {"id": name, "ids": [data["added_tokens"][1]["id"]], "tokens": [name]}}}
        pathlib.Path(at, "tokenizer.json").write_text(json.dumps(data))
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{at}/tokenizer.json")
        torch.manual_seed(1)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                             max_position_embeddings=64, initializer_range=0.5)).eval()
        model.save_pretrained(at)
        scores, right, norm = [], 0, 0
        for before, endings, label in eval_model.questions():
            row = []
            for ending in endings:
                context, target = encode_pair(tokenizer, before, " " + ending)
                tokens = torch.tensor((context + target)[-65:])
                with torch.no_grad():
                    lp = torch.log_softmax(model(tokens[None, :-1]).logits[0].double(), -1)
                row.append(lp.gather(-1, tokens[1:, None])[-len(target):].sum().item())
            scores.append(row)
            right += row.index(max(row)) == label
            per = [s / len(e) for s, e in zip(row, endings)]
            norm += per.index(max(per)) == label
        pathlib.Path(at, "q.jsonl").write_text("".join(json.dumps(q) + "\n" for q in eval_model.QUESTIONS))
        out = json.loads(subprocess.run([program, "eval", at, "--task", "hellaswag", "--data", f"{at}/q.jsonl", "--scores", f"{at}/s.jsonl", "--json"], check=True,
                                        capture_output=True).stdout)
        got = [json.loads(line)["scores"] for line in open(f"{at}/s.jsonl")]
    worst = max(abs(a - b) for x, y in zip(got, scores) for a, b in zip(x, y))
    same = (out["acc"], out["acc_norm"]) == (right / len(scores), norm / len(scores))
    print(f"{kind}{' with a first token' if template else ''}: {len(scores)} questions, acc {out['acc']}, acc_norm {out['acc_norm']} {'(equal)' if same else 'DIFFER'}, "
          f"log-probabilities differ by {worst:.1e} at most")
    return same and worst < 1e-3


results = [check(*case, sys.argv[1]) for case in (("smollm2", False), ("qwen2", False), ("llama3", True), ("llama2", True), ("mistral", True), ("gpt2", False))]
sys.exit(not all(results))
