"""Trains a small transformer, or a convolutional net with batch norms, for some steps of `slots` micro-batches, on however many ranks there are, and
saves the weights."""
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


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.b, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 97)

    def forward(self, x):
        x = torch.relu(self.norm(self.a(x)))
        return self.head((x + torch.relu(self.b(x))).mean((2, 3)))


def sample(i):
    generator = torch.Generator().manual_seed(i)
    if model_name == "transformer":
        tokens = torch.randint(0, 97, (17,), generator=generator)
        return tokens[:-1], tokens[1:]
    return torch.randn(3, 8, 8, generator=generator), torch.randint(0, 97, (), generator=generator)


model = Transformer() if model_name == "transformer" else Convolutions()
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
    torch.save({name: p.detach().clone() for name, p in model.named_parameters()}, out)
if dist.is_initialized():
    dist.barrier()
    del parallel
    dist.destroy_process_group()
