"""A straight line learns to fit points.  Standard library only, about two seconds."""

from __future__ import annotations

import random
import time

import runwatch

Batch = list[tuple[float, float]]


def batches(count: int, size: int, seed: int) -> list[Batch]:
    """Points around y = 3x + 2."""
    chance = random.Random(seed)

    def point() -> tuple[float, float]:
        x = chance.uniform(-1, 1)
        return x, 3 * x + 2 + chance.gauss(0, 0.1)

    return [[point() for _ in range(size)] for _ in range(count)]


def main() -> None:
    config = {"learning_rate": 0.1, "batch_size": 32, "steps": 200, "seed": 7}
    slope = intercept = 0.0
    with runwatch.init("first-run", group="examples", config=config) as run:
        loader = batches(run.config.steps, run.config.batch_size, run.config.seed)
        for step, batch in run.steps(loader):
            errors = [slope * x + intercept - y for x, y in batch]
            loss = sum(e * e for e in errors) / len(batch)
            slope -= (
                run.config.learning_rate
                * sum(2 * e * x for e, (x, _) in zip(errors, batch, strict=True))
                / len(batch)
            )
            intercept -= run.config.learning_rate * sum(2 * e for e in errors) / len(batch)
            run.log(loss=loss, slope=slope, intercept=intercept)
            time.sleep(0.005)  # a real step has work to do
            if step % 50 == 49:
                with run.span("checkpoint_save"):
                    time.sleep(0.05)
    print(f"y = {slope:.2f} x + {intercept:.2f}")


if __name__ == "__main__":
    main()
