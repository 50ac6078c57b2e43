"""The same points in every format, read back by other people's readers."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from runwatch.exports.csv import csv_text
from runwatch.exports.json import json_text
from runwatch.exports.parquet import write_parquet
from runwatch.exports.prometheus import HeadMetrics, HeadNumbers
from runwatch.exports.rows import COLUMNS, ExportBatch, export_batches
from runwatch.record import (
    NO_STEP,
    Batch,
    Definition,
    JournalId,
    Origin,
    Points,
    Position,
    RunId,
    RunScope,
    Series,
)
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store, StoreHealth
from runwatch.views.series import Question
from runwatch.views.times import rfc3339

RUN = RunId('odd "name", with, commas')
START = 1_700_000_000_123_456_789
VALUES = [1.5, math.nan, math.inf, -math.inf, 0.1 + 0.2, 5e-324, -0.0]


def points(series: int, start_ns: int, steps: bool = True) -> Points:
    made = Points()
    for index, value in enumerate(VALUES):
        made.append(series, start_ns + index, index if steps else NO_STEP, value)
    return made


def batch(journal: str, role: Any, start_ns: int, rank: int, made: Points) -> Batch:
    definitions: list[Definition] = [
        RunScope(1, RUN, "name", rank=rank, world_size=2),
        Series(1, "loss", scope=1),
        Series(2, "gpu_used_bytes", scope=1, device="GPU-7"),
    ]
    origin = Origin(JournalId(journal), f"host-{rank}", 1, start_ns, role=role)
    return Batch(origin, Position(0), Position(1000), definitions, made)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    opened.write(
        [
            batch("a0", "process", START, 0, points(1, START)),
            batch("a1", "process", START, 1, points(1, START + 100)),
            batch("b0", "process", START + 1000, 0, points(1, START + 1000)),
            batch("agent", "agent", START - 9000, 0, points(2, START + 997, steps=False)),
        ]
    )
    yield opened
    opened.close()


Row = tuple[Any, ...]


def expected() -> list[Row]:
    def rows(host: str, rank: int, device: str, metric: str, start: int, step: bool) -> list[Row]:
        return [
            (RUN, 2 if start + i >= START + 1000 else 1, host, rank, device, metric)
            + (i if step else None, start + i, repr(value))
            for i, value in enumerate(VALUES)
        ]

    return [
        *rows("host-0", 0, "", "loss", START, True),
        *rows("host-1", 1, "", "loss", START + 100, True),
        *rows("host-0", 0, "", "loss", START + 1000, True),
        # What an agent measures belongs to the attempt of its time.
        *rows("host-0", 0, "GPU-7", "gpu_used_bytes", START + 997, False),
    ]


def by_place(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[5], row[7], row[3]))


def of_batches(batches: Iterator[ExportBatch]) -> list[Row]:
    return [
        (*described, repr(value))
        for b in batches
        for *described, value in zip(
            *(b.run, b.attempt, b.host, b.process, b.device, b.metric, b.step, b.time_ns, b.value),
            strict=True,
        )
    ]


@pytest.mark.parametrize("rows", [1, 3, 7, 1000])
def test_rows_do_not_depend_on_the_size_of_batches(store: Store, rows: int) -> None:
    batches = list(export_batches(store, RUN, rows=rows))
    assert max(map(len, batches)) <= rows
    assert by_place(of_batches(iter(batches))) == by_place(expected())


def test_a_question_and_a_range_narrow_the_export(store: Store) -> None:
    question = Question(metrics=("loss",), attempts=(1,), ranks=(1,))
    found = of_batches(
        export_batches(store, RUN, question=question, start_ns=START + 101, end_ns=START + 103)
    )
    wanted = [row for row in expected() if row[3] == 1 and START + 101 <= row[7] < START + 103]
    assert found == wanted and len(wanted) == 2


def number(text: Any) -> str:
    return repr(float(str(text).replace("Infinity", "inf")))


def test_csv(store: Store) -> None:
    text = "".join(csv_text(export_batches(store, RUN, rows=4)))
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert tuple(header) == COLUMNS
    told = [
        (run, int(attempt), host, int(rank), device, metric, int(step) if step else None, at)
        + (number(value),)
        for run, attempt, host, rank, device, metric, step, at, value, _ in rows
    ]
    assert all(row[9] == row[3] for row in rows), "`process` and `rank` are the same"
    assert by_place(told) == by_place([(*r[:7], rfc3339(r[7]), r[8]) for r in expected()])
    assert {row[8] for row in rows} >= {"NaN", "Infinity", "-Infinity"}


def test_csv_quotes_names() -> None:
    names = ["a,b", "line\nline", "return\r", 'quo"te', ""]
    batch = ExportBatch(names, [1] * 5, ["h"] * 5, [0] * 5, [""] * 5, names, [1] * 5, [2] * 5)
    batch.value = [3.0] * 5
    _, *rows = csv.reader(io.StringIO("".join(csv_text([batch])), newline=""))
    assert [(row[0], row[5], row[9]) for row in rows] == [(name, name, "0") for name in names]


def test_json(store: Store) -> None:
    rows = json.loads("".join(json_text(export_batches(store, RUN, rows=4))))
    assert {tuple(row) for row in rows} == {COLUMNS}
    assert all(row["rank"] == row["process"] for row in rows)
    told = [(*list(row.values())[:8], number(row["value"])) for row in rows]
    wanted = [(*r[:4], r[4] or None, *r[5:7], rfc3339(r[7]), r[8]) for r in expected()]
    assert by_place(told) == by_place(wanted)


def test_parquet(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "it's.parquet"
    assert write_parquet(export_batches(store, RUN, rows=4), path) == len(expected())
    with duckdb.connect() as connection:
        relation = connection.from_parquet(str(path))
        assert tuple(relation.columns) == COLUMNS
        assert str(relation.types[7]) == "TIMESTAMPTZ_NS"
        columns = ", ".join(f'epoch_ns("{c}")' if c == "time" else f'"{c}"' for c in COLUMNS)
        rows = relation.project(columns).fetchall()
    assert all(row[9] == row[3] for row in rows)
    told = [(*row[:8], repr(row[8])) for row in rows]
    wanted = [(*r[:4], r[4] or None, *r[5:]) for r in expected()]
    assert by_place(told) == by_place(wanted)
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_parquet_export_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[ExportBatch]:
        yield ExportBatch(["r"], [1], ["h"], [0], [""], ["m"], [1], [2], [3.0])
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        write_parquet(broken(), tmp_path / "points.parquet")
    assert list(tmp_path.iterdir()) == []


def test_an_export_of_nothing(store: Store, tmp_path: Path) -> None:
    def nothing() -> Iterator[ExportBatch]:
        return export_batches(store, RunId("no such run"))

    assert "".join(csv_text(nothing())) == ",".join(COLUMNS) + "\r\n"
    assert json.loads("".join(json_text(nothing()))) == []
    assert write_parquet(nothing(), tmp_path / "p") == 0


def test_an_export_may_be_left_half_way(store: Store) -> None:
    batches = export_batches(store, RUN, rows=1)
    assert len(next(batches)) == 1
    batches.close()  # type: ignore[attr-defined]
    store.close()  # would wait for a reader that is still there


def test_prometheus_text() -> None:
    health = StoreHealth("duckdb", 1, hot_points=7, blocks=2, bytes_on_disk=99, problem="full")
    numbers = HeadNumbers(points_stored=5, batches_refused=1, ingest_lag_seconds=0.25)
    metrics = HeadMetrics(lambda: health, lambda: numbers)
    metrics.answered("/api/v1/runs", 200)
    metrics.answered("/api/v1/runs", 200)
    lines = metrics.text().decode().splitlines()
    for line in (
        "runwatch_points_stored_total 5.0",
        "runwatch_batches_refused_total 1.0",
        "runwatch_ingest_lag_seconds 0.25",
        "runwatch_store_hot_points 7.0",
        "runwatch_store_blocks 2.0",
        "runwatch_store_disk_bytes 99.0",
        "runwatch_store_healthy 0.0",
        'runwatch_http_requests_total{route="/api/v1/runs",status="200"} 2.0',
    ):
        assert line in lines
    unknown = HeadMetrics(lambda: health).text().decode()
    assert "ingest_lag" not in unknown
    assert "python_gc" not in unknown
