"""The loss is read in every step."""

from model_jax import batch, train_step, weights
from observed import Observed, steps

import runwatch

state, data = weights(), batch()
run = runwatch.init("jax_sync")
truth = Observed()
step = truth.device(train_step)
for number in range(steps()):
    with run.step(number):
        state, loss = step(state, data)
        run.log(loss=float(loss))
truth.close()
run.finish()
