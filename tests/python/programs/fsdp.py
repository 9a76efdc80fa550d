"""FSDP2 on CPUs: prints a sum over the trained weights."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group(os.environ["BACKEND"])
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
for layer in model[0], model[2], model:
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("sum", sum(p.full_tensor().double().sum().item() for p in model.parameters()))
dist.destroy_process_group()
