"""Lightning: two batches a step, a validation and a checkpoint after each epoch."""

import sys
import time

import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
lightning.seed_everything(0)


class Numbers(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), index / 24), torch.tensor([index % 2.0])


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", torch.nn.functional.mse_loss(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


trainer = lightning.Trainer(
    max_epochs=2,
    accumulate_grad_batches=2,
    default_root_dir=sys.argv[1],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    log_every_n_steps=1,
    accelerator="cpu",
)
trainer.fit(Model(), DataLoader(Numbers(), 4, shuffle=True), DataLoader(Numbers(), 8))
print({name: value.item() for name, value in sorted(trainer.callback_metrics.items())})
