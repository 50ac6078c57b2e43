"""Eager PyTorch on a CPU: whatever is called is done when it returns."""

from model_torch import batch, loss_of, model, optimizer
from observed import Observed, steps

import runwatch

network = model()
update, data = optimizer(network), batch()
run = runwatch.init("torch_sync")
truth = Observed()
for number in range(steps()):
    with run.step(number), truth.computing():
        update.zero_grad()
        loss = loss_of(network, data)
        loss.backward()
        update.step()
    run.log(loss=loss.item())
truth.close()
run.finish()
