"""Stores as each schema version wrote them on the day it landed are opened, read and written to."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from runwatch.record import JournalId, RunId
from runwatch.store.duck.engine import DuckStore
from tests.unit.store.make_old_store import JOURNAL, LARGE, POINTS, RUN, more

FIXTURE = Path(__file__).parents[2] / "fixtures" / "store" / "v1.tar.gz"


def test_a_version_1_store_is_read(tmp_path: Path) -> None:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    store = DuckStore.open(tmp_path / "store")
    try:
        [process] = store.processes(RunId(RUN))
        assert (process.host, process.rank, process.world_size) == ("gpu-1", 3, 8)
        [loss] = store.series(RunId(RUN), metric="loss")
        assert (loss.unit, loss.device, loss.labels) == ("1", "0", {"split": "train"})
        values = [v for part in store.points([loss.series]) for v in part.value]
        assert values == [float(number) for number in range(POINTS)]
        [curve] = store.curves([loss.series], axis="step", buckets=2)
        assert list(curve.count) == [POINTS // 2, POINTS // 2]
        assert [event.kind for event in store.events(RunId(RUN))] == ["run_start", "log"]
        assert [(span.name, span.edge) for span in store.spans(RunId(RUN))] == [
            ("step", 0),
            ("step", 1),
        ]
        batch = more(store.cursor(JournalId(JOURNAL)))
        assert store.write([batch])[0].accepted
        values = [v for part in store.points([loss.series]) for v in part.value]
        assert len(values) == POINTS + len(batch.points)
    finally:
        store.close()


def test_a_run_of_a_version_1_store_can_be_deleted(tmp_path: Path) -> None:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    store = DuckStore.open(tmp_path / "store")
    try:
        store.purge(store.delete(RunId(RUN), at_ns=2**62, purge_ns=0))
        assert store.processes(RunId(RUN)) == [] and store.events(RunId(RUN)) == []
        assert store.write([more(store.cursor(JournalId(JOURNAL)))])[0].accepted
        assert store.series(RunId(RUN)) == []
    finally:
        store.close()


def test_a_version_1_manifest_is_begun_from(tmp_path: Path) -> None:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "store" / "hot.duckdb").write_bytes(b"not a database")
    store = DuckStore.open(tmp_path / "store")
    try:
        assert store.deletions() == [] and len(store.processes(RunId(RUN))) == 1
    finally:
        store.close()


@pytest.mark.parametrize("version", ["v2", "v3", "v4"])
def test_large_events_of_each_version_are_read(tmp_path: Path, version: str) -> None:
    with tarfile.open(FIXTURE.with_name(f"{version}.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    store = DuckStore.open(tmp_path / "store")
    try:
        for _ in range(2):
            found = store.events(RunId(RUN), kinds=["config"], of_each=100)
            assert [row.body for row in found] == [LARGE, LARGE]
            store.compact(force=True)
    finally:
        store.close()
