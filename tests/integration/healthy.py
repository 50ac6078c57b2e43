"""A training program that is well, however it may look: python healthy.py NAME SECONDS SEED

Steps of uneven length, pauses, compiles, checkpoints and evaluations that take longer than the
floor under which nothing counts as a stall.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

import runwatch


@dataclass(frozen=True, slots=True)
class Shape:
    step_seconds: float
    spread: float
    compile_every: int
    checkpoint_every: int
    evaluate_every: int
    long_seconds: float


SHAPES = {
    "short": Shape(0.02, 0.5, 9_000, 4_000, 7_000, 14.0),
    "middle": Shape(0.4, 0.4, 400, 150, 220, 20.0),
    "long": Shape(2.5, 0.35, 90, 40, 60, 30.0),
}


def main(name: str, seconds: float, seed: int) -> None:
    shape, draw = SHAPES[name], random.Random(seed)
    until = time.monotonic() + seconds
    with runwatch.init(f"healthy-{name}") as run:
        with run.span("compile"):
            time.sleep(draw.uniform(0.5, 1.0) * shape.long_seconds)
        for step, _ in run.steps(range(10**9), start=0):
            time.sleep(shape.step_seconds * draw.lognormvariate(0, shape.spread))
            if draw.random() < 0.002:
                time.sleep(min(8.0, 10 * shape.step_seconds))  # a garbage collection, a slow disk
            for kind, every in (
                ("compile", shape.compile_every),
                ("checkpoint_save", shape.checkpoint_every),
                ("evaluation", shape.evaluate_every),
            ):
                if step % every == every - 1:
                    with run.span(kind):
                        time.sleep(draw.uniform(0.5, 1.0) * shape.long_seconds)
            if time.monotonic() > until:
                return


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
