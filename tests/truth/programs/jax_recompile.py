"""Halfway through the batch gets another shape, and the step is compiled again."""

from model_jax import ROWS, batch, train_step, weights
from observed import Observed, steps

import runwatch

state, count = weights(), steps()
before, after = batch(ROWS), batch(ROWS // 2)
run = runwatch.init("jax_recompile")
truth = Observed()
step = truth.device(train_step)
for number in range(count):
    with run.step(number):
        state, loss = step(state, before if number < count // 2 else after)
        if number % 10 == 9:
            print(number, float(loss))
print("at the end", float(loss))
truth.close()
run.finish()
