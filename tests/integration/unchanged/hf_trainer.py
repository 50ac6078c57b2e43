"""Hugging Face's Trainer on a tiny GPT-2 with random weights: no download."""

import sys

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils.logging import disable_progress_bar

set_seed(7)
disable_progress_bar()
torch.set_num_threads(1)
tokens = torch.randint(0, 64, (64, 16))
data = [{"input_ids": row, "labels": row} for row in tokens]
small = GPT2Config(
    vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(small)
arguments = TrainingArguments(
    sys.argv[1],
    max_steps=12,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    logging_steps=3,
    eval_strategy="steps",
    eval_steps=6,
    save_steps=6,
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    seed=7,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:8])
trainer.remove_callback(PrinterCallback)  # it prints how fast it was
result = trainer.train()
print(f"training loss {result.training_loss:.7f} after {result.global_step} steps")
