"""Runwatch's own threads are left out of a trace; those of the program that look alike stay."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import runwatch
from runwatch.traces.own_threads import XLA_FUNCTIONS
from runwatch.traces.summary import summarise
from tests.unit.traces.building import Plane, complete, kineto, written, xspace

MS = 1_000_000
BEGINNING = (
    "$threading.py:988 _bootstrap", "$threading.py:1028 _bootstrap_inner", "$threading.py:971 run",
)  # fmt: skip


def operations(file: Path) -> dict[str, int]:
    return {each.name: each.self_ns for each in summarise(file).host_operations}


def of_lines(tmp_path: Path, *lines: tuple[str, ...]) -> dict[str, int]:
    """Each line's functions are called by one another, the last for 9 ms."""
    plane = Plane("/host:CPU")
    for functions in lines:
        events = [plane.event(name, 0, 10 * MS) for name in functions[:-1]]
        plane.line("python", *events, plane.event(functions[-1], 0, 9 * MS))
    return operations(written(tmp_path / "a.xplane.pb", xspace(plane)))


@pytest.mark.parametrize(
    "functions",
    [
        ("$writer.py:544 keep", "$<unknown> acquire"),
        (*BEGINNING, "$guard.py:92 call", "$recording.py:209 _attend", "$<unknown> acquire"),
        ("$<unknown> accept", "$control.py:130 _serve"),
    ],
)
def test_a_thread_of_ours_in_xla_s_trace(functions: tuple[str, ...], tmp_path: Path) -> None:
    theirs = ("$train.py:3 step", "$<unknown> acquire")
    assert of_lines(tmp_path, functions, theirs) == {
        "$train.py:3 step": MS, "$<unknown> acquire": 9 * MS,
    }  # fmt: skip


@pytest.mark.parametrize(
    "functions",
    [
        (*BEGINNING, "$loader.py:7 fetch", "$<unknown> acquire"),
        ("$<unknown> acquire",),
        ("$train.py:3 step", "$run.py:90 flush", "$pending.py:115 collect"),
        ("$my_writer.py:3 keep", "$<unknown> acquire"),
        ("$writer.py:3 keep_all", "$<unknown> acquire"),
    ],
)
def test_a_thread_of_the_program_in_xla_s_trace(functions: tuple[str, ...], tmp_path: Path) -> None:
    assert of_lines(tmp_path, functions)[functions[-1]] == 9 * MS


def test_the_functions_are_those_of_our_threads() -> None:
    for file, functions in XLA_FUNCTIONS.items():
        tree = ast.parse((Path(runwatch.__file__).parent / file).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert set(functions) <= found, file


def calls(first: int, *names: str, tid: int = 0) -> list[dict[str, Any]]:
    """One calls the next; torch puts threads that it does not know on one track."""
    return [
        complete(name, "python_function", 0, (9 if name is names[-1] else 10) * MS, 100, tid,
                 **{"Python id": first + place,
                    "Python parent id": first + place - 1 if place else None})
        for place, name in enumerate(names)
    ]  # fmt: skip


TORCH_BEGINNING = (
    "threading.py(1002): _bootstrap", "threading.py(1045): _bootstrap_inner",
    "threading.py(982): run",
)  # fmt: skip
LOCK = "<built-in method acquire of _thread.lock object at 0x7f>"


def test_threads_of_ours_in_torch_s_trace(tmp_path: Path) -> None:
    ours = calls(1, *TORCH_BEGINNING, "runwatch/journal/writer.py(542): _keep", LOCK)
    other = calls(9, *TORCH_BEGINNING, "site/runwatch/sdk/control.py(118): _run", "accept")
    step = calls(20, "train.py(11): <module>", "runwatch/sdk/step.py(185): complete", tid=100)
    assert operations(written(tmp_path / "a.json", kineto(*ours, *step, *other))) == {
        "train.py(11): <module>": MS, "runwatch/sdk/step.py(185): complete": 9 * MS,
    }  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        (*TORCH_BEGINNING, "loader.py(3): fetch", "runwatch/sdk/run.py(9): log", LOCK),
        (*TORCH_BEGINNING, "my_runwatch/thing.py(3): wait", LOCK),
        ("runwatch/sdk/run.py(9): finish", LOCK),
        TORCH_BEGINNING,
    ],
)
def test_threads_of_the_program_in_torch_s_trace(names: tuple[str, ...], tmp_path: Path) -> None:
    found = operations(written(tmp_path / "a.json", kineto(*calls(1, *names))))
    assert found[names[-1]] == 9 * MS
    assert sum(found.values()) == 10 * MS
