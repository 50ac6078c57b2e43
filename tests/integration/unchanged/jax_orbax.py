"""A JAX loop with Optax, the step annotation that profilers know, and Orbax checkpoints."""

import os
import sys

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

key = jax.random.key(7)
x = jax.random.normal(key, (256, 8))
y = x @ jnp.arange(8.0)
tool = optax.adam(1e-2)
weights = jnp.zeros(8)
state = tool.init(weights)


@jax.jit
def train(weights, state):
    loss, slope = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
    change, state = tool.update(slope, state)
    return optax.apply_updates(weights, change), state, loss


with ocp.CheckpointManager(os.path.join(sys.argv[1], "orbax")) as checkpoints:
    for step in range(40):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            weights, state, loss = train(weights, state)
            loss.block_until_ready()
        if step % 20 == 19:
            checkpoints.save(step, args=ocp.args.StandardSave({"weights": weights}))
    checkpoints.wait_until_finished()
print(f"loss {float(loss):.7f}")
