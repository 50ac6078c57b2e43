"""When processes are told to begin and to end; integration tests see how it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from runwatch.errors import StoreFull, UsageError
from runwatch.head.features.captures.api import CapturesApi
from runwatch.head.features.captures.captures import (
    MAX_EARLY_SECONDS,
    CaptureActive,
    CaptureRequest,
    Preflight,
)
from runwatch.head.main import LocalHead
from runwatch.head.stream import AgentState
from runwatch.record import Command, RunId
from runwatch.record.capture_limits import MAX_MS
from runwatch.record.commands import TargetPreflight
from tests.integration.head_history import START, Producer, exited

AHEAD_NS = 3_000_000_000
"""The node's clock."""


class Dying(Exception):
    pass


class Full:
    """A journal of a head whose disk is full."""

    def record(self, *_: object) -> None:
        raise StoreFull("no space left on device")


class Node:
    """An agent of so many processes, as a head sees it."""

    def __init__(self, root: Path, processes: int) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.dies = False
        """The head does, in the middle of asking for a capture."""
        self._processes = [
            {"rank": rank, "pid": 100 + rank, "way": "sdk", "ready_ms": 40}
            for rank in range(processes)
        ]
        agent = AgentState(
            "node", "1", 0, 0, AHEAD_NS / 1e9, commands=("profile",), send=self._take
        )
        self.head = LocalHead(root, agents=lambda: {"peer": agent})

    def _take(self, command: Command) -> None:
        self.asked.append(command.body)
        if self.dies and not command.body.get("preflight"):
            raise Dying
        body = {"command": command.id, "state": "done", "processes": self._processes}
        told = Producer(self.head.store, command.id, host="node").write(
            [], [("command_result", 1, body)]
        )
        self.head.outbox.stored([told])

    def capture(self, **wanted: Any) -> tuple[int, Mapping[str, Any]]:
        """The common start, and what the node was asked for, in the head's time."""
        started = self.head.feature(CapturesApi).captures.start(
            None, CaptureRequest(hosts=["node"], **wanted)
        )
        body = dict(self.asked[-1])
        body["start_ns"] -= AHEAD_NS
        return started.request.start_ns, body


@pytest.fixture
def eight(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path, 8)
    yield node
    node.head.close()


def test_all_begin_before_the_common_time_and_end_with_it(eight: Node) -> None:
    start_ns, asked = eight.capture(duration_ms=2000)
    early_ns = start_ns - asked["start_ns"]
    assert early_ns == 480_000_000
    end_ns = asked["start_ns"] + asked["duration_ms"] * 1_000_000
    assert end_ns == start_ns + 2_000_000_000
    assert (
        eight.head.feature(CapturesApi).captures.find(None, asked["session"]).request.duration_ms
        == 2000
    )


def test_the_longest_capture_grows_no_longer(eight: Node) -> None:
    start_ns, asked = eight.capture(duration_ms=MAX_MS)
    assert asked["duration_ms"] == MAX_MS and asked["start_ns"] == start_ns


def test_steps_are_counted_from_the_common_time_on(eight: Node) -> None:
    start_ns, asked = eight.capture(steps=3)
    assert (asked["start_ns"], asked.get("duration_ms"), asked["steps"]) == (start_ns, None, 3)


def test_one_process_is_captured_as_long_as_asked(tmp_path: Path) -> None:
    node = Node(tmp_path, 1)
    try:
        start_ns, asked = node.capture(duration_ms=500)
        assert (asked["start_ns"], asked["duration_ms"]) == (start_ns, 500)
    finally:
        node.head.close()


def test_more_processes_on_a_node_take_longer_to_begin() -> None:
    def ready(*nodes: str) -> Preflight:
        targets = tuple(TargetPreflight("pod", node, way="sdk") for node in nodes)
        return Preflight(targets, {}, 0.1)

    assert ready("a").early_seconds == 0
    assert ready("a", "b").early_seconds < ready("a", "a").early_seconds
    assert ready(*"ab" * 4).early_seconds == ready(*"a" * 4).early_seconds
    assert ready(*"a" * 200).early_seconds == MAX_EARLY_SECONDS
    # The word has as long as before to come to them: they begin later by what they begin earlier.
    leads = [ready(*"a" * count) for count in (1, 8)]
    assert leads[1].lead_seconds - leads[1].early_seconds == pytest.approx(leads[0].lead_seconds)


# ── one session, asked for again ──────────────────────────────────────────────────────────────


def profiles_asked(node: Node) -> int:
    return sum(not body.get("preflight") for body in node.asked)


def test_what_is_asked_for_once_is_asked_of_the_nodes_once(eight: Node) -> None:
    first, _ = eight.capture(duration_ms=10, session="of-an-object", once=True)
    again, _ = eight.capture(duration_ms=10, session="of-an-object", once=True)
    assert again == first and profiles_asked(eight) == 1


def test_without_once_who_asks_again_is_told_that_it_goes_on(eight: Node) -> None:
    eight.capture(duration_ms=10, session="mine")
    with pytest.raises(CaptureActive, match="mine"):
        eight.capture(duration_ms=10, session="mine")


def test_once_needs_a_session(eight: Node) -> None:
    with pytest.raises(UsageError, match="once goes with session"):
        eight.capture(duration_ms=10, once=True)


def test_a_head_that_ends_while_it_asks_has_asked_once(tmp_path: Path) -> None:
    """Whoever asks the next head again gets what the first one may have begun."""
    request = CaptureRequest(hosts=["node"], duration_ms=10, session="of-an-object", once=True)
    node = Node(tmp_path, 1)
    node.dies = True
    with pytest.raises(Dying):
        node.head.feature(CapturesApi).captures.start(None, request)
    assert profiles_asked(node) == 1
    node.head.close()

    after = Node(tmp_path, 1)
    try:
        found = after.head.feature(CapturesApi).captures.start(None, request)
        assert found.request.session == "of-an-object" and not after.asked
    finally:
        after.head.close()


def test_a_head_that_cannot_record_asks_nobody(tmp_path: Path) -> None:
    node = Node(tmp_path, 1)
    try:
        captures = node.head.feature(CapturesApi).captures
        captures._journal = Full()  # type: ignore[assignment]
        with pytest.raises(StoreFull):
            captures.start(None, CaptureRequest(hosts=["node"], duration_ms=10, session="s"))
        assert profiles_asked(node) == 0
    finally:
        node.head.close()


def test_who_is_not_heard_of_may_be_recording_still(tmp_path: Path) -> None:
    """As after a head was away: everybody is silent for longer than a process may be."""
    head = LocalHead(tmp_path)
    try:
        began = (time_ns() - START) / 1e9 - 60
        rank = Producer(head.store, "rank", start_ns=round(START + began * 1e9), host="node")
        told = {"session": "s", "command": "c", "state": "started", "host": "node"}
        asked = {
            "session": "s", "command": "c", "start_ns": round(START + began * 1e9),
            "duration_ms": 1000, "hosts": ["node"],
        }  # fmt: skip
        rank.write([], [("capture", began, asked), ("profile", began, told)])
        (state,) = head.feature(CapturesApi).captures.reading.processes(RunId("run-1"))
        assert state.state == "lost"
        assert head.feature(CapturesApi).captures.find(RunId("run-1"), "s").state == "running"

        rank.write([], [exited("rank", began + 1, signal=9)])
        (target,) = head.feature(CapturesApi).captures.find(RunId("run-1"), "s").targets
        assert (target.state, target.why) == ("failed", "the process ended meanwhile")
    finally:
        head.close()
