"""A program that writes TensorBoard's files."""

import sys

from torch.utils.tensorboard import SummaryWriter

with SummaryWriter(sys.argv[1]) as writer:
    for step in range(30):
        writer.add_scalar("train/loss", 1 / (step + 1), step)
    writer.add_scalars("rate", {"up": 1.0, "down": 2.0}, 3)
print("written")
