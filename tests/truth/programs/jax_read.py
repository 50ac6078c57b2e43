"""The loss is read now and then: `jax_read.py TRUTH STEPS EVERY inside|outside`."""

import sys

from model_jax import batch, train_step, weights
from observed import Observed, steps

import runwatch

EVERY, WHERE = int(sys.argv[3]), sys.argv[4]

state, data = weights(), batch()
run = runwatch.init("jax_read")
truth = Observed()
step = truth.device(train_step)
for number in range(steps()):
    due = number % EVERY == EVERY - 1
    with run.step(number):
        state, loss = step(state, data)
        if due and WHERE == "inside":
            print(number, float(loss))
    if due and WHERE == "outside":
        print(number, float(loss))
print("at the end", float(loss))
truth.close()
run.finish()
