"""Of what one journal says of a kind, the newest so many are told."""

from __future__ import annotations

import pytest

from runwatch.record import RunId
from runwatch.store.crowds import OF_EACH_BYTES
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


@pytest.mark.parametrize("in_files", [False, True])
def test_of_large_ones_only_as_many_as_fit_are_told(engine: Engine, in_files: bool) -> None:
    store: Store = engine.fresh()
    if type(store).__name__ != "DuckStore":
        pytest.skip("this engine holds what it was given")
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
