"""A program that only logs: python logs.py [HOW IT ENDS]"""

from __future__ import annotations

import sys

import ways
from tensorboardX import SummaryWriter


def main(end: str = "well") -> None:
    ways.listen()
    writer = SummaryWriter("/tmp/logs")
    for step in range(5):
        writer.add_scalar("loss", 1 / (step + 1), step)
    ways.wait()
    ways.ENDS[end]()


if __name__ == "__main__":
    main(*sys.argv[1:])
