"""Journals written by any version of the format are read by every later Runwatch."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import HEADER_LENGTH, READABLE, Header, journal_directories
from runwatch.record import Batch

VERSIONS = sorted((Path(__file__).parents[2] / "fixtures" / "journals").iterdir())
EXPECTED: dict[Path, Any] = {
    version / "journals" / name: batches
    for version in VERSIONS
    for name, batches in json.loads((version / "expected.json").read_text()).items()
}


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


SINCE = {"pid_namespace": 0}
"""What origins have come to say since then, as it is when nothing was said."""


@pytest.mark.parametrize("journal", EXPECTED, ids=lambda path: "/".join(path.parts[-3::2]))
def test_it_is_read_as_it_was_written(journal: Path) -> None:
    reader = JournalReader(journal)
    found = []
    while (batch := reader.read(final=True)) is not None:
        found.append(in_words(batch))
    reader.close()
    assert found == [{**batch, "origin": SINCE | batch["origin"]} for batch in EXPECTED[journal]]


def test_there_is_one_of_each_version() -> None:
    found = {path.parents[1].name: Header.unpack(_head(path), path) for path in EXPECTED}
    assert sorted(found) == [f"v{number}" for number in READABLE]
    assert [_head(path)[8] for path in EXPECTED] == [1, 1, 2, 2]


def _head(journal: Path) -> bytes:
    return (journal / "00000000.seg").read_bytes()[:HEADER_LENGTH]


def test_the_fixtures_say_something_of_everything() -> None:
    there = [d for version in VERSIONS for d in journal_directories(version)]
    assert there == list(EXPECTED)
    for batches in EXPECTED.values():
        assert all(batches[0][part] for part in ("definitions", "points", "spans", "events"))
