"""Running a measurement in the interpreter that its tool lives in.

    benchmark.py ── python benchmarks/scalar.py --worker '{"tool": …}' ──▶ a JSON file

Runwatch runs under the interpreter that runs the benchmark, its peers under `.venv-bench`'s.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil
from tools import Tool

HERE = Path(__file__).resolve().parent
PEERS_PYTHON = Path(
    os.environ.get("RUNWATCH_BENCH_PYTHON", HERE.parent / ".venv-bench" / "bin" / "python")
)
NOT_INSTALLED = "not installed"


class TrialFailed(Exception):
    """A measurement itself did not work: the only thing that makes a benchmark exit non-zero."""


@dataclass
class Options:
    quick: bool = False


def python_of(tool: Tool) -> str:
    return sys.executable if tool.is_ours or not tool.module else str(PEERS_PYTHON)


@cache
def is_installed(python: str, module: str) -> bool:
    if not module:
        return True
    if not Path(python).exists():
        return False
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def installed(tool: Tool) -> bool:
    return is_installed(python_of(tool), tool.module)


TOKEN: Final = "of-the-benchmarks"
HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}
METADATA: Final = (("authorization", f"Bearer {TOKEN}"),)
"""What who asks a head says, over HTTP and over gRPC."""


def environment(directory: Path, **more: str) -> dict[str, str]:
    """Ours, without anything that would change what is measured."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH_", "WANDB_"))}
    return kept | {
        "RUNWATCH_DIR": str(directory),
        "RUNWATCH_AGENT": "off",
        "RUNWATCH_TOKEN": TOKEN,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "DO_NOT_TRACK": "true",
        **more,
    }


@contextmanager
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="runwatch-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def worker(
    script: str, python: str, request: dict[str, Any], place: Path, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start one; whatever it started itself is ended with it."""
    with (place / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [python, str(HERE / script), "--worker", json.dumps(request)],
            env=environment(place, **variables),
            cwd=place,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process, children(process))


def ask(
    script: str, tool: Tool, request: dict[str, Any], *, seconds: float = 300, **variables: str
) -> dict[str, Any]:
    """Run one worker to its end and take its answer."""
    with directory() as place:
        request = {"tool": tool.name, "directory": str(place), **request}
        with worker(script, python_of(tool), request, place, **variables) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired as error:
                words = f"{script} for {tool.name} took more than {seconds} s"
                raise TrialFailed(words) from error
        return read_answer(place, f"{script} for {tool.name}")


def answer(place: str | Path, numbers: dict[str, Any]) -> None:
    part = Path(place) / "answer.part"
    part.write_text(json.dumps(numbers))
    part.replace(Path(place) / "answer.json")


def read_answer(place: Path, what: str) -> dict[str, Any]:
    try:
        numbers: dict[str, Any] = json.loads((place / "answer.json").read_text())
        return numbers
    except OSError as error:
        words = (place / "worker.log").read_text(errors="replace")[-2000:]
        raise TrialFailed(f"{what} gave no answer:\n{words}") from error


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        found += psutil.Process(process.pid).children(recursive=True)
    return found


def end(process: subprocess.Popen[bytes], others: list[psutil.Process]) -> None:
    for one in others:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    if process.poll() is None:
        process.kill()
    process.wait()


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TrialFailed(f"not within {seconds} s: {what}")
        time.sleep(0.005)
    return value
