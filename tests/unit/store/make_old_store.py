"""What the fixtures under tests/fixtures/store hold.  Run it to make one for a new version:

python -m tests.unit.store.make_old_store tests/fixtures/store/v4.tar.gz
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from runwatch.record import (
    NO_STEP,
    Batch,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.store.duck.engine import DuckStore

RUN: Final = "old-run"
JOURNAL: Final = "6af93b95-gpu-1-42-2b4b109e"
POINTS: Final = 200
SECOND: Final = 10**9
LARGE: Final = {"user": {"text": "a large one / " * 10_000}}
"""In one row up to version 2, in several from version 3 on.  Version 1 has none."""
START: Final = 1_794_000_000 * SECOND


def batch(start: int, first: int, count: int) -> Batch:
    origin = Origin(JournalId(JOURNAL), "gpu-1", 42, START, "boot", 9, "process", "0.1.0")
    made = Batch(origin, Position(start), Position(start + count * 40))
    made.definitions = [
        RunScope(1, RunId(RUN), "old run", 3, 8, "key", "group"),
        Series(2, "loss", 1, "1", "0", {"split": "train"}),
        SpanName(3, "step", 1),
    ]
    for number in range(first, first + count):
        step = number if number < POINTS else NO_STEP
        made.points.append(2, START + number * SECOND, step, float(number))
    return made


def more(cursor: int) -> Batch:
    return batch(cursor, POINTS, 10)


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = DuckStore.open(Path(folder) / "store")
        first, second = batch(0, 0, POINTS // 2), batch(POINTS // 2 * 40, POINTS // 2, POINTS // 2)
        first.events = [
            Event(START, "run_start", {"name": "old run"}, NO_STEP, 1),
            Event(START + 1, "log", {"name": "note", "value": "hello"}, 5, 1),
            Event(START + 2, "config", LARGE, NO_STEP, 1),
        ]
        first.spans.append(3, 1, 0, START, 0)
        first.spans.append(3, 1, 1, START + SECOND, 0)
        store.write([first])
        store.compact(force=True)  # half of it in closed blocks, half of it hot
        second.events = [Event(START + 3, "config", LARGE, NO_STEP, 1)]
        store.write([second])
        store.close()
        (Path(folder) / "store" / "lock").unlink(missing_ok=True)
        with tarfile.open(target, "w:gz") as archive:
            archive.add(Path(folder) / "store", "store")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
