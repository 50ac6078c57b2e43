"""A training program that uses Runwatch: python ours.py [HOW IT ENDS] [STEPS BEFORE IT WAITS]

It logs 0, 1, 2 … as `value`, one more when it was told to go on, and then ends.
"""

from __future__ import annotations

import sys

import ways

import runwatch


def main(end: str = "well", steps: str = "5") -> None:
    ways.listen()
    run = runwatch.init()
    for step, _ in run.steps(range(int(steps))):
        run.log(step=step, value=float(step))
    ways.wait()
    run.log(step=int(steps), value=float(steps))
    ways.ENDS[end]()


if __name__ == "__main__":
    main(*sys.argv[1:])
