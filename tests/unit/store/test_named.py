"""Events about one journal are found without a look at those about all others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from runwatch.record import Event, JournalId, RunId
from runwatch.store.crowds import Crowds
from runwatch.store.duck import reading
from runwatch.store.duck.blocks import BlockFiles
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.duck.named import Named
from runwatch.store.store import AGENTS_SAY, Store
from runwatch.testing import EPOCH, BatchWriter, origin
from tests.integration.head_history import Producer
from tests.unit.store.batches import DAY
from tests.unit.store.conftest import Engine

KINDS = ["process_exit", "job_queued"]


def about(store: Store, *journals: str, of_each: int | None = None) -> list[Any]:
    names = [JournalId(journal) for journal in journals]
    return [row.body for row in store.events(None, kinds=KINDS, about=names, of_each=of_each)]


def exit_of(journal: str, at_ns: int = 0, **more: Any) -> Event:
    return Event(EPOCH + at_ns, "process_exit", {"journal": journal, **more})


def test_only_files_that_can_name_the_journal_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DuckStore.open(tmp_path, settings=DuckSettings(threads=1, reserve_bytes=0))
    agent, days = BatchWriter(origin("agent"), []), 12
    for day in range(days):
        store.write([agent.batch(events=[exit_of(f"j{day}", day * DAY)])])
    store.compact(force=True)
    opened: list[str] = []

    def noted(files: BlockFiles, names: Iterable[str]) -> str:
        names = list(names)
        opened.extend(names)
        return str(scan(files, names))

    scan = vars(reading)["scan"]
    monkeypatch.setattr(reading, "scan", noted)
    assert about(store, "j3", of_each=10) == [{"journal": "j3"}]
    assert len(opened) == days + 1  # the first time, each of them is read once

    opened.clear()
    assert about(store, "j3", of_each=10) == [{"journal": "j3"}]
    assert about(store, "j7") == [{"journal": "j7"}]
    assert len(opened) == 2
    opened.clear()
    assert about(store, "nobody") == []
    assert opened == []
    store.close()


def test_who_asks_about_one_journal_counts_nobody_elses_events(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent of a busy node has told of thousands: those were counted and cut each time."""
    store = engine.fresh()
    agent = Producer(store, "agent", run="", role="agent")
    agent.write([], [("process_exit", n, {"journal": f"j{n}"}) for n in range(50)], scope=0)
    counted: list[object] = []

    def noted(self: Crowds, asked: object, *more: object) -> bool:
        counted.append(asked)
        return False

    monkeypatch.setattr(Crowds, "counted", noted)
    assert about(store, "j7", of_each=3) == [{"journal": "j7"}]
    assert counted == []


@pytest.mark.parametrize("in_files", [False, True])
def test_of_too_many_about_one_journal_the_newest_are_told(engine: Engine, in_files: bool) -> None:
    store = engine.fresh()
    agent = Producer(store, "agent", run="", role="agent")
    many = 3 * AGENTS_SAY + 10
    told = [("process_exit", n, {"journal": "j", "n": n}) for n in range(many)]
    agent.write([], [*told, ("process_exit", 1, {"journal": "other"})], scope=0)
    if in_files:
        store.compact(force=True)
    found = [body["n"] for body in about(store, "j", of_each=3)]
    assert found == list(range(10, many))
    assert about(store, "other", of_each=3) == [{"journal": "other"}]


def test_what_is_stored_after_the_first_question_is_found(engine: Engine) -> None:
    store, agent = engine.fresh(), BatchWriter(origin("agent"), [])
    store.write([agent.batch(events=[exit_of("a")])])
    assert about(store, "a", "b") == [{"journal": "a"}]
    queued = Event(EPOCH + 3, "job_queued", {"journal": "a", "by": "slurm"})
    store.write([agent.batch(events=[exit_of("b", 1), exit_of("a", 2, code=1), queued])])
    assert about(store, "b") == [{"journal": "b"}]
    assert about(store, "a") == [
        {"journal": "a"},
        {"journal": "a", "code": 1},
        {"journal": "a", "by": "slurm"},
    ]
    store.compact(force=True)
    assert len(about(store, "a", "b")) == 4
    if engine.keeps:
        assert len(about(engine.reopen(), "a", "b")) == 4


def test_a_body_that_names_nobody_is_no_ones(engine: Engine) -> None:
    store, agent = engine.fresh(), BatchWriter(origin("agent"), [])
    bodies: list[dict[str, Any]] = [{}, {"journal": None}, {"journal": "\ud800"}, {"journal": "a"}]
    long = {"journal": "a", "text": "x" * 20_000}
    for _ in range(2):
        batch = agent.batch(events=[Event(EPOCH, "process_exit", body) for body in [*bodies, long]])
        store.write([batch])
        assert {str(body) for body in about(store, "a", "None", "null")} == {str({"journal": "a"})}
    assert len(about(store, "a")) == 2


def test_an_event_of_a_deleted_run_is_told_no_more(engine: Engine) -> None:
    store = engine.fresh()
    agent = Producer(store, "agent", run="r", role="agent")
    Producer(store, "j", run="r").write([("loss", 1, 1, 0.5)])
    agent.write([], [("process_exit", 1, {"journal": "j"})])
    assert len(about(store, "j")) == 1
    deletion = store.delete(RunId("r"), at_ns=EPOCH + 10**18, purge_ns=0)
    assert about(store, "j") == []
    store.purge(deletion)
    assert about(store, "j") == []


def test_what_comes_while_all_is_read_is_known() -> None:
    named = Named()
    assert named.begin(["process_exit"]) == ["process_exit"]
    named.took([(0, 1, 0, 5, None, "process_exit", '{"journal": "late"}', 0)])
    assert named.about(["process_exit"], ["late"]) is None
    named.read(["process_exit"], [("early", "process_exit", 0, 1, 3, 20)])
    found = named.about(["process_exit"], ["late", "early"])
    assert found is not None
    assert sorted(mention.time_ns for mention in found) == [3, 5]
    assert named.begin(["process_exit"]) == []
