#!/usr/bin/env python3
"""ResNets, checked with torchvision: logits, all gradients, the losses of 10 steps of SGD, buffers, and folders there and back. Needs torch,
torchvision and safetensors, so it is no part of `make test`:

  tests/nn/check_torchvision.py [BUILD] [MODEL...]

Prints the largest difference of each from what torch computes in double, relative to the largest value of the tensor; exits 1 if one is above 1e-4. Which
side of 0 an input of a ReLU is on can hang on a rounding, and one that is on the other side is an error of the gradients that has nothing to do with how they are
computed: torch's own float32 is then up to 45 % off. So norms have scales and biases that keep most inputs away from 0, and the seed is the first one with
which torch in float32 is within half of the limit of torch in double. Buffers are compared after ten steps, in which that happens again: twice torch's error is allowed. With --sync instead:
`lockstep train --sync-norm` on 2 ranks, whose norms are over all 4 micro-batches of a step, as torch on one large batch is (torch's SyncBatchNorm has no CPU version):
losses and statistics of 10 steps, the latter as above. With --curve instead: the loss of 200 steps of resnet20 on CIFAR-shaped pictures from the same weights and batches as torch's, which must stay within 1 %."""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision
from safetensors.torch import load_file, save_file

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
from torch_images import SIZES, make

LIMIT, STEPS, LR = 1e-4, 10, 1e-3
arguments = [x for x in sys.argv[1:] if not x.startswith("--")]
build = pathlib.Path(arguments[0] if arguments else "build")
failed = False


def worst(a, b):
    """The largest difference, relative to the largest value."""
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-12)).item()


def report(name, what, difference, limit=LIMIT):
    global failed
    print(f"{name}: {what}: {difference:.1e}", flush=True)
    failed |= not difference <= limit


def randomize(model):
    """Norms that do something, and running statistics that are not the initial ones."""
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            sign = torch.randint(0, 2, (m.num_features,)) * 2 - 1
            with torch.no_grad():
                m.weight.uniform_(0.5, 0.6)
                m.bias.copy_(sign * torch.empty(m.num_features).uniform_(1, 1.2))
                m.running_mean.normal_(0, 0.2)
                m.running_var.uniform_(0.5, 1.5)


def probe(folder, name, model, images, targets, size, classes):
    """Saves the model in `folder` and returns what lockstep computes."""
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(dict(architecture=name, num_classes=classes,
                                                        pretrained_cfg=dict(input_size=[3, size, size]))))
    save_file(dict(images=images.permute(0, 1, 3, 4, 2).contiguous(), targets=targets.to(torch.int32)), folder / "in.safetensors")
    subprocess.run([build / "tests" / "probe_images", folder, folder / "in.safetensors", folder / "saved", folder / "out.safetensors"], check=True)
    return load_file(folder / "out.safetensors")


def steps(model, images, targets, lr=LR):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.train()
    for x, y in zip(images, targets):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        yield loss.item()
        optimizer.step()


def decided(name, rows, size, classes):
    """A model and batches whose gradients float32 can decide, by torch alone."""
    for seed in range(1, 100):
        torch.manual_seed(seed)
        model = make(name, classes)
        randomize(model)
        images, targets = torch.randn(STEPS, rows, 3, size, size), torch.randint(0, classes, (STEPS, rows))
        exact, single = make(name, classes).double(), make(name, classes)
        exact.load_state_dict(model.state_dict())
        single.load_state_dict(model.state_dict())
        truth, near = train(exact, images[:1].double(), targets[:1]), train(single, images[:1], targets[:1])
        if max(worst(near[k], truth[k]) for k in truth if k.startswith("grad.")) < LIMIT / 2:
            return model, images, targets
    sys.exit(f"{name}: no seed of 99 with which torch's float32 is near its double")


def check(name, rows=4, size=64, classes=10):
    model, images, targets = decided(name, rows, size, classes)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        ours = probe(folder, name, model, images, targets, size, classes)
        saved = load_file(folder / "saved" / "model.safetensors")
    same = saved.keys() == model.state_dict().keys() and all(torch.equal(saved[k], v) for k, v in model.state_dict().items())
    report(name, "state_dict that is read and saved", 0 if same else 1)
    exact = make(name, classes).double()
    exact.load_state_dict(model.state_dict())
    with torch.no_grad():
        report(name, "logits", worst(ours["logits"], exact.eval()(images[0].double()).float()))
    truth, single = train(exact, images.double(), targets), train(model, images, targets)
    for what, prefix in ("gradients", "grad."), (f"losses of {STEPS} steps", "losses"), ("buffers after them", "buffer."):
        mine, torchs = (max(worst(x[k], truth[k]) for k in truth if k.startswith(prefix)) for x in (ours, single))
        report(name, f"{what} (torch in float32: {torchs:.1e})", mine, max(LIMIT, 2 * torchs) if prefix == "buffer." else LIMIT)


def train(model, images, targets):
    """What probe_images computes, by torch."""
    out, losses = {}, []
    for i, loss in enumerate(steps(model, images, targets)):
        losses.append(loss)
        if i == 0:
            out.update({"grad." + k: p.grad.float().clone() for k, p in model.named_parameters()})
    out.update({"buffer." + k: v.float() for k, v in model.named_buffers()}, losses=torch.tensor(losses))
    return out


def curve():
    """The losses of 200 steps at batch 32 on ten classes of pictures."""
    torch.manual_seed(2)
    count, rows, size = 200, 32, 32
    model = make("resnet20", 10)
    base = torch.randn(10, 3, size, size)
    targets = torch.randint(0, 10, (count, rows))
    images = 0.5 * base[targets] + torch.randn(count, rows, 3, size, size)
    with tempfile.TemporaryDirectory() as folder:
        ours = probe(pathlib.Path(folder), "resnet20", model, images, targets, size, 10)["losses"]
    theirs = torch.tensor(list(steps(model, images, targets)))
    for i in range(0, count, 20):
        print(f"steps {i:3} to {i + 19:3}: loss {ours[i:i + 20].mean():.4f}, torch {theirs[i:i + 20].mean():.4f}")
    report("resnet20", "mean of 20 losses, over 200 steps", max(abs(ours[i:i + 20].mean() / theirs[i:i + 20].mean() - 1).item() for i in range(0, count, 20)), 0.01)


def synced(rows=16, size=32):
    """Losses, weights and statistics of resnet20 on 2 ranks with synchronized norms, beside torch on the whole batch."""
    torch.manual_seed(4)
    model = make("resnet20", 10)
    pixels, targets = torch.randint(0, 256, (STEPS, rows, 3, size, size), dtype=torch.uint8), torch.randint(0, 10, (STEPS, rows))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(dict(architecture="resnet20", num_classes=10, pretrained_cfg=dict(
            input_size=[3, size, size], mean=[0.5] * 3, std=[0.25] * 3))))
        (folder / "data.bin").write_bytes(b"".join(bytes([y]) + x.numpy().tobytes() for x, y in zip(pixels.flatten(0, 1), targets.flatten().tolist())))
        subprocess.run([build / "bin/lockstep", "train", "--task", "images", "--init", folder, "--data", folder / "data.bin", "--order", "sequential", "--augment",
                        "none", "--sync-norm", "-n", "2", "--slots", "4", "--batch-size", str(rows // 4), "--steps", str(STEPS), "--optimizer", "sgd", "--lr", str(LR),
                        "--schedule", "constant", "--warmup", "0", "--clip", "0", "--threads", "1", "--run-dir", folder / "run", "--quiet"], check=True)
        losses = [json.loads(line)["loss"] for line in open(folder / "run/metrics.jsonl")]
        ours = load_file(folder / "run/model.safetensors")
    exact = make("resnet20", 10).double()
    exact.load_state_dict(model.state_dict())
    images = (pixels.double() / 255 - 0.5) / 0.25
    truth = torch.tensor(list(steps(exact, images, targets)))
    single = torch.tensor(list(steps(model, images.float(), targets)))
    mine, torchs = worst(torch.tensor(losses), truth), worst(single, truth)
    report("resnet20, synchronized norms", f"losses of {STEPS} steps, {losses[0]:.4f} to {losses[-1]:.4f} (torch in float32: {torchs:.1e})", mine)
    for what, kind in ("means", "running_mean"), ("variances", "running_var"), ("weights", "weight"):
        mine, torchs = (max(worst(x[k].double(), v) for k, v in exact.state_dict().items() if k.endswith(kind)) for x in (ours, model.state_dict()))
        report("resnet20, synchronized norms", f"{what} after them (torch in float32: {torchs:.1e})", mine, max(LIMIT, 2 * torchs))


print(f"torch {torch.__version__}, torchvision {torchvision.__version__}")
if "--curve" in sys.argv:
    curve()
elif "--sync" in sys.argv:
    synced()
else:
    for model in arguments[1:] or ("resnet18", "resnet34", "resnet50", "resnet20"):
        check(model, size=16 if model in SIZES else 64)
sys.exit(failed)
