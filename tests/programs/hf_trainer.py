"""Hugging Face's Trainer: two batches a step, an evaluation and a checkpoint after each epoch."""

import sys
import time

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.set_num_threads(1)


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        time.sleep(0.002)
        words = torch.randint(0, 50, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": torch.tensor(index % 2)}


torch.manual_seed(0)
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
)
trainer = Trainer(
    model,
    TrainingArguments(
        sys.argv[1],
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=Sentences(),
    eval_dataset=Sentences(),
)
trainer.train()
for entry in trainer.state.log_history:
    print({name: value for name, value in entry.items() if name in ("step", "loss", "eval_loss")})
