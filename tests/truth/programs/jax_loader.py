"""A loader that takes its time: `jax_loader.py TRUTH STEPS MILLISECONDS EVERY [logged]`.

A few milliseconds are hidden behind what the device still has to do; many are not.  With `logged`
every loss is logged as it is, still on its way.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

from model_jax import batch, train_step, weights
from observed import Observed, steps

import runwatch

SECONDS, EVERY = float(sys.argv[3]) / 1000, int(sys.argv[4])
LOGGED = "logged" in sys.argv


def loader(count: int) -> Iterator[Any]:
    data = batch()
    for _ in range(count):
        time.sleep(SECONDS)
        yield data


state = weights()
run = runwatch.init("jax_loader")
truth = Observed()
step = truth.device(train_step)
for number, data in run.steps(truth.loading(loader(steps()))):
    state, loss = step(state, data)
    if LOGGED:
        run.log(loss=loss)
    if number % EVERY == EVERY - 1:
        print(number, float(loss))
print("at the end", float(loss))
truth.close()
run.finish()
