"""Which runs a hang watch follows; what it finds out about them, integration tests see."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runwatch.head.hangs import HangWatch
from runwatch.head.main import LocalHead
from runwatch.record import (
    BEGIN,
    END,
    Batch,
    Definition,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    SpanName,
)
from tests.integration.processes import until


def steps_of(run: str) -> Batch:
    """All that is ever heard of a process: a few steps, just now."""
    now_ns = time.time_ns()
    origin = Origin(JournalId(f"journal-of-{run}"), "node", 100, now_ns, "boot", 0, "process")
    known: list[Definition] = [
        RunScope(1, RunId(run), run, rank=0, world_size=1),
        SpanName(1, "step", scope=1),
    ]
    batch = Batch(origin, Position(0), Position(1000), known)
    for step in range(5):
        batch.spans.append(1, step + 1, BEGIN, now_ns + 2 * step, step)
        batch.spans.append(1, step + 1, END, now_ns + 2 * step + 1, step)
    return batch


def test_a_run_that_is_first_heard_of_while_another_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = LocalHead(tmp_path)
    entered = HangWatch._entered
    meanwhile = [steps_of("second")]

    def enter(watch: HangWatch, run: RunId, watched: Any, new: Sequence[Any]) -> Any:
        while meanwhile:
            assert head.ingest.submit(meanwhile.pop()).result(60).accepted
        return entered(watch, run, watched, new)

    monkeypatch.setattr(HangWatch, "_entered", enter)
    try:
        head.hangs.start()
        assert head.ingest.submit(steps_of("first")).result(60).accepted
        until(lambda: {"first", "second"} <= head.hangs._watched.keys(), 10)
    finally:
        head.close()
