#!/usr/bin/env python3
"""Writes golden/NAME.safetensors for each model of family.py: its config.json, weights, tokens, and what transformers computes from
them. Needs torch and transformers; the tests need only the files. Usage: make_golden_models.py FOLDER [NAME...]"""
import json
import pathlib
import struct
import sys
import tempfile

import torch
import transformers

import family


def write(path, tensors):
    """safetensors by hand, so that our reader meets a file that it did not write."""
    kinds = {torch.float32: "F32", torch.int32: "I32", torch.uint8: "U8"}
    header, data = {"__metadata__": {"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}"}}, b""
    for name, t in tensors.items():
        raw = t.detach().contiguous().numpy().tobytes()
        header[name] = dict(dtype=kinds[t.dtype], shape=list(t.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def config_of(model):
    with tempfile.TemporaryDirectory() as saved:
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(saved)
        return torch.tensor(list(pathlib.Path(saved, "config.json").read_bytes()), dtype=torch.uint8)


folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
wanted = sys.argv[2:] or [*family.CONFIGS, *family.ENCODERS]
for name in filter(wanted.__contains__, family.ENCODERS):
    model = family.make_encoder(name)
    data = family.encoder_batches(model)
    out = {"config": config_of(model)}
    out.update({f"weight.{k}": p.detach().clone() for k, p in model.named_parameters()})
    out.update({k: v if k == "weights" else v.to(torch.int32) for k, v in data.items()})
    out.update(family.measure_encoder(model, data))
    write(folder / f"{name}.safetensors", out)
for name in filter(wanted.__contains__, family.CONFIGS):
    model = family.make(name)
    out = {"config": config_of(model)}
    out.update({f"weight.{k.removeprefix('transformer.')}": p.detach().clone() for k, p in model.named_parameters()})
    data = family.batches(37)
    out["tokens"], out["targets"] = data[:, :, :-1].to(torch.int32), data[:, :, 1:].to(torch.int32)
    out.update({k.replace("grad.transformer.", "grad."): v for k, v in family.measure(model, data).items()})
    write(folder / f"{name}.safetensors", out)
