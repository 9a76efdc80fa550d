#!/usr/bin/env python3
"""torch's best effort at what `lockstep train --task images` does: a ResNet of torchvision's blocks in float32, SGD with momentum, denormal numbers
flushed; with WORLD_SIZE above 1 under DistributedDataParallel over Gloo. --channels-last: images and weights in that layout, which is often
faster; --compile: through torch.compile. Rank 0 prints one JSON line: median step, images/s, peak resident memory, time to the first step."""
import argparse
import json
import os
import resource
import statistics
import time

start = time.time()
import torch
import torch.nn as nn
import torchvision
from torchvision.models.resnet import BasicBlock

SIZES = dict(resnet20=3, resnet32=5, resnet56=9)


class Cifar(nn.Module):
    """The form for CIFAR of torchvision's blocks."""

    def __init__(self, blocks, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        for stage in range(3):
            width, layers = 16 << stage, []
            for i in range(blocks):
                before, stride = (16 << max(stage - 1, 0), 2 if stage else 1) if i == 0 else (width, 1)
                down = None
                if before != width:
                    down = nn.Sequential(nn.Conv2d(before, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))
                layers.append(BasicBlock(before, width, stride, down))
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def make(name, classes):
    return Cifar(SIZES[name], classes) if name in SIZES else getattr(torchvision.models, name)(num_classes=classes)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="resnet20")
    for name, default in dict(batch=128, size=32, classes=10, steps=6, threads=1).items():
        p.add_argument("--" + name, type=int, default=default)
    for name in "compile", "channels-last", "show-steps":
        p.add_argument("--" + name, action="store_true")
    a = p.parse_args()
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    layout = torch.channels_last if a.channels_last else torch.contiguous_format
    model = make(a.model, a.classes).to(memory_format=layout)
    if world > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    run = torch.compile(model) if a.compile else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    ready, times = time.time() - start, []
    for step in range(a.steps + 2):  # the first two are not counted: memory, compiler
        x = torch.randn(a.batch, 3, a.size, a.size).contiguous(memory_format=layout)
        y = torch.randint(0, a.classes, (a.batch,))
        begin = time.time()
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(run(x), y).backward()
        optimizer.step()
        times.append(time.time() - begin)
        if a.show_steps and rank == 0:
            print("step", step, flush=True)
    step = statistics.median(times[2:])
    if rank == 0:
        print(json.dumps(dict(peer="torch " + torch.__version__, step_s=step, images_per_s=world * a.batch / step,
                              peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, start_s=ready)))
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
