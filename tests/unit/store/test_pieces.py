"""Large bodies lie in several rows, and nobody who asks can tell."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from runwatch.record import Event, JournalId, RunId
from runwatch.store.duck import pieces
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Store, Wanted
from runwatch.testing import EPOCH, BatchWriter, origin
from tests.sampling import sampled
from tests.unit.store.conftest import Engine, crossed

NAMES = ("journal", "place", "body")
SIZES = (10, pieces.LONGEST - 30, 3 * pieces.LONGEST, 20, 500_000, 2 * pieces.LONGEST)


def bodies() -> list[dict[str, object]]:
    draw = random.Random(7)
    return [
        {"n": n, "text": "".join(draw.choices('aé/\x1e"{}\n ', k=size))}
        for n, size in enumerate(SIZES)
    ]


@pytest.mark.parametrize("size", [2, pieces.LONGEST, pieces.LONGEST + 1, 7 * pieces.LONGEST])
def test_pieces_make_the_whole_again(size: int) -> None:
    body = json.dumps({"text": "/" * size})
    cut = pieces.cut(body)
    assert max(map(len, cut)) <= pieces.LONGEST + 20
    assert len(cut) == -(-len(body) // pieces.LONGEST)
    rows = [("j", 5, piece) for piece in cut]
    random.Random(1).shuffle(rows)
    assert list(pieces.whole([("j", 4, "{}"), *rows, ("j", 6, "{}")], NAMES)) == [
        ("j", 4, "{}"),
        ("j", 5, body),
        ("j", 6, "{}"),
    ]


def test_one_with_a_piece_missing_is_left_out() -> None:
    rows = [("j", place, piece) for place in (1, 2) for piece in pieces.cut("{" * 40_000)]
    assert [row[1] for row in pieces.whole(rows[:-1], NAMES)] == [1]
    assert [row[1] for row in pieces.whole(rows[1:], NAMES)] == [2]


@crossed("in_files", [False, True])
def test_what_is_asked_is_told_whole(engine: Engine, in_files: bool) -> None:
    store: Store = engine.fresh()
    writer, said = BatchWriter(), bodies()
    store.write([writer.batch(events=[Event(EPOCH, "e", body, scope=1) for body in said[:3]])])
    if in_files:
        store.compact(force=True)
    store.write([writer.batch(events=[Event(EPOCH + 1, "e", body, scope=1) for body in said[3:]])])
    run = RunId("run-a")
    assert [row.body for row in store.events(run)] == said
    assert [row.body for row in store.events(run, newest_first=True)] == said[::-1]
    for limit in range(1, len(said) + 2):
        assert [row.body for row in store.events(run, limit=limit)] == said[:limit]
        newest = store.events(None, limit=limit, newest_first=True)
        assert [row.body for row in newest] == said[::-1][:limit]
    assert [row.body for row in store.events(run, most_bytes=1)] == said[:1]
    few = store.events(run, most_bytes=100_000, newest_first=True)
    assert [row.body for row in few] == said[:-2:-1]
    assert [row.body for row in store.events(run, kinds=["e"], of_each=1)] == said[-1:]
    with store.replay(run, Wanted(lambda metric: False, kinds=["e"], spans=False)) as replay:
        replayed = [event.body for batches in replay for b in batches for event in b.events]
    assert replayed == said


@crossed("in_files", [False, True])
def test_of_an_instant_with_very_much_a_part_is_told_at_a_time(
    engine: Engine, in_files: bool
) -> None:
    store: Store = engine.fresh()
    writers = [BatchWriter(origin(name)) for name in ("a", "b")]
    for first in range(0, 40, 10):
        for writer in writers:
            happened = [
                Event(EPOCH, "e", {"n": n, "text": "x" * 100_000}, scope=1)
                for n in range(first, first + 10)
            ]
            store.write([writer.batch([(1, EPOCH, first, 0.5)], events=happened)])
    if in_files:
        store.compact(force=True)
    wanted = Wanted(lambda metric: True, kinds=["e"], rows=20_000)
    told: dict[str, list[int]] = {"a": [], "b": []}
    points, most = 0, 0
    with store.replay(RunId("run-a"), wanted) as replay:
        for batches in replay:
            most = max(most, sum(len(batch.events) for batch in batches))
            for batch in batches:
                told[batch.origin.journal] += [event.body["n"] for event in batch.events]
                points += len(batch.points)
    assert told == {"a": list(range(40)), "b": list(range(40))}
    assert points == 8
    assert 1 < most < 20


def test_who_a_large_one_names_is_not_looked_for(store: Store) -> None:
    large = {"journal": "a", "text": "x" * 50_000}
    store.write([BatchWriter(origin("agent")).batch(events=[Event(EPOCH, "end", large)])])
    assert store.events(None, kinds=["end"], about=[JournalId("a")]) == []


@pytest.mark.parametrize("at_once", sampled([True, False], 1))
def test_many_large_ones_are_told_and_put_into_files_in_little_memory(
    tmp_path: Path, at_once: bool
) -> None:
    """As single rows they were neither: the engine holds the texts of 2,048 rows at a time."""
    settings = DuckSettings(
        threads=1, memory_limit="100MB", reserve_bytes=0, merge_parts=2, slice_bytes=16 << 20
    )
    store = DuckStore.open(tmp_path, settings=settings)
    writer, text, count = BatchWriter(), "x" * 500_000, 0
    for _ in range(2):
        for _ in range(6):
            happened = [
                Event(EPOCH + (0 if at_once else n), "e", {"n": n, "text": text}, scope=1)
                for n in range(count, count + 20)
            ]
            store.write([writer.batch(events=happened)])
            count += 20
        store.compact(force=True)
        newest = store.events(None, kinds=["e"], of_each=2_000)
        numbers = [row.body["n"] for row in newest]
        assert numbers == list(range(count - len(numbers), count)) and 20 < len(numbers) < count
    assert [row.body["n"] for row in store.events(RunId("run-a"), limit=3)] == [0, 1, 2]
    assert store.health().problem == ""
    store.close()
