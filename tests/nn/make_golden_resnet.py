#!/usr/bin/env python3
"""Writes golden_resnet.h: what torchvision's resnet18 and resnet50 compute, in double, from weights and images that test_resnet.c makes with the same
small hash: logits in evaluation, and the loss and the norm of each gradient in training. Needs torch and torchvision; the test needs only the file."""
import pathlib
import sys

import torch
import torchvision

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tensor"))
from make_goldens import values

ROWS, SIZE, CLASSES = 3, 64, 5


def scale(name, shape):
    """(factor, shift) of the hash's values, which are from -1 to 1."""
    if len(shape) == 4:
        return (6 / (shape[0] * shape[2] * shape[3])) ** 0.5, 0
    if name.startswith("fc."):
        return 0.1, 0
    return (0.25, 1) if name.endswith(("weight", "running_var")) else (0.1, 0)


def numbers(x):
    return ", ".join(f"{v:.7g}" for v in x)


def write(out, name):
    model = getattr(torchvision.models, name)(num_classes=CLASSES)
    state = {k: v for k, v in model.state_dict().items() if v.dim()}
    for i, (key, v) in enumerate(sorted(state.items())):
        factor, shift = scale(key, v.shape)
        v.copy_(torch.tensor(values(i + 1, v.numel())).view(v.shape) * torch.tensor(factor, dtype=torch.float32) + shift)
    model = model.double()
    images = torch.tensor(values(999, ROWS * SIZE * SIZE * 3)).view(ROWS, SIZE, SIZE, 3).permute(0, 3, 1, 2).double() * 1.5
    logits = model.eval()(images).detach().flatten().tolist()
    loss = torch.nn.functional.cross_entropy(model.train()(images), torch.arange(ROWS) + 1)
    loss.backward()
    norms = [p.grad.norm().item() for _, p in sorted(model.named_parameters())]
    out.write(f"    {{ \"{name}\", {loss.item():.7g}, {{ {numbers(logits)} }}, {len(norms)}, {{ {numbers(norms)} }} }},\n")


with open(HERE / "golden_resnet.h", "w") as out:
    out.write(f"/* Written by make_golden_resnet.py with torch {torch.__version__}, torchvision {torchvision.__version__}. */\n/* clang-format off */\n"
              f"enum {{ ROWS = {ROWS}, SIZE = {SIZE}, CLASSES = {CLASSES}, MOST_PARAMS = 200 }};\n"
              "static const struct {\n    const char *name;\n    double loss, logits[ROWS * CLASSES];\n    size_t params;\n    double norms[MOST_PARAMS]; /* of gradients, by name */\n} golden[] = {\n")
    for name in "resnet18", "resnet50":
        write(out, name)
    out.write("};\n")
