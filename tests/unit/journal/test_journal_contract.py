"""Journals written by version 1 of the format are read by every later Runwatch."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import journal_directories
from runwatch.record import Batch

VERSION_1 = Path(__file__).parents[2] / "fixtures" / "journals" / "v1"
EXPECTED: dict[str, Any] = json.loads((VERSION_1 / "expected.json").read_text())


def in_words(batch: Batch) -> dict[str, Any]:
    p, s = batch.points, batch.spans
    points = zip(p.series, p.time_ns, p.step, p.value, strict=True)
    spans = zip(s.name, s.span, s.edge, s.time_ns, s.step, strict=True)
    return {
        "origin": asdict(batch.origin),
        "start": batch.start,
        "end": batch.end,
        "definitions": [{"type": type(d).__name__, **asdict(d)} for d in batch.definitions],
        "points": [[series, time, step, repr(value)] for series, time, step, value in points],
        "spans": [list(row) for row in spans],
        "events": [[e.time_ns, e.kind, e.body, e.step, e.scope] for e in batch.events],
        "skipped_records": batch.skipped_records,
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_version_1_is_read_as_it_was_written(name: str) -> None:
    reader = JournalReader(VERSION_1 / "journals" / name)
    found = []
    while (batch := reader.read(final=True)) is not None:
        found.append(in_words(batch))
    reader.close()
    assert found == EXPECTED[name]


def test_the_fixture_says_something_of_everything() -> None:
    assert [d.name for d in journal_directories(VERSION_1)] == sorted(EXPECTED)
    for batches in EXPECTED.values():
        assert all(batches[0][part] for part in ("definitions", "points", "spans", "events"))
