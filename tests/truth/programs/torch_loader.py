"""A loader that takes its time, and gradients of eight batches in a step."""

import time
from collections.abc import Iterator

import torch
from model_torch import ROWS, batch, loss_of, model, optimizer
from observed import Observed, steps

import runwatch

EIGHT = 8


def loader(count: int) -> Iterator[list[torch.Tensor]]:
    for _ in range(count):
        time.sleep(0.02)
        yield [batch(ROWS // EIGHT) for _ in range(EIGHT)]


network = model()
update = optimizer(network)
run = runwatch.init("torch_loader")
truth = Observed()
for _number, batches in run.steps(truth.loading(loader(steps()))):
    with truth.computing():
        update.zero_grad()
        for data in batches:
            loss = loss_of(network, data)
            (loss / EIGHT).backward()
        update.step()
    run.log(loss=loss)
truth.close()
run.finish()
