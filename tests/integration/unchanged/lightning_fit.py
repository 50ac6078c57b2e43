"""Lightning: fit, with validation and a checkpoint."""

import logging
import sys
import warnings

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pl.seed_everything(7)
torch.set_num_threads(1)
x = torch.randn(128, 8)
y = x @ torch.arange(8.0)


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        loss = ((self.layer(batch[0]).squeeze(1) - batch[1]) ** 2).mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", ((self.layer(batch[0]).squeeze(1) - batch[1]) ** 2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


model = Line()
trainer = pl.Trainer(
    max_epochs=2,
    default_root_dir=sys.argv[1],
    enable_progress_bar=False,
    enable_model_summary=False,
    log_every_n_steps=2,
    accelerator="cpu",
    logger=False,
)
trainer.fit(
    model,
    DataLoader(TensorDataset(x, y), batch_size=16),
    DataLoader(TensorDataset(x, y), batch_size=64),
)
print(f"{float(trainer.callback_metrics['val_loss']):.7f} after {trainer.global_step} steps")
