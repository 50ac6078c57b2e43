"""What a token of some projects may add, over a real store; and whom commands are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from runwatch.head.access.projects import Projects
from runwatch.head.ingest import Ingest
from runwatch.head.outbox import Outbox
from runwatch.head.stream import AgentState
from runwatch.record import Batch, Command, RunId, RunScope
from runwatch.record.commands import StacksResult, StacksWanted
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import BatchWriter, definitions, origin, ramp


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    store = DuckStore.open(None)
    made = Ingest(store)
    yield made
    made.close()
    store.close()


def writer(run: str, project: str, *, journal: str = "", start: int = 0) -> BatchWriter:
    named = [
        replace(each, group=project) if isinstance(each, RunScope) else each
        for each in definitions(run)
    ]
    made = origin(journal or f"journal-{run}")
    return BatchWriter(replace(made, start_ns=made.start_ns + start), named)


def project(ingest: Ingest, run: str) -> str | None:
    return ingest.projects.of(RunId(run))


def brought(ingest: Ingest, batch: Batch, *projects: str) -> str:
    return ingest.submit(batch, "a", 0, projects).result(100).why


def test_a_run_is_its_first_ones_also_before_it_is_stored(ingest: Ingest) -> None:
    with ingest.still:
        first = ingest.submit(writer("r", "a").batch(ramp(2)), "x", 0, ["a"])
        second = ingest.submit(writer("r", "b", journal="j").batch(), "y", 0, ["b"])
        assert second.done() and "run 'r' is not of project 'b'" in second.result().why
        assert not first.done() and project(ingest, "r") == "a"
    assert first.result(100).accepted
    assert "is not of project 'b'" in brought(ingest, writer("r", "b", journal="k").batch(), "b")
    assert ingest.store.processes(RunId("r"))[0].group == "a"


def test_what_was_not_stored_claims_nothing(ingest: Ingest) -> None:
    gap = writer("r", "a")
    gap.at = 500  # which the store does not know how to reach
    assert not ingest.submit(gap.batch(), "x", 0, ["a"]).result(100).accepted
    assert project(ingest, "r") is None
    assert brought(ingest, writer("r", "b").batch(), "b") == ""


def test_the_youngest_process_that_names_a_group_decides(ingest: Ingest) -> None:
    for start, group in enumerate(("a", "b", "")):
        assert not brought(ingest, writer("r", group, journal=f"j{start}", start=start).batch())
    assert project(ingest, "r") == "b"
    late = writer("r", "a", journal="j3", start=-1)
    assert not brought(ingest, late.batch()) and project(ingest, "r") == "b"


def test_a_deleted_run_is_its_projects_until_it_is_gone(ingest: Ingest) -> None:
    assert not brought(ingest, writer("r", "a").batch())
    deletion = ingest.store.delete(RunId("r"), at_ns=2**62, purge_ns=2**62)
    ingest.projects.look_again()
    assert project(ingest, "r") == "a"
    assert brought(ingest, writer("r", "b", journal="j").batch(), "b")
    ingest.store.purge(deletion)
    ingest.projects.look_again()
    assert project(ingest, "r") is None


def test_profiles_of_a_folder_are_those_of_the_run_with_that_id(ingest: Ingest) -> None:
    for run, group in (("r", "a"), ("s", "b"), ("t", "a")):
        made = writer(run, group)
        if run != "s":
            scope = next(each for each in made.definitions if isinstance(each, RunScope))
            called = replace(scope, name="s" if run == "r" else "shared")
            made.definitions = [called]
        assert not brought(ingest, made.batch())
    projects = Projects(ingest.store)
    assert projects.of_folder("s") == {"b"}, "whatever r is called"
    assert projects.of_folder("shared") == {"a"}
    assert projects.of_folder("nobody") == set()


def test_an_agent_of_another_project_is_told_nothing_of_a_run() -> None:
    told: dict[str, list[Command]] = {"a": [], "b": [], "all": []}

    def agent(host: str, who: str) -> AgentState:
        projects = () if who == "all" else (who,)
        send = told[who].append
        return AgentState(host, "1", 0, 0, commands=("stacks",), projects=projects, send=send)

    # The last says to be a node that it is not.
    nodes = (("node-1", "a"), ("node-2", "b"), ("node-3", "all"), ("node-1", "b"))
    agents = [agent(*each) for each in nodes]
    outbox = Outbox(None, lambda: agents, project_of={RunId("r"): "a"}.get)
    hosts = ["node-1", "node-2", "node-3"]
    sent = outbox.send(StacksWanted("r"), StacksResult, hosts, 10.0, RunId("r"))
    assert sent.hosts == ("node-1", "node-3") and list(sent.unreachable) == ["node-2"]
    assert {who: len(commands) for who, commands in told.items()} == {"a": 1, "b": 0, "all": 1}
    assert outbox.send(StacksWanted(), StacksResult, hosts, 10.0).hosts == ("node-3",), (
        "programs of no run"
    )
