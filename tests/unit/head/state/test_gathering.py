"""Who is missing from a session, and its file: written once with a name for each who is missing,
and again when the rest has come.  Nobody is named of whom the head has all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from runwatch.exports.session import Absent
from runwatch.head.ingest import Ingest
from runwatch.head.outbox import Outbox
from runwatch.head.state.clients import Clients
from runwatch.head.state.gathering import Gathering
from runwatch.head.state.session_files import SessionFiles
from runwatch.head.state.session_room import SessionRoom
from runwatch.head.state.sessions import Sessions
from runwatch.record import Batch, Command, Event, JournalId, Origin, Position
from runwatch.record.commands import HoldingsResult
from runwatch.record.node import AgentEnd
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import FakeClock
from runwatch.views.sessions import Session
from tests.unit.head.session_world import SECOND, START, Node


class Reached:
    """A connected agent that keeps the commands it is sent."""

    commands = ("holdings",)
    clock_offset_seconds = 0.0
    projects: Sequence[str] = ()

    def __init__(self, host: str) -> None:
        self.host = host
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)


class Room:
    """A head's sessions, files and clients over a real store; `tick` is a turn of its thread."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock(wall_ns=START)
        self.root = root
        (root / "work").mkdir(exist_ok=True)
        self.agents: list[Reached] = []
        self._open()

    def _open(self) -> None:
        self.store = DuckStore.open(self.root / "store")
        self.ingest = Ingest(self.store)
        self.clients = Clients(self.store, clock=self.clock)
        outbox = Outbox(None, lambda: self.agents, clock=self.clock)
        self.outbox = outbox
        gathering = Gathering(self.clients, outbox, clock=self.clock)
        self.sessions = Sessions(self.store, self.ingest, clock=self.clock)
        self.room = SessionRoom(
            self.sessions, self.clients, gathering, folder=self.root / "work", clock=self.clock
        )
        assert self.room.files is not None
        self.files: SessionFiles = self.room.files
        self.files._take_up()

    def again(self) -> None:
        """The head is killed, and another begins."""
        self.close()
        self._open()

    def close(self) -> None:
        self.ingest.close()
        self.store.close()

    def at(self, seconds: float) -> None:
        self.clock.now_ns = START + round(seconds * SECOND)

    def tick(self) -> None:
        self.files._round(closing=False)

    def missing(self, name: str) -> list[str]:
        return self.room.missing(self.sessions.find(name))

    def file(self, name: str) -> Any:
        return json.loads((self.root / "work" / f"{name}.json").read_bytes())

    def run(self, node: Node, *seconds: float) -> None:
        for second in seconds:
            node.sample(second, 0, gpu_utilization_percent=second)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.close()


def session_of_ten_seconds(room: Room) -> tuple[Node, Node]:
    here, behind = Node(room.store, "here"), Node(room.store, "behind")
    room.sessions.start("s")
    room.run(here, *range(1, 11))
    room.run(behind, 1, 2, 3)
    room.at(10)
    room.sessions.stop("s")
    return here, behind


def test_who_is_behind_is_named_and_the_file_is_completed_when_the_rest_comes(room: Room) -> None:
    here, behind = session_of_ten_seconds(room)
    room.run(here, 11)
    assert room.missing("s") == ["behind_behind-42"]
    room.tick()
    assert not list((room.root / "work").iterdir()), "it waits for what the client holds"
    room.at(20.1)
    room.tick()
    first = room.file("s")
    assert not first["complete"] and "completed_later" not in first
    [absent] = first["missing_clients"]
    assert absent["client_id"] == "behind_behind-42" and absent["hostname"] == "behind"
    assert absent["last_sample"].startswith("2023-11-14T22:13:23")
    named = {frame["frame_id"]: frame["unhealthy_clients"] for frame in first["frames"]}
    assert named == {n: ["behind"] if n > 3 else [] for n in range(1, 10)}
    room.at(40)
    room.run(behind, 4, 5, 6, 7, 8, 9, 10, 11)
    room.tick()
    last = room.file("s")
    assert last["complete"] and last["missing_clients"] == [] and last["completed_later"]
    assert [len(frame["gpu_id"]) for frame in last["frames"]] == [2] * 9
    assert all(frame["unhealthy_clients"] == [] for frame in last["frames"])
    saved = room.sessions.find("s").saved
    assert saved is not None and (saved.state, saved.missing) == ("complete", ())


def test_a_head_that_is_killed_owes_the_file(room: Room) -> None:
    here, behind = session_of_ten_seconds(room)
    room.again()
    here.store = behind.store = room.store
    room.run(here, 11)
    room.at(21)
    room.tick()
    assert [m["hostname"] for m in room.file("s")["missing_clients"]] == ["behind"]
    room.again()
    here.store = behind.store = room.store
    room.at(60)
    room.tick()
    assert not room.file("s")["complete"]
    room.run(behind, *range(4, 12))
    room.at(70)
    room.tick()
    assert room.file("s")["complete"] and room.file("s")["completed_later"]
    room.again()
    assert not room.files.waiting() and not room.files._open


def test_when_all_is_there_the_file_is_written_at_once_and_stays(room: Room) -> None:
    here, behind = session_of_ten_seconds(room)
    room.run(behind, *range(4, 12))
    room.run(here, 10.4)
    room.tick()
    assert room.missing("s") == ["here_here-42"], "its last samples may be on their way"
    room.run(here, 10.5)
    room.tick()
    found = room.file("s")
    assert found["complete"] and "completed_later" not in found
    room.at(100)
    room.tick()
    assert room.file("s") == found


def test_nobody_waits_for_who_was_lost_long_before(room: Room) -> None:
    here, gone = Node(room.store, "here"), Node(room.store, "gone")
    room.run(gone, 0)
    room.at(100)
    room.sessions.start("s")
    room.run(here, *range(100, 112))
    room.at(110)
    room.sessions.stop("s")
    room.tick()
    assert [m["hostname"] for m in room.file("s")["missing_clients"]] == ["gone"]


def test_healthy_ends_name_nobody(room: Room) -> None:
    """One that said goodbye, one of days before, one that a successor followed before it began,
    and a clock that is behind by ten minutes."""
    ended, ancient, first = Node(room.store, "ended"), Node(room.store, "old"), Node(room.store)
    room.run(ended, 3)
    _say(room.store, ended, AgentEnd(42))
    room.run(ancient, -5000)
    room.run(first, 0)
    room.at(5)
    room.sessions.start("s")
    second = Node(room.store, pid=43)
    second.uuids = first.uuids = False
    slow = Node(room.store, "slow")
    room.sessions.hear_clocks({"slow": -600 * SECOND})
    room.run(slow, *range(-595, -587))
    room.run(second, *range(5, 12))
    room.at(10)
    room.sessions.stop("s")
    assert room.missing("s") == ["node-1_node-1-42"], "with devices of its own it is another's"
    room.run(first, 10.5)
    assert room.missing("s") == []


def _say(store: DuckStore, node: Node, message: Any, seconds: float = 4) -> None:
    origin = Origin(JournalId(node.journal), node.host, node.pid, START, node.boot, 7, "agent")
    batch = Batch(origin, Position(node.at), Position(node.at + 1000))
    node.at += 1000
    batch.events.append(Event(START + round(seconds * SECOND), message.KIND, message.body()))
    store.write([batch])


def test_a_client_that_was_killed_and_began_again_is_asked_what_it_holds(room: Room) -> None:
    agent = Reached("n")
    room.agents.append(agent)
    before = Node(room.store, "n", uuids=False)
    room.sessions.start("s")
    room.run(before, 1, 2)
    after = Node(room.store, "n", pid=43, uuids=False)
    # Its first record tells when it began.
    after_start = START + 5 * SECOND
    room.at(10)
    room.sessions.stop("s")
    _begin(room.store, after, after_start)
    room.run(after, *range(6, 12))
    assert room.missing("s") == ["n_n-42"], "its journal may hold more than has come"
    room.at(10.6)
    room.tick()
    [command] = agent.sent
    assert command.kind == "holdings"
    for waiting, missing in ((1, ["n_n-42"]), (0, [])):
        answer = HoldingsResult(command.id, "holdings", "n", waiting=waiting)
        event = Event(START, answer.KIND, answer.body())
        origin = Origin(JournalId(after.journal), "n", 43, after_start, "boot", 7, "agent")
        room.outbox.stored([Batch(origin, Position(0), Position(1), events=[event])])
        assert room.missing("s") == missing
    room.tick()
    assert room.file("s")["complete"]


def _begin(store: DuckStore, node: Node, start_ns: int) -> None:
    origin = Origin(JournalId(node.journal), node.host, node.pid, start_ns, node.boot, 7, "agent")
    store.write([Batch(origin, Position(node.at), Position(node.at + 1000))])
    node.at += 1000


def test_late_records_of_somebody_unknown_open_the_file_again(room: Room) -> None:
    here, behind = session_of_ten_seconds(room)
    room.run(here, 11)
    room.run(behind, *range(4, 12))
    room.tick()
    assert room.file("s")["complete"]
    stranger = Node(room.store, "stranger")
    room.run(stranger, 4, 5)
    _tell(room, stranger, 4, 5)
    room.tick()
    saved = room.sessions.find("s").saved
    assert saved is not None and (saved.state, saved.missing) == ("partial", ("stranger",))
    room.run(stranger, 11)
    room.at(20)
    room.tick()
    found = room.file("s")
    assert found["complete"] and found["completed_later"]
    assert sum("stranger:0:NVIDIA H200" in frame["gpu_id"] for frame in found["frames"]) == 2


def _tell(room: Room, node: Node, *seconds: int) -> None:
    batch = Batch(
        Origin(JournalId(node.journal), node.host, 42, START, "boot", 7, "agent"),
        Position(0),
        Position(1),
    )
    for second in seconds:
        batch.points.append(1, START + second * SECOND, -1, 1.0)
    room.files.stored([batch])


def test_samples_after_a_session_open_nothing(room: Room) -> None:
    here, behind = session_of_ten_seconds(room)
    room.run(here, 11)
    room.run(behind, *range(4, 12))
    room.tick()
    _tell(room, here, 11, 12)
    room.tick()
    assert not room.files._open


def test_a_file_of_another_is_left_alone(room: Room) -> None:
    """A later session of the same name, or what the user put there."""
    here, behind = session_of_ten_seconds(room)
    room.run(here, 11)
    room.at(21)
    room.tick()
    (room.root / "work" / "s.json").write_text('{"mine": 1}')
    room.run(behind, *range(4, 12))
    room.at(60)
    room.tick()
    assert room.file("s") == {"mine": 1}


def test_a_resumed_session_is_written_when_it_stops_again(room: Room) -> None:
    here, behind = session_of_ten_seconds(room)
    room.sessions.resume("s")
    room.tick()
    assert not room.files._open and room.sessions.find("s").saved is None
    room.run(here, 11)
    room.at(12)
    room.sessions.stop("s")
    room.run(here, 13)
    room.run(behind, *range(4, 14))
    room.tick()
    assert room.file("s")["complete"] and len(room.file("s")["frames"]) == 11


def test_files_are_written_whole_or_not_at_all(tmp_path: Path, room: Room) -> None:
    def pieces(session: Session, missing: Sequence[Absent], later: bool) -> Iterator[bytes]:
        yield b"half"
        if session.name == "bad":
            raise OSError("no space")
        yield b" and half"

    folder = tmp_path / "files"
    folder.mkdir()
    room.sessions.folder = folder
    files = SessionFiles(folder, room.sessions, room.room.gathering, pieces, clock=room.clock)
    room.sessions.on_stopped = files.stopped
    for name in ("good", "bad"):
        room.sessions.start(name)
    room.sessions.stop()
    files.start()
    files.close()
    assert (folder / "good.json").read_text() == "half and half"
    assert os.listdir(folder) == ["good.json"]


def test_who_sends_only_old_records_is_unhealthy_and_a_slow_clock_is_not(room: Room) -> None:
    node = Node(room.store, "n")
    room.run(node, 10)
    room.at(100)
    origin = Origin(JournalId(node.journal), "n", 42, START, "boot", 7, "agent")
    batch = Batch(origin, Position(0), Position(1))
    batch.points.append(1, START + 10 * SECOND, -1, 1.0)
    room.clients.stored([batch])
    [client] = room.clients.all()
    assert client.heard_ns == START + 100 * SECOND and not client.healthy
    room.clients.ahead_ns = lambda: {"n": -90 * SECOND}
    [client] = room.clients.all()
    assert client.healthy


def test_clients_of_gswarm_count_by_when_they_were_heard(room: Room) -> None:
    """They cannot be asked: one that spoke until the end has said all, one that fell silent in the
    session may come back with more, and one that left before it is not expected."""
    left, gone, steady = (
        Node(room.store, host, boot=f"gswarm:ipv4:10.0.0.1:{number}", uuids=False)
        for number, host in enumerate(("left", "gone", "steady"))
    )
    room.run(left, -40)
    room.sessions.start("s")
    room.run(gone, 1, 2, 3)
    room.run(steady, *range(1, 9))
    room.at(10)
    room.sessions.stop("s")
    assert room.missing("s") == ["gone_ipv4:10.0.0.1:1"]
    back = Node(room.store, "gone", pid=43, boot="gswarm:ipv4:10.0.0.1:9", uuids=False)
    _begin(room.store, back, START + 11 * SECOND)
    room.run(back, 9, 10)
    assert room.missing("s") == []


def test_a_file_that_could_not_be_written_is_tried_again(room: Room) -> None:
    """Over that of an older session of the same name, too."""
    here, behind = session_of_ten_seconds(room)
    for node in (here, behind):
        room.run(node, 11)
    place = room.root / "work"
    place.rename(room.root / "elsewhere")
    room.tick()
    assert not place.exists()
    place.mkdir()
    (place / "s.json").write_text('{"session_id":"an older one"}')
    room.at(40)
    room.tick()
    assert room.file("s")["complete"] and "completed_later" not in room.file("s")
