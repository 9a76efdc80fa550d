#!/usr/bin/env python3
"""ResNets, checked with torchvision: logits, all gradients, the losses of 10 steps of SGD, buffers, and folders there and back. Needs torch,
torchvision and safetensors, so it is no part of `make test`:

  tests/nn/check_torchvision.py [BUILD] [MODEL...]

Prints the largest difference of each from what torch computes in double, relative to the largest value; exits 1 if one is above 1e-4 and above twice
that of torch in float32: norms over a few pixels magnify what float32 rounds. With --strict instead: a batch of 16, weights that were trained for a few
steps, and 1e-4 as the only limit, of the norm of each tensor's difference. With --curve [DATA] instead: the loss of 200 steps of resnet20 on
CIFAR-shaped pictures from the same weights and batches as torch's, which must stay within 1 %."""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision
from safetensors.torch import load_file, save_file

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
from torch_images import make

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
    for name, x in model.state_dict().items():
        if "running_var" in name or name.endswith(("bn1.weight", "bn2.weight", "bn3.weight", "downsample.1.weight")):
            x.uniform_(0.5, 1.5)
        elif "running_mean" in name or ("bn" in name and name.endswith("bias")):
            x.normal_(0, 0.2)


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


def check(name, rows=4, size=64, classes=10):
    torch.manual_seed(1)
    model = make(name, classes)
    randomize(model)
    images, targets = torch.randn(STEPS, rows, 3, size, size), torch.randint(0, classes, (STEPS, rows))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        ours = probe(folder, name, model, images, targets, size, classes)
        saved = load_file(folder / "saved" / "model.safetensors")
    same = saved.keys() == model.state_dict().keys() and all(torch.equal(saved[k], v) for k, v in model.state_dict().items())
    report(name, "state_dict that is read and saved", 0 if same else 1)
    def double():
        exact = make(name, classes).double()
        exact.load_state_dict(model.state_dict())
        return exact

    model.eval()
    report(name, "logits", worst(ours["logits"], double().eval()(images[0].double()).float()))
    truth, single = train(double(), images.double(), targets), train(model, images, targets)
    for what, prefix in ("gradients", "grad."), (f"losses of {STEPS} steps", "losses"), ("buffers after them", "buffer."):
        mine, torchs = (max(worst(x[k], truth[k]) for k in truth if k.startswith(prefix)) for x in (ours, single))
        report(name, f"{what} (torch in float32: {torchs:.1e})", mine, max(LIMIT, 2 * torchs))


def distance(a, b):
    """The norm of the difference of two tensors, relative to the norm of the second."""
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30)).item()


def check_strictly(name, rows=16, size=64, classes=10, warm=10):
    """Within 1e-4 of double, whatever torch in float32 is: a batch of 16, from torchvision's initial weights after a few steps, where norms are
    over enough pixels that float32 can be judged. Tensor by tensor."""
    torch.manual_seed(3)
    base = torch.randn(classes, 3, size, size)
    targets = torch.randint(0, classes, (warm + STEPS, rows))
    images = base[targets] + torch.randn(warm + STEPS, rows, 3, size, size)
    exact = make(name, classes).double()
    for _ in steps(exact, images[:warm].double(), targets[:warm], lr=1e-2):
        pass
    model = make(name, classes)
    model.load_state_dict(exact.state_dict())
    exact.load_state_dict(model.state_dict())
    images, targets = images[warm:], targets[warm:]
    with tempfile.TemporaryDirectory() as folder:
        ours = probe(pathlib.Path(folder), name, model, images, targets, size, classes)
    truth, single = train(exact, images.double(), targets), train(model, images, targets)
    for what, prefix in ("gradients", "grad."), (f"losses of {STEPS} steps", "losses"), ("buffers after them", "buffer."):
        mine, torchs = (max(distance(x[k], truth[k]) for k in truth if k.startswith(prefix)) for x in (ours, single))
        report(name, f"batch {rows}, trained for {warm} steps: {what}, by norms of tensors (torch in float32: {torchs:.1e})", mine)


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


print(f"torch {torch.__version__}, torchvision {torchvision.__version__}")
if "--curve" in sys.argv:
    curve()
else:
    for model in arguments[1:] or ("resnet18", "resnet50", "resnet20"):
        check_strictly(model) if "--strict" in sys.argv else check(model)
sys.exit(failed)
