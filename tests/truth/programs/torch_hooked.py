"""A loop that does not tell its steps: a loader that takes its time, gradients of some batches in a
step, an evaluation and a checkpoint now and then.  Hooks see all of it."""

import sys
import time
from pathlib import Path

import torch
from model_torch import ROWS, WIDTH, loss_of, model, optimizer
from observed import Observed, steps
from torch.utils.data import DataLoader, Dataset

import runwatch

BATCHES = int(sys.argv[3])
EVALUATE = SAVE = 25
checkpoint = Path(sys.argv[1]).with_suffix(".pt")


class Numbers(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.015 / BATCHES)
        return torch.ones(ROWS // BATCHES, WIDTH)


network = model()
update = optimizer(network)
moments = torch.zeros(8 << 20)  # as an optimizer with a large state would save
run = runwatch.init("torch_hooked", auto=True)
truth = Observed()
batches = truth.loading(DataLoader(Numbers(steps() * BATCHES), batch_size=None))
for number in range(steps()):
    for _ in range(BATCHES):
        data = next(batches)
        with truth.computing():
            loss = loss_of(network, data)
            (loss / BATCHES).backward()
    with truth.computing():
        update.step()
        update.zero_grad()
    if number % EVALUATE == EVALUATE - 1:
        with truth.doing("evaluation"), torch.no_grad():
            for data in truth.loading(DataLoader(Numbers(10), batch_size=None)):
                loss_of(network, data).item()
    if number % SAVE == SAVE - 1:
        with truth.doing("checkpoint_save"):
            torch.save({"network": network.state_dict(), "moments": moments}, checkpoint)
next(batches, None)
checkpoint.unlink(missing_ok=True)
truth.close()
run.finish()
