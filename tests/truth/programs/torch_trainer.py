"""A loop like that of a well-known trainer: log every 10 steps, evaluate and save every 50."""

import sys
from pathlib import Path

import torch
from model_torch import batch, loss_of, model, optimizer
from observed import Observed, steps

import runwatch

LOG, EVALUATE, SAVE = 10, 50, 50
checkpoint = Path(sys.argv[1]).with_suffix(".pt")

network = model()
update, data = optimizer(network), batch()
moments = torch.zeros(8 << 20)  # as an optimizer with a large state would save
total = torch.zeros(())
run = runwatch.init("torch_trainer")
truth = Observed()
for number in range(steps()):
    with run.step(number), truth.computing():
        update.zero_grad()
        loss = loss_of(network, data)
        loss.backward()
        update.step()
        total += loss.detach()
    if number % LOG == LOG - 1:
        run.log(loss=total.item() / LOG)
        total.zero_()
    if number % EVALUATE == EVALUATE - 1:
        with run.span("evaluation"), truth.doing("evaluation"), torch.no_grad():
            losses = [loss_of(network, data).item() for _ in range(40)]
        run.log(eval_loss=sum(losses) / len(losses))
    if number % SAVE == SAVE - 1:
        with truth.doing("checkpoint_save"):
            torch.save({"network": network.state_dict(), "moments": moments}, checkpoint)
checkpoint.unlink(missing_ok=True)
truth.close()
run.finish()
