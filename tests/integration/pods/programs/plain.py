"""A training loop that knows nothing of Runwatch: python plain.py [HOW IT ENDS]"""

from __future__ import annotations

import sys

import torch
import ways
from tensorboardX import SummaryWriter

STEPS = 5


def train(first: int) -> None:
    model, writer = torch.nn.Linear(4, 1), SummaryWriter("/tmp/logs")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(first, first + STEPS):
        optimizer.zero_grad()
        model(torch.ones(8, 4)).square().mean().backward()
        optimizer.step()
        writer.add_scalar("loss", 1 / (step + 1), step)


def main(end: str = "well") -> None:
    torch.set_num_threads(1)
    ways.listen()
    train(0)
    ways.wait()
    ways.ENDS[end]()


if __name__ == "__main__":
    main(*sys.argv[1:])
