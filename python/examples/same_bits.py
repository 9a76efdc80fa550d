"""The same weights on any number of ranks:

    python same_bits.py; torchrun --nproc-per-node 2 same_bits.py; torchrun --nproc-per-node 4 same_bits.py

Each prints the same digest."""
import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn

import lockstep_torch

torch.set_num_threads(1)
if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    dist.init_process_group("lockstep")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1))
model = lockstep_torch.DataParallel(net, slots=4)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
x = torch.randn(4096, 64)
y = x.sin().sum(1, keepdim=True)
for rows in lockstep_torch.Sampler(len(x), batch_size=16, slots=4):
    if model.backward(nn.functional.mse_loss(model(x[rows]), y[rows]), weight=len(rows)):
        optimizer.step()
        optimizer.zero_grad()
if int(os.environ.get("RANK", 0)) == 0:
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest())
if dist.is_initialized():
    dist.destroy_process_group()
