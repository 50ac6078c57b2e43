"""A small network in JAX, as big as makes a step of some tens of milliseconds on a CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, ROWS, LAYERS = 320, 512, 4
Weights = list[Any]


def weights() -> Weights:
    random = np.random.default_rng(0)
    layers = random.normal(0, WIDTH**-0.5, (LAYERS, WIDTH, WIDTH)).astype(np.float32)
    return [jax.device_put(layer) for layer in layers]


def batch(rows: int = ROWS) -> Any:
    return jax.device_put(np.ones((rows, WIDTH), np.float32))


def loss_of(weights: Weights, batch: Any) -> Any:
    for layer in weights:
        batch = jnp.tanh(batch @ layer)
    return (batch * batch).mean()


def updated(weights: Weights, gradient: Weights) -> Weights:
    return [w - 0.01 * g for w, g in zip(weights, gradient, strict=True)]


@jax.jit
def train_step(weights: Weights, batch: Any) -> tuple[Weights, Any]:
    loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
    return updated(weights, gradient), loss
