"""Programs of one process that are well: what frameworks do between steps (torch, JAX, fsspec)."""

from __future__ import annotations

import io
import multiprocessing
import random
import time
from typing import IO, Any, Final, cast

from tests.integration.laboratory.case import Scene, Shelf
from tests.integration.laboratory.well import clock

well = Shelf(hangs=False)
PIECES: Final = 40


class _SlowDisk(io.RawIOBase):
    """A file on a disk that takes its time."""

    def __init__(self, seconds: float) -> None:
        self._pause = seconds / PIECES
        self._left = PIECES

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._left:
            self._left -= 1
            time.sleep(self._pause)
        return len(data)


def on_slow_disk(seconds: float) -> IO[bytes]:
    return cast(IO[bytes], _SlowDisk(seconds))


def _state() -> dict[str, Any]:
    import torch

    return {f"layer{number}": torch.ones(64, 64) for number in range(PIECES)}


@well("torch.save to a slow disk", "torch")
def slow_disk(scene: Scene) -> None:
    import torch

    torch.save(_state(), on_slow_disk(scene.seconds))


@well("a checkpoint that a child process makes", "torch")
def child_checkpoint(scene: Scene) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_save, args=(scene.seconds,))
    process.start()
    process.join()


def _save(seconds: float) -> None:
    import torch

    torch.save(_state(), on_slow_disk(seconds))


@well("a checkpoint through fsspec to a slow store", "torch", "fsspec")
def fsspec_checkpoint(scene: Scene) -> None:
    import torch
    from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

    class Store(AbstractFileSystem):  # type: ignore[misc]
        pass

    class Upload(AbstractBufferedFile):  # type: ignore[misc]
        def _initiate_upload(self) -> None:
            pass

        def _upload_chunk(self, final: bool = False) -> bool:
            time.sleep(scene.seconds / 3)
            return True

    with Upload(Store(), "store://model", mode="wb", block_size=1 << 18) as file:
        torch.save(_state(), file)


@well("an evaluation without a span", "torch")
def evaluation(scene: Scene) -> None:
    import torch

    model, going = _model(), clock(scene)
    with torch.no_grad():
        while going():
            batch = torch.randn(256, 256)
            model(batch).square().mean().item()


def _model() -> Any:
    import torch

    return torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))


class Trainer:
    """After the one that many people know."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def evaluate(self, going: Any) -> float:
        return self.evaluation_loop(going)

    def evaluation_loop(self, going: Any) -> float:
        total = 0.0
        while going():
            total += self.prediction_step()
        return total

    def prediction_step(self) -> float:
        import torch

        with torch.inference_mode():
            return float(self.model(torch.randn(256, 256)).sum())


@well("an evaluation as Hugging Face's Trainer has it", "torch")
def trainer_evaluation(scene: Scene) -> None:
    Trainer(_model()).evaluate(clock(scene))


@well("a matrix decomposition that takes long", "torch")
def decomposition(scene: Scene) -> None:
    import torch

    going = clock(scene)
    while going():
        torch.linalg.svd(torch.randn(500, 500))


@well("a DataLoader whose workers warm up", "torch")
def warm_up(scene: Scene) -> None:
    import torch.utils.data

    slow = cast("torch.utils.data.Dataset[float]", _Slow(scene.seconds))
    next(iter(torch.utils.data.DataLoader(slow, num_workers=2)))


class _Slow:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        end, found = time.monotonic() + self.seconds, 0.0
        while time.monotonic() < end:
            found += sum(random.random() for _ in range(10_000))
        return found


@well("torch.compile in mid-run", "torch", "torch._dynamo")
def torch_compile(scene: Scene) -> None:
    import torch

    torch.compile(_deep, backend="aot_eager")(torch.randn(3, 8), 300)


def _deep(tensor: Any, depth: int) -> Any:
    for number in range(depth):
        tensor = (tensor * number).sin() + tensor.cos()
    return tensor


@well("JAX compiles for a new shape", "jax")
def jax_compile(scene: Scene) -> None:
    import jax
    import jax.numpy as jnp

    jax.jit(_deep_jax)(jnp.ones((3, 8))).block_until_ready()


def _deep_jax(array: Any) -> Any:
    import jax.numpy as jnp

    for number in range(3500):
        array = jnp.sin(array * number) + jnp.cos(array)
    return array
