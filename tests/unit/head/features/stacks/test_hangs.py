"""The hang watch: what is a stall, and what is not.  The clock is ours, the node a stand-in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from runwatch.head.features.stacks.hangs import HangWatch, Surroundings
from runwatch.head.features.stacks.incidents import Incidents, StackTaker
from runwatch.head.ingest import Ingest
from runwatch.head.outbox import Outbox
from runwatch.head.own_journal import OwnJournal
from runwatch.head.reading import Reading
from runwatch.head.settings import HangSettings
from runwatch.record import (
    BEGIN,
    END,
    Batch,
    Command,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    SpanName,
)
from runwatch.record.commands import CommandResult
from runwatch.record.otlp import is_foreign
from runwatch.record.stacks import Incident
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import FakeClock
from runwatch.views.pace import Limits

RUN, HOST = RunId("llama"), "node"
SECOND = 10**9
START = 1_800_000_000 * SECOND


class Process:
    """Writes a journal of one rank."""

    def __init__(self, world: World, rank: int, ranks: int, run: RunId = RUN) -> None:
        self.world = world
        self.journal = JournalId(f"{run}-{HOST}-{rank}-{world.clock.now_ns:x}")
        self.rank = rank
        self._place = 0
        self._spans = 0
        scope = RunScope(1, run, run, rank, ranks)
        names = [SpanName(1, "step", 1), SpanName(2, "checkpoint_save", 1)]
        self.write(events=[Event(self.now, "run_start", {}, scope=1)], define=[scope, *names])

    @property
    def now(self) -> int:
        return self.world.clock.now_ns

    def write(
        self,
        events: Sequence[Event] = (),
        edges: Sequence[tuple[int, int, int, int]] = (),
        define: Sequence[Any] = (),
    ) -> None:
        """`edges`: name, edge, time, step."""
        origin = Origin(self.journal, HOST, 100 + self.rank, START)
        batch = Batch(origin, Position(self._place), Position(self._place + 1))
        batch.definitions += define
        batch.events += events
        for name, edge, time_ns, step in edges:
            self._spans += edge == BEGIN
            batch.spans.append(name, self._spans, edge, time_ns, step)
        self._place += 1
        self.world.ingest.submit(batch).result(100)

    def step(self, number: int, seconds: float = 0.1) -> None:
        begin = self.now
        self.world.clock.now_ns += int(seconds * SECOND)
        self.write(edges=[(1, BEGIN, begin, number), (1, END, self.now, number)])

    def end(self, signal: int | None = None) -> None:
        body = {"journal": self.journal, "code": None if signal else 0, "signal": signal}
        self.world.alive.discard(self.journal)
        self.world.agent_says(Event(self.now, "process_exit", body))


class World:
    """A store and its writer, a node, and the watch, whose ticks are ours."""

    def __init__(self) -> None:
        self.clock = FakeClock(START, jumps=True)
        self.store = DuckStore.open(None, clock=self.clock)
        self.ingest = Ingest(self.store, on_stored=self._stored, clock=self.clock)
        self.alive: set[JournalId] = set()
        self.known: int | None = 0
        """How old what we know of the host is, in ns; None: it is out of reach."""
        self.outbox = Outbox(None, lambda: [self], clock=self.clock)
        self.reading = Reading(self.store, clock=self.clock, alive=lambda: self.alive)
        self.incidents = Incidents(
            StackTaker(self.reading, self.outbox),
            OwnJournal(self.ingest, clock=self.clock),
            clock=self.clock,
        )
        self.watch = self._watch()
        self._said = 0
        self.asked: list[Mapping[str, Any]] = []
        self.stacks: dict[int, str] = {}
        """By rank: the function that it is in."""
        self.file = "/me/train.py"

    def _watch(self, sample_seconds: float = 0.0) -> HangWatch:
        around = Surroundings(lambda: self.alive, self._known_ns, dict)
        settings = HangSettings(limits=Limits(floor_seconds=10.0), sample_seconds=sample_seconds)
        return HangWatch(
            self.reading,
            self.incidents,
            around,
            still=self.ingest.still,
            settings=settings,
            clock=self.clock,
        )

    def _known_ns(self, host: str) -> int | None:
        return None if self.known is None else self.clock.now_ns - self.known

    def _stored(self, batches: Sequence[Batch]) -> None:
        self.outbox.stored(batches)
        for batch in batches:  # as `stored` does while the watch's thread runs
            if batch.origin.role == "process":
                self.watch._news.append(batch)
            for event in batch.events:
                if event.kind == "process_exit":
                    self.watch._exits.append(JournalId(event.body["journal"]))

    # ── a node, as an outbox knows it ─────────────────────────────────────────────────────────

    host, clock_offset_seconds = HOST, 0.0
    commands: tuple[str, ...] = ("stacks",)
    projects = ()

    def send(self, command: Command) -> None:
        self.asked.append(command.body)
        events = [
            Event(
                self.clock.now_ns,
                "stacks",
                {
                    "rank": rank,
                    "pid": 100 + rank,
                    "time_ns": self.clock.now_ns,
                    "how": "outside",
                    "state": "S",
                    "round": command.body["first_round"] + number,
                    "incident": command.body["incident"],
                    "command": command.id,
                    "threads": [
                        {
                            "name": "MainThread",
                            "is_main": True,
                            "idle": True,
                            "frames": [{"function": f, "file": self.file, "line": 7}],
                        }
                    ],
                },
                scope=1,
            )
            for number in range(command.body["rounds"])
            for rank, f in self.stacks.items()
        ]
        done = {"command": command.id, "state": "done", "why": "", "host": HOST}
        self.agent_says(*events, Event(self.clock.now_ns, CommandResult.KIND, done))

    def agent_says(self, *events: Event) -> None:
        origin = Origin(JournalId("agent"), HOST, 1, START, role="agent")
        batch = Batch(origin, Position(self._said), Position(self._said + 1))
        batch.definitions.append(RunScope(1, RUN, "llama", 0, 1))
        batch.events += events
        self._said += 1
        self.ingest.submit(batch).result(100)

    # ── for tests ─────────────────────────────────────────────────────────────────────────────

    def process(self, rank: int = 0, ranks: int = 1, run: RunId = RUN) -> Process:
        made = Process(self, rank, ranks, run)
        self.alive.add(made.journal)
        return made

    def pass_time(self, seconds: float) -> None:
        """In ticks, as the watch's thread would."""
        until = self.clock.now_ns + int(seconds * SECOND)
        while self.clock.now_ns < until:
            self.clock.now_ns = min(until, self.clock.now_ns + SECOND // 2)
            self.watch._tick()
            for thread in self.watch._looks:
                thread.join()

    def all(self) -> list[Incident]:
        return self.incidents.of(RUN)

    def close(self) -> None:
        self.watch.close()
        self.ingest.close()
        self.store.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.watch._take_up()
    yield made
    made.close()


def walk(process: Process, steps: int = 12, first: int = 0) -> None:
    for number in range(first, first + steps):
        process.step(number)
    process.world.watch._tick()


def test_a_run_that_stands_still_is_looked_at_once(world: World) -> None:
    process = world.process()
    world.stacks = {0: "wait_for_godot"}
    walk(process)
    world.pass_time(9)
    assert world.all() == [] and world.asked == []
    world.pass_time(3)
    (incident,) = world.all()
    assert incident.is_open and incident.ranks == (0,)
    assert "train.py:7" in incident.text and incident.severity == "warning"
    looks = len(world.asked)
    assert [asked["native"] for asked in world.asked] == [False, True]
    world.pass_time(50)
    assert len(world.asked) == looks and len(world.all()) == 1
    world.pass_time(70)  # once more when it becomes louder
    (incident,) = world.all()
    assert len(world.asked) == 2 * looks and incident.severity == "incident"


def test_what_is_heard_of_now_and_then_does_not_stand_still(world: World) -> None:
    """It sent its spans by OTLP, and sends the next ones in a minute."""
    run = RunId("otlp..run")
    process = world.process(run=run)
    assert is_foreign(process.journal)
    walk(process)
    world.pass_time(200)
    assert world.incidents.of(run) == [] and world.asked == []


def test_an_incident_that_stays_open_is_looked_at_again(world: World) -> None:
    process = world.process()
    world.stacks = {0: "wait_for_godot"}
    walk(process)
    world.pass_time(390)
    (incident,) = world.all()
    assert incident.rounds == 12
    rounds = [(a["first_round"], a["rounds"]) for a in world.asked]
    assert rounds == [(0, 3), (3, 1), (4, 3), (7, 1), (8, 3), (11, 1)]


def test_what_is_at_work_is_a_note_and_no_stall(world: World) -> None:
    process = world.process()
    world.stacks, world.file = {0: "_save"}, "/venv/site-packages/torch/serialization.py"
    walk(process)
    world.pass_time(60)
    (incident,) = world.all()
    assert incident.severity == "note" and "torch.save" in incident.text
    (run,) = world.reading.summaries()
    assert run.state == "running" and not run.stalled
    looks = len(world.asked)
    world.pass_time(400)
    assert world.all()[0].severity == "note"
    assert len(world.asked) - looks <= 12, "it is looked at less and less often"
    world.pass_time(200)  # its patience is over
    assert world.all()[0].severity == "warning"
    (run,) = world.reading.summaries()
    assert run.stalled and "torch.save" in run.reason


def test_what_was_at_work_and_gets_stuck_becomes_an_alarm(world: World) -> None:
    process = world.process()
    world.stacks, world.file = {0: "_save"}, "/venv/site-packages/torch/serialization.py"
    walk(process)
    world.pass_time(20)
    (note,) = world.all()
    world.stacks, world.file = {0: "wait_for_godot"}, "/me/train.py"
    world.pass_time(60)
    (incident,) = world.all()
    assert incident.id == note.id and incident.is_alarm
    assert incident.named_ns > note.named_ns, "it was named when it became one"


def test_it_closes_when_steps_come_again_and_opens_anew(world: World) -> None:
    process = world.process()
    world.stacks = {0: "wait_for_godot"}
    walk(process)
    world.pass_time(12)
    walk(process, first=12)
    world.pass_time(1)
    (incident,) = world.all()
    assert not incident.is_open and incident.why.startswith("it went on at")
    assert incident.closed_ns is not None
    world.pass_time(40)  # the pause is known by now, and half as long again is no stall
    assert [i.is_open for i in world.all()] == [True, False]


def test_records_on_their_way_are_waited_for(world: World) -> None:
    process = world.process()
    world.stacks = {0: "wait_for_godot"}
    walk(process)
    world.known = None  # the host is out of reach
    world.pass_time(30)
    assert world.all() == [] and world.asked == []
    for number in range(12, 300):  # it comes back, and tells what it did meanwhile
        process.step(number)
    world.known = 0
    world.pass_time(1)
    assert world.all() == []


def test_a_host_with_a_backlog_is_believed_up_to_what_it_told(world: World) -> None:
    process = world.process()
    world.stacks = {0: "wait_for_godot"}
    walk(process)
    kept_ns = world.clock.now_ns
    world.clock.now_ns += 60 * SECOND  # a minute's records lie on the node, and come bit by bit
    for number in range(12, 30):
        time_ns = kept_ns + (number - 11) * SECOND // 10
        process.write(edges=[(1, BEGIN, time_ns, number), (1, END, time_ns + 10**7, number)])
        world.pass_time(1)
    assert world.all() == [] and world.asked == []


def test_a_checkpoint_has_its_time(world: World) -> None:
    process = world.process()
    world.stacks = {0: "save"}
    walk(process)
    process.write(edges=[(2, BEGIN, world.clock.now_ns, 12)])
    world.pass_time(300)
    assert world.all() == []


def test_who_ended_is_no_stall_and_a_run_that_is_over_closes_its_incident(world: World) -> None:
    process = world.process()
    world.stacks = {0: "wait_for_godot"}
    walk(process)
    world.pass_time(12)
    process.end(signal=9)
    world.pass_time(1)
    (incident,) = world.all()
    assert incident.why == "the run ended: killed"
    world.pass_time(60)
    assert len(world.all()) == 1


def test_ranks_that_went_down_together_are_an_incident(world: World) -> None:
    ranks = [world.process(rank, 3) for rank in range(3)]
    for _ in range(6):
        for process in ranks:
            process.step(0)
    world.pass_time(1)
    ranks[1].end(signal=9)
    for process in (ranks[0], ranks[2]):
        body = {"status": "failed", "exception": "RuntimeError: Connection closed by peer"}
        process.write(events=[Event(world.clock.now_ns, "run_end", body, scope=1)])
        world.alive.discard(process.journal)
    world.pass_time(40)
    (incident,) = world.all()
    assert (incident.kind, incident.state, incident.ranks) == ("crash", "closed", (1,))
    assert incident.text.endswith("SIGKILL at 2027-01-15T08:00:02Z")


def test_nobody_could_look_is_said_and_tried_again(world: World) -> None:
    process = world.process()
    walk(process)
    world.commands = ()  # an agent of old
    world.pass_time(12)
    (incident,) = world.all()
    assert incident.ranks == () and incident.confidence == "cannot tell"
    assert "too old to take the command" in incident.text
    world.commands, world.stacks = ("stacks",), {0: "wait_for_godot"}
    world.pass_time(10)
    (incident,) = world.all()
    assert incident.ranks == (0,)


def test_a_head_that_begins_again_goes_on_with_what_is_open(world: World) -> None:
    process = world.process()
    world.stacks = {0: "wait_for_godot"}
    walk(process)
    world.pass_time(12)
    world.watch.close()
    world.watch = world._watch()
    world.watch._take_up()
    world.pass_time(60)
    (incident,) = world.all()
    assert incident.is_open
    world.alive.clear()  # and one that finds the run over closes it
    world.clock.now_ns += 600 * SECOND
    world.watch.close()
    world.watch = world._watch()
    world.watch._take_up()
    (incident,) = world.all()
    assert not incident.is_open and "over" in incident.why


def test_a_healthy_run_is_sampled_if_that_is_wanted(world: World) -> None:
    world.watch = world._watch(sample_seconds=5.0)
    process = world.process()
    world.stacks = {0: "train"}
    walk(process)
    for number in range(12, 24):
        process.step(number)
        world.pass_time(1)
    assert [(asked["rounds"], asked["native"]) for asked in world.asked] == [(1, False)] * 3
    assert world.all() == []
    assert len(world.incidents.taker.taken(RUN)) == 3


def test_switched_off_it_costs_nothing(world: World) -> None:
    watch = world.watch
    watch.stored([Batch(Origin(JournalId("j"), HOST, 1, START), Position(0), Position(1))])
    assert not watch._news  # nobody would ever take it


def test_one_that_went_on_while_we_looked_is_looked_at_again(world: World) -> None:
    process = world.process()
    world.stacks = {0: "wait_for_godot"}
    walk(process)
    answer = world.send

    def goes_on(command: Command) -> None:
        process.step(12)
        world.watch._waiting += list(world.watch._news)  # as the watch's thread does meanwhile
        world.watch._news.clear()
        world.watch._feed()
        world.clock.now_ns += 30 * SECOND  # and stands still again
        answer(command)

    world.send = goes_on  # type: ignore[method-assign]
    world.pass_time(12)
    assert len(world.asked) == 1 and world.all() == []
    world.send = answer  # type: ignore[method-assign]
    world.pass_time(1)
    (incident,) = world.all()
    assert incident.ranks == (0,)


def test_a_run_that_is_first_heard_of_while_another_is_taken_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never again, since it hangs."""
    enter, other = world.watch._entered, RunId("bert")

    def entered(run: RunId, *given: Any) -> Any:
        if run == RUN:
            world.process(run=other)
        return enter(run, *given)

    monkeypatch.setattr(world.watch, "_entered", entered)
    world.process()
    world.pass_time(1)
    assert world.watch._watched.keys() == {RUN, other}
