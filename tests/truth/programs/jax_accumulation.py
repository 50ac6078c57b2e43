"""Gradients of eight small batches make one step; the loss is read every tenth."""

from typing import Any

import jax
from model_jax import ROWS, Weights, batch, loss_of, updated, weights
from observed import Observed, steps

import runwatch

EIGHT = 8


@jax.jit
def add_gradient(weights: Weights, total: Weights, batch: Any) -> tuple[Weights, Any]:
    loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
    return [t + g / EIGHT for t, g in zip(total, gradient, strict=True)], loss


@jax.jit
def apply(weights: Weights, total: Weights) -> tuple[Weights, Weights, Any]:
    new = updated(weights, total)
    return new, [t * 0 for t in total], new[0][0, 0]


state, data = weights(), batch(ROWS // EIGHT)
total = [layer * 0 for layer in state]
run = runwatch.init("jax_accumulation")
truth = Observed()
accumulate, finish = truth.device(add_gradient), truth.device(apply)
for number in range(steps()):
    with run.step(number):
        for _ in range(EIGHT):
            total, loss = accumulate(state, total, data)
        state, total, _ = finish(state, total)
        if number % 10 == 9:
            run.log(loss=float(loss))
truth.close()
run.finish()
