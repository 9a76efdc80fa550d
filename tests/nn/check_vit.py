#!/usr/bin/env python3
"""Vision transformers, checked with transformers' ViTForImageClassification: logits, all gradients, the losses of 10 steps of SGD, and folders there and
back. Needs torch, transformers and safetensors, so it is no part of `make test`:

  tests/nn/check_vit.py [BUILD]

Prints the largest difference of each from what torch computes in double, relative to the largest value; exits 1 if one is above 1e-4."""
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

LIMIT, STEPS, LR = 1e-4, 10, 1e-3
build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
failed = False


def worst(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-12)).item()


def report(name, what, difference):
    global failed
    print(f"{name}: {what}: {difference:.1e}", flush=True)
    failed |= not difference <= LIMIT


def old_name(name):
    """As files have it: transformers 5 renames layers while it reads and writes."""
    for new, old in ((".layers.", ".encoder.layer."), (".attention.q_proj.", ".attention.attention.query."), (".attention.k_proj.", ".attention.attention.key."),
                     (".attention.v_proj.", ".attention.attention.value."), (".attention.o_proj.", ".attention.output.dense."),
                     (".mlp.fc1.", ".intermediate.dense."), (".mlp.fc2.", ".output.dense.")):
        name = name.replace(new, old)
    return name


def steps(model, images, targets):
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    model.train()
    for x, y in zip(images, targets):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pixel_values=x).logits, y)
        loss.backward()
        yield loss.item()
        optimizer.step()


def check(name, rows=4, classes=7, **sizes):
    torch.manual_seed(1)
    config = transformers.ViTConfig(num_labels=classes, **sizes)
    model = transformers.ViTForImageClassification(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    size, channels = config.image_size, config.num_channels
    images, targets = torch.randn(STEPS, rows, channels, size, size), torch.randint(0, classes, (STEPS, rows))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save_pretrained(folder)
        save_file(dict(images=images.permute(0, 1, 3, 4, 2).contiguous(), targets=targets.to(torch.int32)), folder / "in.safetensors")
        subprocess.run([build / "tests" / "probe_images", folder, folder / "in.safetensors", folder / "saved", folder / "out.safetensors"], check=True)
        ours = load_file(folder / "out.safetensors")
        before, after = load_file(folder / "model.safetensors"), load_file(folder / "saved" / "model.safetensors")
        report(name, "weights that are read and saved", 0 if before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before) else 1)
        again = transformers.ViTForImageClassification.from_pretrained(folder / "saved").eval()
    with torch.no_grad():
        report(name, "logits in transformers of the saved folder", worst(again(pixel_values=images[0]).logits, model(pixel_values=images[0]).logits))
    exact = model.double()
    with torch.no_grad():
        report(name, "logits", worst(ours["logits"], exact(pixel_values=images[0].double()).logits))
    losses = []
    for i, loss in enumerate(steps(exact, images.double(), targets)):
        losses.append(loss)
        if not i:
            grads = {old_name(k): p.grad.clone() for k, p in exact.named_parameters()}
    largest = max(g.abs().max() for g in grads.values())
    # The bias of keys changes nothing: its gradient is 0, and what is computed is compared with the largest gradient.
    report(name, f"gradients of {len(grads)} tensors", max(worst(ours["grad." + k], g) if not k.endswith("key.bias") else
                                                           (ours["grad." + k].abs().max() / largest).item() for k, g in grads.items()))
    report(name, f"losses of {STEPS} steps", worst(ours["losses"], torch.tensor(losses)))


print(f"torch {torch.__version__}, transformers {transformers.__version__}")
check("vit 32/4", hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=4)
check("vit 48/16, one channel", hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96, image_size=48, patch_size=16, num_channels=1)
sys.exit(failed)
