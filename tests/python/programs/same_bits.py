"""Trains a small transformer, or a ResNet with batch norms, for some steps of `slots` micro-batches, on however many ranks there are, and
saves the state dict."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import lockstep_torch

out, model_name, slots, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
if int(os.environ["WORLD_SIZE"]) > 1:
    dist.init_process_group("lockstep")
rank = int(os.environ["RANK"])
torch.manual_seed(rank)  # ranks begin with different weights; all get rank 0's


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(97, 32)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 97)

    def forward(self, x):
        return self.head(self.layers(self.embed(x)))


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.skip = nn.Identity() if i == o else nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return torch.relu(self.nb(self.b(torch.relu(self.na(self.a(x))))) + self.skip(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1), Block(16, 32, 2))
        self.head = nn.Linear(32, 97)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def sample(i):
    generator = torch.Generator().manual_seed(i)
    if model_name == "transformer":
        tokens = torch.randint(0, 97, (17,), generator=generator)
        return tokens[:-1], tokens[1:]
    return torch.randn(3, 16, 16, generator=generator), torch.randint(0, 97, (), generator=generator)


model = Transformer() if model_name == "transformer" else ResNet()
parallel = lockstep_torch.DataParallel(model, slots=slots)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
sampler = lockstep_torch.Sampler(1000, batch_size=3, slots=slots, seed=5)
epoch, done = 0, 0
while done < steps:
    for indices in sampler:
        x, y = (torch.stack(t) for t in zip(*[sample(i) for i in indices]))
        logits = parallel(x)
        loss = nn.functional.cross_entropy(logits.reshape(-1, 97), y.reshape(-1))
        if parallel.backward(loss, weight=y.numel()):
            optimizer.step()
            done += 1
            if done == steps:
                break
if rank == 0:
    torch.save(model.state_dict(), out)  # with the statistics of batch norms
if dist.is_initialized():
    dist.barrier()
    del parallel
    dist.destroy_process_group()
