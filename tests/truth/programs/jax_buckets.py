"""Batches of four lengths, drawn by lot; each is compiled for when it first comes."""

from random import Random

from model_jax import ROWS, batch, train_step, weights
from observed import Observed, steps

import runwatch

LENGTHS = (ROWS // 4, ROWS // 2, ROWS, 2 * ROWS)

state = weights()
batches = {length: batch(length) for length in LENGTHS}
draw = Random(1)
run = runwatch.init("jax_buckets")
truth = Observed()
step = truth.device(train_step)
for number in range(steps()):
    with run.step(number):
        state, loss = step(state, batches[draw.choice(LENGTHS)])
        if number % 10 == 9:
            print(number, float(loss))
print("at the end", float(loss))
truth.close()
run.finish()
