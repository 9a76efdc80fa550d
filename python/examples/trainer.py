"""A Hugging Face Trainer on a tiny GPT-2 with random tokens, unchanged:

    LOCKSTEP_TORCH=1 LOCKSTEP_RECORD=runs/trainer torchrun --nproc-per-node 2 trainer.py && lockstep report runs/trainer"""
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2))
tokens = torch.randint(0, 128, (256, 32))
data = [{"input_ids": row, "labels": row} for row in tokens]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, use_cpu=True, max_steps=12, per_device_train_batch_size=4, logging_steps=4, save_strategy="no", report_to=[], disable_tqdm=True, seed=1
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
losses = [f"{entry['loss']:.6f}" for entry in trainer.state.log_history if "loss" in entry]
if trainer.is_world_process_zero():
    print("backend", torch.distributed.get_backend(), "losses", *losses)
