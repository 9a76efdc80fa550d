"""Plain DDP, with one line for the recorder:

    torchrun --nproc-per-node 2 ddp.py && lockstep report runs/torch"""
import torch
import torch.distributed as dist
from torch import nn

import lockstep_torch

lockstep_torch.record("runs/torch")
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

x = torch.randn(4096, 64)
dataset = torch.utils.data.TensorDataset(x, x.sin().sum(1, keepdim=True))
sampler = lockstep_torch.Sampler(dataset, batch_size=32)
loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
for epoch in range(2):
    for inputs, targets in sampler.batches(loader):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}")
dist.destroy_process_group()
