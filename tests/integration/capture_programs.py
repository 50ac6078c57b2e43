"""Programs that are captured: real torch and JAX on the CPU, with Runwatch and without.

Each counts its steps in a small file that tests look at while it runs.
"""

from __future__ import annotations

import struct
from pathlib import Path


class Steps:
    """How many steps a program has taken, as another process sees it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def taken(self) -> int:
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return 0
        return struct.unpack("<q", data)[0] if len(data) == 8 else 0


COUNTING = """
import mmap, os, struct, sys, time
class Counting:
    def __init__(self, file):
        self._file = open(file, "w+b")
        self._file.truncate(8)
        self._map = mmap.mmap(self._file.fileno(), 8)
        self._taken = 0
    def step(self):
        self._taken += 1
        struct.pack_into("<q", self._map, 0, self._taken)
        time.sleep(0.1)
"""

TORCH_STEP = """
import torch
torch.set_num_threads(1)
layer = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(layer.parameters(), 0.01)
def work():
    layer(torch.ones(8, 32)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

JAX_STEP = """
import jax, jax.numpy as jnp
multiply = jax.jit(lambda x: x @ x)
ones = jnp.ones((64, 64))
def work():
    multiply(ones).block_until_ready()
"""

NO_FRAMEWORK = """
def work():
    pass
"""

# Ranks from one process that has imported torch once: importing takes longer than all the rest.
RANKS = """
def train(rank, world):
    import runwatch
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    counting = Counting(f"{sys.argv[1]}/steps-{rank}")
    run = runwatch.init(sys.argv[2])
    for _ in run.steps(range(10**9)):
        work()
        counting.step()

ranks, world = [int(word) for word in sys.argv[3].split(",")], int(sys.argv[4])
children = []
for rank in ranks[1:]:
    pid = os.fork()
    if pid == 0:
        train(rank, world)
    children.append(pid)
train(ranks[0], world)
"""

PLAIN = """
counting = Counting(f"{sys.argv[1]}/steps-{sys.argv[2]}")
while True:
    work()
    counting.step()
"""

SERVING = """
jax.profiler.start_server(int(os.environ["PROFILER_PORT"]))
"""
