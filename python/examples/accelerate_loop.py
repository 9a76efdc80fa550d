"""An Accelerate loop, unchanged; the environment decides what carries its data and whether it is recorded:

    LOCKSTEP_TORCH=1 LOCKSTEP_RECORD=runs/accelerate torchrun --nproc-per-node 2 accelerate_loop.py && lockstep report runs/accelerate"""
import torch
from accelerate import Accelerator
from torch import nn

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(2048, 64)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sin().sum(1, keepdim=True)), batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for inputs, targets in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
accelerator.print(f"backend {torch.distributed.get_backend()}, loss {accelerator.gather(loss.detach()).mean().item():.3f}")
accelerator.end_training()
