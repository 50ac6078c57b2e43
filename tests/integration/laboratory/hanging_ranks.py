"""Hangs of jobs of four ranks (torch.distributed, Gloo): one rank keeps the others waiting."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import cast

from tests.integration.laboratory.case import Scene, Shelf

WORLD, CULPRIT = 4, 2
hang = Shelf(hangs=True, world=WORLD)


def together() -> None:
    """What every rank does in a step."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(16))


@hang("a rank that skips a collective", culprit=CULPRIT)
def skips(scene: Scene) -> None:
    import torch.distributed as dist

    if scene.rank != CULPRIT:
        together()
    dist.barrier()  # here: skips


@hang("a rank that calls collectives in another order", culprit=CULPRIT)
def order(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    if scene.rank == CULPRIT:
        dist.broadcast(torch.ones(16), 0)  # here: order
    together()
    dist.broadcast(torch.ones(16), 0)


@hang("a rank whose dataset waits for a socket", culprit=CULPRIT)
def loads(scene: Scene) -> None:
    import torch.utils.data

    if scene.rank == CULPRIT:
        silent = cast("torch.utils.data.Dataset[int]", _Silent())
        next(iter(torch.utils.data.DataLoader(silent, batch_size=None)))
    together()


class _Silent:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            return len(ours.recv(1))  # here: loads


@hang("a rank that waits for a lock while the others are at a barrier", culprit=CULPRIT)
def locked(scene: Scene) -> None:
    import torch.distributed as dist

    lock = threading.Lock()
    if scene.rank == CULPRIT:
        lock.acquire()
        lock.acquire()  # here: locked
    dist.barrier()


@hang("a rank that sleeps", culprit=CULPRIT)
def sleeps(scene: Scene) -> None:
    if scene.rank == CULPRIT:
        time.sleep(3600)  # here: sleeps
    together()


@hang("a rank that was stopped", culprit=CULPRIT, marks=False)
def rank_stopped(scene: Scene) -> None:
    if scene.rank == CULPRIT:
        os.kill(os.getpid(), signal.SIGSTOP)
    together()


@hang("a rank that reads from a pipe after it was the only one to write a checkpoint")
def after_checkpoint(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    if scene.rank == 0:
        torch.save({"weights": torch.ones(1000)}, scene.folder / "model.pt")
        os.read(os.pipe()[0], 1)  # here: after_checkpoint
    dist.barrier()
