"""Every loss is logged as it is, still on its way: nobody waits for the device before the end."""

from model_jax import batch, train_step, weights
from observed import Observed, steps

import runwatch

state, data = weights(), batch()
run = runwatch.init("jax_log")
truth = Observed()
step = truth.device(train_step)
for number in range(steps()):
    with run.step(number):
        state, loss = step(state, data)
        run.log(loss=loss)
print("at the end", float(loss))
truth.close()
run.finish()
