#!/usr/bin/env python3
"""What torch's users do about ranks that die, with the model of bench/elastic.

  torchrun --nproc-per-node 2 --max-restarts 100 torch_elastic.py FILE
      DistributedDataParallel over Gloo, with a checkpoint after every step in memory (/dev/shm). All workers are restarted and continue from it.
  TORCHFT_LIGHTHOUSE=http://... RANK=i torch_elastic.py FILE
      torchft, with one process per replica group. Survivors continue with the mean over those that are left; one that is started again gets the state from
      another.

Adds a line with the time, the step and the number of processes that took part to FILE after each step (torchrun: of rank 0)."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, VOCAB, BATCH, SEQ = 4, 192, 4, 8192, 4, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.attention(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.narrow(F.gelu(self.wide(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(SEQ, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy((self.norm(h) @ self.tokens.weight.T).flatten(0, 1), y.flatten())


torch.set_num_threads(1)
torch.set_flush_denormal(True)
rank, model = int(os.environ["RANK"]), GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)


def train_step(parallel, step):
    torch.manual_seed(1000 * step + rank)
    x, y = torch.randint(0, VOCAB, (2, BATCH, SEQ))
    parallel(x, y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def note(step, ranks):
    with open(sys.argv[1], "a") as f:
        f.write(f"{time.time()} {step} {ranks}\n")


def under_torchrun():
    torch.distributed.init_process_group("gloo")
    step, checkpoint = 0, f"/dev/shm/torch_elastic-{os.environ['TORCHELASTIC_RUN_ID']}.pt"
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    while True:
        optimizer.zero_grad(set_to_none=True)
        train_step(parallel, step)
        optimizer.step()
        step += 1
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, checkpoint + ".new")
            os.rename(checkpoint + ".new", checkpoint)
            note(step, 2)


def with_torchft():
    import torchft

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(), load_state_dict=load, min_replica_size=1, rank=0, world_size=1, store_addr="localhost",
                              state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, store_port=store.port,
                              replica_id=f"replica{rank}")
    parallel, managed = torchft.DistributedDataParallel(manager, model), torchft.Optimizer(manager, optimizer)
    while True:
        before = manager.current_step()
        managed.zero_grad()  # joins the quorum
        train_step(parallel, before)
        managed.step()
        if manager.current_step() > before:
            note(manager.current_step(), manager.num_participants())


with_torchft() if "TORCHFT_LIGHTHOUSE" in os.environ else under_torchrun()
