"""The disk of the checkpoints goes away in the middle of training."""

import os
import sys

import torch

model = torch.nn.Linear(4, 1)
optimiser = torch.optim.SGD(model.parameters(), 0.1)


def save(step):
    try:
        torch.save(model.state_dict(), os.path.join(sys.argv[1], "gone", f"{step}.pt"))
    except (OSError, RuntimeError) as error:
        missing = FileNotFoundError("no folder 'gone'")
        missing.__context__ = error
        raise RuntimeError("the disk is gone") from missing


for step in range(5):
    model(torch.ones(2, 4)).sum().backward()
    optimiser.step()
    if step == 3:
        save(step)
