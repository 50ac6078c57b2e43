"""Which agent speaks for a host that is a container of a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.main import LocalHead
from runwatch.head.stream import AgentState
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Role, RunId
from runwatch.record.commands import StacksWanted
from runwatch.testing import BatchWriter, origin, ramp

LONG_AGO, LATELY = 1, 2
POD = JournalId("journal-of-a-pod")


class World:
    """A head, and agents that are connected to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.agents: dict[str, AgentState] = {}
        self.head = LocalHead(root, in_memory=True, agents=lambda: self.agents)
        self.nodes = self.head.nodes
        self._writers: list[JournalWriter] = []

    def agent(self, host: str, *alive: JournalId, heard: int = LATELY, ahead: float = 0) -> None:
        state = AgentState(host, "1", LONG_AGO, heard, ahead, frozenset(alive))
        self.agents[f"peer {len(self.agents)}"] = state

    def store(self, journal: JournalId, host: str) -> None:
        batch = BatchWriter(origin(journal, host=host)).batch(ramp(3))
        assert self.head.ingest.submit(batch).result(100).accepted

    def journal(self, host: str, role: Role, boot: str) -> None:
        """In the head's own directory."""
        name = JournalId(f"{host}-{role}")
        there = replace(origin(name, host=host), role=role, boot=boot)
        self._writers.append(JournalWriter(self.root, there))
        self.head.tail.round()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self.head.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_a_host_s_own_agent_speaks_for_it(world: World) -> None:
    world.store(POD, "pod-1")
    world.agent("node-1", POD)
    world.agent("pod-1")
    assert world.nodes.node_of("pod-1") == "pod-1"
    assert world.nodes.node_of("node-1") == "node-1"


def test_the_agent_of_the_node_speaks_for_a_pod_without_one(world: World) -> None:
    world.store(POD, "pod-1")
    world.agent("node-1", POD, ahead=2.5)
    world.agent("node-2", JournalId("not stored yet"))
    assert world.nodes.node_of("pod-1") == "node-1"
    assert world.nodes.clock_offsets() == {
        "node-1": 2_500_000_000, "pod-1": 2_500_000_000, "node-2": 0,
    }  # fmt: skip
    assert world.head._known_ns("pod-1") == LATELY


def test_of_two_that_were_connected_the_one_heard_of_last(world: World) -> None:
    world.store(POD, "pod-1")
    world.agent("node-1", POD, heard=LONG_AGO)
    world.agent("node-1", POD, heard=LATELY)
    found = world.nodes.agent_of("pod-1")
    assert found is not None and found.heard_ns == LATELY


def test_nobody_speaks_for_a_host_that_no_agent_has_told_of(world: World) -> None:
    world.agent("node-1")
    world.store(POD, "pod-1")
    assert world.nodes.agent_of("pod-1") is None
    assert world.nodes.node_of("pod-1") == "pod-1"
    assert world.head._known_ns("pod-1") is None


def test_stacks_of_pods_are_asked_of_their_node_once(world: World) -> None:
    world.store(POD, "pod-1")
    world.store(JournalId("another"), "pod-2")
    world.agent("node-1", POD, JournalId("another"))
    [agent] = world.agents.values()
    asked: list[str] = []
    agent.commands, agent.send = ("stacks",), lambda command: asked.append(command.kind)
    sent = world.head.feature(StacksApi).incidents.taker.ask(
        RunId("run"), StacksWanted(), ["pod-1", "pod-2", "pod-3"]
    )
    assert (sent.hosts, list(sent.unreachable), asked) == (("node-1",), ["pod-3"], ["stacks"])


def test_in_a_shared_directory_it_is_the_agent_of_the_same_machine(world: World) -> None:
    world.journal("pod-1", "process", "boot of node 1")
    world.journal("pod-2", "process", "boot of node 2")
    world.journal("pod-3", "process", "")
    world.journal("node-1", "agent", "boot of node 1")
    world.journal("node-3", "agent", "")
    hosts = ["pod-1", "pod-2", "pod-3", "node-1", "node-3"]
    assert [world.nodes.node_of(h) for h in hosts] == [
        "node-1",
        "pod-2",
        "pod-3",
        "node-1",
        "node-3",
    ]
    assert world.nodes.names() == {"node-1", "node-3"}
