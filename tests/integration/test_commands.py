"""Commands: from a head down to a node's agent and its processes, and the answer back up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.errands.commands import Context, Errand, Errands
from runwatch.agent.errands.control import ask
from runwatch.clock import system_clock
from runwatch.head.main import Head, LocalHead
from runwatch.head.settings import HeadSettings
from runwatch.journal.liveness import this_host
from runwatch.record import Command
from runwatch.record.commands import CommandResult, Ping, PingResult
from runwatch.record.message import Message
from runwatch.testing import until
from tests.integration.processes import Cluster


class Fly(Message):
    """A command that no agent knows."""

    KIND = "fly"

    def body(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.fixture
def head(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    """In this process, so that its outbox can be asked; the agent is a process of its own."""
    monkeypatch.setenv("RUNWATCH_DIR", str(cluster.node_root))
    served = Head(
        HeadSettings(
            dir=cluster.head_root, grpc_port=cluster.grpc_port, http_port=cluster.http_port
        )
    )
    ready = threading.Event()
    thread = threading.Thread(target=served.run, args=(lambda _: ready.set(),))
    thread.start()
    assert ready.wait(100)
    yield served
    served.stop()
    thread.join(100)
    assert not thread.is_alive()


def test_a_command_goes_down_the_stream_and_its_result_comes_up(
    cluster: Cluster, head: Head
) -> None:
    outbox, host = head.local.outbox, this_host()
    assert dict(outbox.send(Ping(), PingResult, [host], 5).unreachable) == {
        host: "no agent of it is connected"
    }
    cluster.start_trainer(hertz=50).wait_for(1)
    cluster.start_agent()
    until(lambda: head.service.agents, 30, "the agent")
    until(lambda: _processes(head, host) == 1, 30, "the agent to see the trainer")


def _processes(head: Head, host: str) -> int:
    sent = head.local.outbox.send(Ping(), PingResult, [host], 20)
    assert head.local.outbox.wait(sent, 100)
    assert sent.results[host].state == "done"
    return sent.results[host].processes


def test_an_agent_says_what_it_cannot_do(cluster: Cluster, head: Head) -> None:
    cluster.start_agent()
    until(lambda: head.service.agents, 30, "the agent")
    sent = head.local.outbox.send(Fly(), CommandResult, [this_host()], 5)
    assert "too old" in sent.unreachable[this_host()]
    assert sent.is_done  # nobody was asked


def test_a_head_that_shares_the_directory_leaves_a_file(cluster: Cluster) -> None:
    cluster.start_agent(head="127.0.0.1:9")  # nobody there
    head = LocalHead(cluster.node_root)
    head.tail.start()
    try:
        until(lambda: head.tail.agents(), 30, "the agent's journal")
        sent = head.outbox.send(Ping(), PingResult, [this_host()], 20)
        assert head.outbox.wait(sent, 100), cluster.words()
        assert sent.results[this_host()].state == "done"
        assert list((cluster.node_root / "commands" / this_host()).iterdir()) == []
    finally:
        head.close()


def test_a_trainer_can_be_asked(cluster: Cluster) -> None:
    trainer = cluster.start_trainer(hertz=50)
    trainer.wait_for(1)
    (journal,) = (cluster.node_root / "journals").iterdir()
    until(lambda: (journal / "control.sock").exists(), 30, "the control socket")
    assert ask(journal, "ping", {}, 10) == {"pid": trainer.process.pid}


# ── an agent's desk, without a process ────────────────────────────────────────────────────────


class Desk:
    def __init__(self, root: Path, errands: dict[str, Errand]) -> None:
        self.results: list[dict[str, object]] = []
        context = Context(root, "node", system_clock, tuple, self._event)
        self.errands = Errands(context, errands, lambda errand, command, c: errand(command, c))

    def _event(self, kind: str, body: object, scope: int = 0) -> None:
        assert kind == "command_result" and isinstance(body, dict)
        self.results.append(body)


def test_a_command_is_carried_out_once(tmp_path: Path) -> None:
    calls: list[str] = []

    def count(command: Command, context: Context) -> CommandResult:
        calls.append(command.id)
        return CommandResult(took_ms=len(calls))

    desk = Desk(tmp_path, {"count": count})
    for _ in range(3):
        desk.errands.take(Command("a-1", "count"))
    desk.errands.take(Command("a-2", "count"))
    until(lambda: len(desk.results) == 2)
    assert sorted(calls) == ["a-1", "a-2"]


def test_a_late_command_is_not_carried_out(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"never": lambda command, context: CommandResult()})
    desk.errands.take(Command("a", "never", expires_ns=1))
    until(lambda: desk.results)
    assert desk.results[0]["state"] == "failed"
    assert "too late" in str(desk.results[0]["why"])


def test_files_that_are_no_commands_are_taken_away(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"ping": lambda command, context: CommandResult()})
    folder = tmp_path / "commands" / "node"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("{not json")
    (folder / "b.json").write_text(json.dumps({"id": "../x", "kind": "ping", "body": {}}))
    good = {"id": "c", "kind": "ping", "body": {}, "issued_ns": 1, "expires_ns": 0}
    (folder / "c.json").write_text(json.dumps(good))
    desk.errands.look()
    until(lambda: desk.results)
    assert [result["command"] for result in desk.results] == ["c"]
    assert list(folder.iterdir()) == []
