#!/usr/bin/env python3
"""Adapters (LoRA), checked with PEFT: logits, all gradients and the losses of 10 steps of a folder that PEFT wrote; the same weights in PEFT from a
folder that lockstep wrote; and merged weights. With FOLDER, writes golden values for test_lora.c there. Needs torch, transformers and peft:

  tests/nn/check_peft.py build [FOLDER]

Prints the largest differences; exits 1 if one is above 1e-4."""
import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import family

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
golden = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
LIMIT = 1e-4
CASES = {
    "gpt2": [dict(target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True), dict(target_modules=["attn.c_proj"], fan_in_fan_out=True)],
    "llama3": [dict(target_modules=["q_proj", "v_proj"]), dict(target_modules="all-linear"), dict(target_modules=["down_proj", "k_proj"], use_rslora=True)],
    "llama_biases": [dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])],
    "qwen3": [dict(target_modules=["k_proj", "o_proj", "up_proj"])],
    "mistral": [dict(target_modules="all-linear")],
}
failed = False


def merged(folder, tokens):
    """Logits of the model with the adapter added to its weights."""
    out = subprocess.run([build / "tests" / "print_logits", folder, *map(str, tokens)], check=True, capture_output=True, text=True).stdout
    return torch.tensor([[float(x) for x in line.split()] for line in out.splitlines()])


def write_golden(name, config, weights, expected):
    from struct import pack
    kinds = {torch.float32: "F32", torch.int32: "I32", torch.uint8: "U8"}
    tensors = {"config": torch.tensor(list(config), dtype=torch.uint8), "logits": expected["logits"], "losses": expected["losses"]}
    tensors.update({f"weight.{k}": v for k, v in weights.items()})
    tensors.update({k: v for k, v in expected.items() if k.startswith("grad.")})
    header, data = {"__metadata__": {"made_by": f"peft {peft.__version__}, torch {torch.__version__}"}}, b""
    for key, t in tensors.items():
        raw = t.detach().contiguous().numpy().tobytes()
        header[key] = dict(dtype=kinds[t.dtype], shape=list(t.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    (golden / f"{name}.safetensors").write_bytes(pack("<Q", len(text)) + text + data)


def measure(model, data):
    """family.measure() of the parameters that are trained, by their names in PEFT's files."""
    for p in model.parameters():
        p.grad = None
    trained = {k.replace(".default", ""): p for k, p in model.named_parameters() if p.requires_grad}
    inputs, targets, out, losses = data[:, :, :-1], data[:, :, 1:], {}, []
    with torch.no_grad():
        out["logits"] = model(inputs[0]).logits
    optimizer = torch.optim.AdamW(trained.values(), lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for step in range(len(data)):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs[step]).logits.flatten(0, 1), targets[step].flatten())
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out.update({f"grad.{k}": p.grad.clone() for k, p in trained.items()})
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
    out["losses"] = torch.stack(losses)
    return out


def compare(name, number, options):
    global failed
    with tempfile.TemporaryDirectory() as at:
        base, folder = pathlib.Path(at, "base"), pathlib.Path(at, "adapter")
        family.make(name).save_pretrained(base)
        whole = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
        torch.manual_seed(7)
        config = peft.LoraConfig(r=3, lora_alpha=5, init_lora_weights=False, task_type="CAUSAL_LM", **options)
        model = peft.get_peft_model(whole, config).eval()
        model.save_pretrained(folder)
        weights = load_file(folder / "adapter_model.safetensors")
        data = family.batches(37)
        got, expected = family.probe(build, folder, data, at), measure(model, data)
        after = merged(folder, data[0, 0, :-1].tolist())
        saved = load_file(pathlib.Path(at, "saved", "adapter_model.safetensors"))
        again = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager"),
                                               pathlib.Path(at, "saved")).eval()
        with torch.no_grad():
            theirs = again(data[0, :, :-1]).logits
        same = saved.keys() == weights.keys() and all(torch.equal(saved[k], v) for k, v in weights.items())
        if golden and number == 0 and name in ("gpt2", "llama3"):
            write_golden(f"lora_{name}", (folder / "adapter_config.json").read_bytes(), weights, expected)
    grads = {k: family.worst(got[k], v) for k, v in expected.items() if k.startswith("grad.")}
    logits, losses = (got["logits"] - expected["logits"]).abs().max().item(), (got["losses"] - expected["losses"]).abs().max().item()
    joined, back = (after - expected["logits"][0]).abs().max().item(), (theirs - expected["logits"]).abs().max().item()
    good = max(logits, losses, joined, back, *grads.values()) <= LIMIT and same and len(grads) == len(weights)
    print(f"{name} {options['target_modules']}: logits {logits:.1e}, {len(grads)} gradients {max(grads.values()):.1e}, losses {losses:.1e}, "
          f"merged {joined:.1e}, in PEFT again {back:.1e}, weights {'equal' if same else 'DIFFERENT'}{'' if good else '  FAILED'}")
    failed |= not good


print(f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}")
for name, cases in CASES.items():
    for number, options in enumerate(cases):
        compare(name, number, options)
sys.exit(failed)
