"""Of what one journal says of a kind, the newest so many are told."""

from __future__ import annotations

import pytest

from runwatch.record import RunId
from runwatch.store.crowds import (
    ALWAYS_BYTES,
    MOST_KNOWN,
    OF_ALL_BYTES,
    OF_EACH_BYTES,
    Crowds,
    Fullest,
    fair_share,
)
from runwatch.store.store import AGENTS_SAY, Store
from tests.integration.head_history import Producer
from tests.unit.store.conftest import Engine, crossed


@crossed("in_files", [False, True])
def test_of_each_journal_and_kind_the_newest_are_told(engine: Engine, in_files: bool) -> None:
    store: Store = engine.fresh()
    agents = Producer(store, "agent", run="r", role="agent")
    for journal in (Producer(store, "a", run="r"), Producer(store, "b", run="r"), agents):
        for kind in ("one", "two"):
            journal.write([], [(kind, n, {"n": n}) for n in range(10 + 20 * AGENTS_SAY)])
    Producer(store, "few", run="r").write([], [("one", 1, {"n": 1})])
    if in_files:
        store.compact(force=True)
    found = store.events(RunId("r"), kinds=["one", "two"], of_each=3)
    numbers: dict[tuple[str, str], list[int]] = {}
    for row in found:
        numbers.setdefault((row.journal, row.kind), []).append(row.body["n"])
    last = 10 + 20 * AGENTS_SAY
    assert numbers.pop(("few", "one")) == [1]
    for (teller, _), told in numbers.items():
        most = 3 * AGENTS_SAY if teller == "agent" else 3
        assert told == list(range(last - most, last))
    assert len(numbers) == 6
    assert [row.time_ns for row in found] == sorted(row.time_ns for row in found)
    assert len(store.events(RunId("r"), kinds=["one"], of_each=3, limit=2)) == 2


@crossed("in_files", [False, True])
def test_of_large_ones_only_as_many_as_fit_are_told(engine: Engine, in_files: bool) -> None:
    store: Store = engine.fresh()
    loud, calm = Producer(store, "loud", run="r"), Producer(store, "calm", run="r")
    large = OF_EACH_BYTES // 40
    for n in range(50):
        loud.write([], [("config", n, {"n": n, "text": "x" * large})])
    calm.write([], [("config", n, {"n": n}) for n in range(50)])
    if in_files:
        store.compact(force=True)
    found = store.events(RunId("r"), kinds=["config"], of_each=1000)
    told = {name: [r.body["n"] for r in found if r.journal == name] for name in ("loud", "calm")}
    assert told == {"loud": list(range(11, 50)), "calm": list(range(50))}


@crossed("in_files", [False, True])
def test_who_has_little_keeps_it_when_many_are_loud(engine: Engine, in_files: bool) -> None:
    """Each of the loud ones has less than one may have, and all together more than all may."""
    store: Store = engine.fresh()
    calm = Producer(store, "calm", run="r")
    for n in range(10):
        calm.write([], [("config", n, {"n": n, "text": "x" * (ALWAYS_BYTES * 2)})])
    large, loud = 400_000, [f"loud-{n}" for n in range(6)]
    for name in loud:
        journal = Producer(store, name, run="r")
        for n in range(30):
            journal.write([], [("config", n, {"n": n, "text": "x" * large})])
    assert 30 * large < OF_EACH_BYTES and len(loud) * 30 * large > OF_ALL_BYTES
    if in_files:
        store.compact(force=True)
    found = store.events(RunId("r"), kinds=["config"], of_each=1000)
    told = {name: [r.body["n"] for r in found if r.journal == name] for name in ("calm", *loud)}
    assert told["calm"] == list(range(10))
    assert sum(len(row.body["text"]) for row in found) <= OF_ALL_BYTES
    for name in loud:
        assert 15 < len(told[name]) < 30
        assert told[name] == list(range(30))[-len(told[name]) :]


def test_the_newest_of_each_is_told_however_large(engine: Engine) -> None:
    store: Store = engine.fresh()
    for number in range(120):
        Producer(store, f"j-{number}", run="r").write(
            [], [("config", n, {"n": n, "text": "x" * 499_000}) for n in range(2)]
        )
    found = store.events(RunId("r"), kinds=["config"], of_each=1000)
    assert [row.body["n"] for row in found] == [1] * 120


@pytest.mark.parametrize(
    ("sizes", "share"),
    [
        ([], OF_EACH_BYTES),
        ([OF_EACH_BYTES + 1], OF_EACH_BYTES),
        ([10, 20, OF_ALL_BYTES], OF_EACH_BYTES),
        ([0, *[OF_ALL_BYTES] * 8], OF_ALL_BYTES // 8),
        ([OF_ALL_BYTES // 2, *[OF_ALL_BYTES] * 8], OF_ALL_BYTES // 9),
        ([1000] * 100_000, ALWAYS_BYTES),
    ],
)
def test_shares(sizes: list[int], share: int) -> None:
    assert fair_share(sizes) == share


def test_what_came_since_the_last_answer_is_counted(engine: Engine) -> None:
    store: Store = engine.fresh()
    journal = Producer(store, "a", run="r")
    for n in range(8):
        journal.write([], [("one", n, {"n": n})])
        for run in (RunId("r"), None):
            told = [row.body["n"] for row in store.events(run, kinds=["one"], of_each=3)]
            assert told == list(range(max(n - 2, 0), n + 1))


def test_nobody_counts_while_there_is_room() -> None:
    crowds, asked = Crowds(), (7, ("one",), 10)
    assert crowds.is_crowded(asked, crowds.taken) is None
    assert not crowds.counted(asked, crowds.taken, Fullest(8, 100, 100))
    crowds.took(2, 10)
    assert crowds.is_crowded(asked, crowds.taken) is False
    assert crowds.is_crowded((7, ("two",), 10), crowds.taken) is None
    crowds.took(1, 10)
    assert crowds.is_crowded(asked, crowds.taken) is None


def test_bytes_are_counted_as_events_are() -> None:
    crowds, asked = Crowds(), (7, ("one",), 10)
    assert not crowds.counted(asked, crowds.taken, Fullest(1, OF_EACH_BYTES - 100, 0))
    crowds.took(1, 100)
    assert crowds.is_crowded(asked, crowds.taken) is False
    crowds.took(1, 1)
    assert crowds.is_crowded(asked, crowds.taken) is None
    assert crowds.counted(asked, crowds.taken, Fullest(3, OF_EACH_BYTES + 1, OF_EACH_BYTES + 1))


def test_bytes_of_all_are_counted_too() -> None:
    crowds, asked = Crowds(), (7, ("one",), 10)
    assert not crowds.counted(asked, crowds.taken, Fullest(1, 100, OF_ALL_BYTES - 5))
    crowds.took(1, 6)
    assert crowds.is_crowded(asked, crowds.taken) is None
    assert crowds.counted(asked, crowds.taken, Fullest(1, 100, OF_ALL_BYTES + 1))


def test_where_one_had_too_many_nobody_counts_again() -> None:
    crowds, asked = Crowds(), (None, (), 10)
    assert crowds.counted(asked, crowds.taken, Fullest(11, 0, 0))
    assert crowds.is_crowded(asked, crowds.taken) is True


def test_what_is_known_of_crowds_is_bounded() -> None:
    crowds = Crowds()
    for run in range(MOST_KNOWN + 1):
        crowds.counted((run, (), 10), crowds.taken, Fullest(run % 20, 0, 0))
    assert crowds.is_crowded((MOST_KNOWN, (), 10), crowds.taken) is not None
    assert crowds.is_crowded((0, (), 10), crowds.taken) is None
