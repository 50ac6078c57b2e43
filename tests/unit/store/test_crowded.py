"""Of what one journal says of a kind, the newest so many are told."""

from __future__ import annotations

import pytest

from runwatch.record import RunId
from runwatch.store.crowds import MOST_KNOWN, Crowds
from runwatch.store.store import AGENTS_SAY, Store
from tests.integration.head_history import Producer
from tests.unit.store.conftest import Engine


@pytest.mark.parametrize("in_files", [False, True])
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
    for (journal, _), told in numbers.items():
        most = 3 * AGENTS_SAY if journal == "agent" else 3
        assert told == list(range(last - most, last))
    assert len(numbers) == 6
    assert [row.time_ns for row in found] == sorted(row.time_ns for row in found)
    assert len(store.events(RunId("r"), kinds=["one"], of_each=3, limit=2)) == 2


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
    assert crowds.is_crowded(asked, crowds.events) is None
    assert not crowds.counted(asked, crowds.events, fullest=8)
    crowds.took(2)
    assert crowds.is_crowded(asked, crowds.events) is False
    assert crowds.is_crowded((7, ("two",), 10), crowds.events) is None
    crowds.took(1)
    assert crowds.is_crowded(asked, crowds.events) is None


def test_where_one_had_too_many_nobody_counts_again() -> None:
    crowds, asked = Crowds(), (None, (), 10)
    assert crowds.counted(asked, 0, fullest=11)
    assert crowds.is_crowded(asked, 0) is True


def test_what_is_known_of_crowds_is_bounded() -> None:
    crowds = Crowds()
    for run in range(MOST_KNOWN + 1):
        crowds.counted((run, (), 10), 0, fullest=run % 20)
    assert crowds.is_crowded((MOST_KNOWN, (), 10), 0) is not None
    assert crowds.is_crowded((0, (), 10), 0) is None
