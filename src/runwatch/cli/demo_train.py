"""The demo's training program: one rank of a small data-parallel job, in NumPy.

It learns to tell two spirals apart.  Every rank computes gradients on its own data; rank 0 adds
them up and sends the mean back, so ranks really wait for one another.  Two things go wrong on
purpose: rank 2's data is slow for a while, and rank 1 is killed in the first attempt.

`runwatch demo` runs it.  It reads RANK and WORLD_SIZE, like any such job.  It also writes its own
times to a file, so that tests can compare Runwatch's figures with what really happened.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import runwatch
from runwatch.files import written

Array = NDArray[np.float32]
SLOW_RANK, SLOW_STEPS, SLOW_SECONDS = 2, range(90, 130), 0.08
CRASH_RANK, CRASH_STEP = 1, 230
CHECKPOINT_EVERY = 50
HIDDEN, BATCH, LEARNING_RATE = 96, 128, 0.08


def spirals(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    turns = np.sqrt(rng.random(count)) * 2.2 * np.pi
    label = rng.integers(0, 2, count)
    sign = np.where(label == 1, -1.0, 1.0)
    x = np.stack([np.cos(turns) * turns * sign, np.sin(turns) * turns * sign], axis=1) / 7
    return (x + rng.normal(0, 0.04, x.shape)).astype(np.float32), label.astype(np.float32)


class Model:
    """Two hidden layers on fixed random features; weights live in one flat vector."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.features = rng.normal(0, 2.5, (2, HIDDEN)).astype(np.float32)
        self.shapes = [(2 * HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,)]
        self.weights = np.concatenate(
            [
                (rng.normal(0, (1 / s[0]) ** 0.5, s) if len(s) > 1 else np.zeros(s)).ravel()
                for s in self.shapes
            ]
        ).astype(np.float32)

    def parts(self, flat: Array) -> list[Array]:
        cuts = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        return [p.reshape(s) for p, s in zip(np.split(flat, cuts), self.shapes, strict=True)]

    def loss_and_gradient(self, x: Array, y: Array) -> tuple[float, float, Array]:
        w1, b1, w2, b2 = self.parts(self.weights)
        phase = x @ self.features
        inputs = np.concatenate([np.sin(phase), np.cos(phase)], axis=1)
        hidden = np.maximum(inputs @ w1 + b1, 0)
        logit = (hidden @ w2 + b2)[:, 0]
        p = 1 / (1 + np.exp(-logit))
        loss = float(np.mean(np.logaddexp(0, logit) - y * logit))
        accuracy = float(np.mean((p > 0.5) == (y > 0.5)))
        d_logit = ((p - y) / len(y))[:, None].astype(np.float32)
        d_hidden = (d_logit @ w2.T) * (hidden > 0)
        gradient = [inputs.T @ d_hidden, d_hidden.sum(0), hidden.T @ d_logit, d_logit.sum(0)]
        return loss, accuracy, np.concatenate([g.ravel() for g in gradient]).astype(np.float32)


class Watch:
    """Writes what the program does and when, one line each; the lines survive a SIGKILL."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("a", buffering=1)

    def note(self, what: str, step: int | None = None) -> None:
        self._file.write(json.dumps([what, step, time.time_ns()]) + "\n")


class Mean:
    """All-reduce through rank 0: every rank sends a vector and gets the mean of all."""

    def __init__(self, rank: int, world_size: int, address: str) -> None:
        self.peers: list[Connection] = []
        if rank == 0:
            with Listener(address, "AF_UNIX") as listener:
                self.peers = [listener.accept() for _ in range(world_size - 1)]
        else:
            self.root = _connect(address)

    def of(self, vector: Array) -> Array:
        if not self.peers:
            self.root.send_bytes(vector.tobytes())
            return np.frombuffer(self.root.recv_bytes(), np.float32)
        total = vector.copy()
        for peer in self.peers:
            total += np.frombuffer(peer.recv_bytes(), np.float32)
        total /= len(self.peers) + 1
        for peer in self.peers:
            peer.send_bytes(total.tobytes())
        return total


def _connect(address: str, patience_seconds: float = 30.0) -> Connection:
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return Client(address, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def batches(
    rank: int, first: int, steps: int, slow: bool, watch: Watch
) -> Iterator[tuple[Array, Array]]:
    for step in range(first, steps):
        watch.note("load", step)
        if slow and rank == SLOW_RANK and step in SLOW_STEPS:
            time.sleep(SLOW_SECONDS)  # the injected slow phase: a loader that cannot keep up
        yield spirals(np.random.default_rng((rank, step)), BATCH)


def train(steps: int, checkpoint: Path, address: str, attempt: int) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    watch = Watch(checkpoint.parent / "watch" / f"attempt-{attempt}-rank-{rank}.jsonl")
    watch.note("start")
    settings = {"hidden": HIDDEN, "batch": BATCH, "learning_rate": LEARNING_RATE, "steps": steps}
    run = runwatch.init("demo-spirals", group="demo", config=settings)
    mean, model = Mean(rank, world_size, address), Model(seed=0)
    first = 0
    if checkpoint.exists():
        with run.span("checkpoint_restore"), np.load(checkpoint) as saved:
            model.weights, first = saved["weights"], int(saved["step"])
    data = batches(rank, first, steps, attempt == 1, watch)
    for step, (x, y) in run.steps(data, start=first):
        watch.note("begin", step)
        loss, accuracy, gradient = model.loss_and_gradient(x, y)
        gradient = mean.of(gradient)
        model.weights = model.weights - LEARNING_RATE * gradient
        run.log(loss=loss, accuracy=accuracy, gradient_norm=float(np.linalg.norm(gradient)))
        time.sleep(0.008)  # stands for the time that an accelerator would take
        if rank == 0 and (step + 1) % CHECKPOINT_EVERY == 0:
            with run.span("checkpoint_save"):
                _save(checkpoint, model.weights, step + 1)
        if attempt == 1 and rank == CRASH_RANK and step == CRASH_STEP:
            watch.note("crash", step)
            os.kill(os.getpid(), signal.SIGKILL)  # the injected crash
        watch.note("end", step)
    run.finish()


def _save(path: Path, weights: Array, step: int) -> None:
    with written(path) as file:
        np.savez(file, weights=weights, step=step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--address", required=True)
    arguments = parser.parse_args()
    train(arguments.steps, arguments.checkpoint, arguments.address, arguments.attempt)


if __name__ == "__main__":
    main()
