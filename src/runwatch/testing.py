"""What our tests share with the tests of programs that use Runwatch (`docs/testing.md`).

`FakeClock` is time that a test moves.  `until` waits for what a thread or a process does.
`read_stories` reads what programs recorded.  `BatchWriter` makes the batches that a head would get
from a process.  Nothing here needs a head or an agent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import journal_directories
from runwatch.record import (
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Points,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
    Spans,
)
from runwatch.record.life import Config, RunEnd

T = TypeVar("T")
SECOND = 1_000_000_000
EPOCH = 20_000 * 86_400 * SECOND  # a midnight in 2024


class FakeClock:
    """A clock that stands still until it is moved.

    It replaces `runwatch.clock.SystemClock`.  Wall time and monotonic time differ from the start,
    so that a program that mixes them up fails its test.
    """

    def __init__(
        self,
        wall_ns: int = 1_700_000_000 * SECOND,
        mono_ns: int = 5_000 * SECOND,
        *,
        jumps: bool = False,
    ) -> None:
        self.wall, self.mono = wall_ns, mono_ns
        self.jumps = jumps
        """Waiting moves the clock by the time waited for.  Otherwise a wait takes no time."""

    def wall_ns(self) -> int:
        return self.wall

    def mono_ns(self) -> int:
        return self.mono

    @property
    def now_ns(self) -> int:
        """Wall time; setting it moves both clocks, as passing time does."""
        return self.wall

    @now_ns.setter
    def now_ns(self, wall_ns: int) -> None:
        self.mono += wall_ns - self.wall
        self.wall = wall_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        if self.jumps:
            self.advance(seconds)
        return wake(0)


patience = 1.0
"""Factor on the deadlines of `until`.  `tests/conftest.py` raises it on a busy machine."""


# A lambda in a loop must bind the loop's variables: `until(lambda n=n: len(rows) == n)`.
# A condition is checked now and then: `== n` of a number that grows past n may never be seen.
def until(condition: Callable[..., T | None], seconds: float = 30.0, what: str = "") -> T:
    """Wait until a condition holds, and return its value; after `seconds` the test fails.

    A slow condition is checked less often, and so is any that is waited for long: the code that we
    wait for needs the processor too.
    """
    begin = checked = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        if now - begin > (longest := seconds * patience):
            raise AssertionError(f"not within {longest:g} s: {what or condition}")
        time.sleep(min(max(0.005, 3 * (now - checked), (now - begin) / 20), 0.25))
        checked = time.monotonic()
    return value


# ── what a program recorded ────────────────────────────────────────────────────────────────────


class Number(NamedTuple):
    metric: str
    device: str
    step: int | None
    value: float
    time_ns: int
    labels: Mapping[str, str]
    unit: str


class Edge(NamedTuple):
    name: str
    span: int
    edge: int
    step: int | None
    time_ns: int


@dataclass
class Story:
    """Everything one journal holds."""

    origin: Origin
    scopes: list[RunScope] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def values(self, metric: str, device: str = "") -> list[float]:
        return [n.value for n in self.numbers if n.metric == metric and n.device == device]

    def steps(self, metric: str) -> list[int | None]:
        return [n.step for n in self.numbers if n.metric == metric]

    def bodies(self, kind: str) -> list[Mapping[str, Any]]:
        return [e.body for e in self.events if e.kind == kind]

    def config(self, part: str) -> Mapping[str, Any]:
        """The values that were recorded last."""
        values: Mapping[str, Any] = [b for b in self.bodies(Config.KIND) if b["part"] == part][-1]
        return values["values"]  # type: ignore[no-any-return]

    @property
    def end(self) -> Mapping[str, Any]:
        """The one `run_end`."""
        (body,) = self.bodies(RunEnd.KIND)
        return body

    @property
    def warnings(self) -> dict[str, int]:
        return {b["what"]: b["count"] for b in self.bodies("warning")}


def read_stories(directory: Path) -> list[Story]:
    """One per journal, oldest first."""
    stories = [_read(path) for path in journal_directories(directory)]
    return sorted(stories, key=lambda story: story.origin.start_ns)


def _read(path: Path) -> Story:
    reader = JournalReader(path)
    assert reader.origin is not None
    story = Story(reader.origin)
    defined: dict[int, Any] = {}
    while (batch := reader.read(final=True)) is not None:
        for definition in batch.definitions:
            if isinstance(definition, RunScope) and definition.id not in defined:
                story.scopes.append(definition)
            defined[definition.id] = definition
        points, spans = batch.points, batch.spans
        for series, time_ns, step, value in zip(
            points.series, points.time_ns, points.step, points.value, strict=True
        ):
            metric = defined[series]
            assert isinstance(metric, Series)
            story.numbers.append(
                Number(
                    metric.metric,
                    metric.device,
                    _step(step),
                    value,
                    time_ns,
                    metric.labels,
                    metric.unit,
                )
            )
        for name, span, edge, time_ns, step in zip(
            spans.name, spans.span, spans.edge, spans.time_ns, spans.step, strict=True
        ):
            assert isinstance(defined[name], SpanName)
            story.edges.append(Edge(defined[name].name, span, edge, _step(step), time_ns))
        story.events.extend(batch.events)
    reader.close()
    return story


def _step(step: int) -> int | None:
    return None if step == NO_STEP else step


# ── what a head gets ───────────────────────────────────────────────────────────────────────────

Point = tuple[int, int, int | None, float]
"""Local series, time, step, value."""


def origin(name: str = "journal-a", *, host: str = "host-a", pid: int = 100) -> Origin:
    return Origin(JournalId(name), host, pid, EPOCH)


def definitions(
    run: str = "run-a", *, series: int = 3, rank: int = 0, metric: str = "metric"
) -> list[Definition]:
    """One scope, `series` series numbered from 1 on device '1', '2' …, one span name."""
    listed: list[Definition] = [RunScope(1, RunId(run), f"name of {run}", rank=rank, world_size=4)]
    listed += [Series(i, metric, scope=1, unit="u", device=str(i)) for i in range(1, series + 1)]
    listed.append(SpanName(1, "checkpoint_save", scope=1))
    return listed


def points(rows: Iterable[Point]) -> Points:
    columns = Points()
    for series, time_ns, step, value in rows:
        columns.append(series, time_ns, NO_STEP if step is None else step, value)
    return columns


def spans(rows: Iterable[tuple[int, int, int, int, int | None]]) -> Spans:
    columns = Spans()
    for name, span, edge, time_ns, step in rows:
        columns.append(name, span, edge, time_ns, NO_STEP if step is None else step)
    return columns


@dataclass
class BatchWriter:
    """A process that records: it hands out consecutive batches, as a head gets them.

    A record is 10 bytes long here.
    """

    origin: Origin = field(default_factory=origin)
    definitions: Sequence[Definition] = field(default_factory=definitions)
    at: int = 0

    def batch(
        self,
        rows: Iterable[Point] = (),
        *,
        events: Sequence[Event] = (),
        edges: Iterable[tuple[int, int, int, int, int | None]] = (),
        skipped: int = 0,
    ) -> Batch:
        batch = Batch(
            self.origin,
            Position(self.at),
            Position(self.at),
            list(self.definitions),
            points(rows),
            spans(edges),
            list(events),
            skipped,
        )
        batch.end = Position(self.at + 10 * max(batch.records + skipped, 1))
        self.at = batch.end
        return batch


def ramp(count: int, *, series: int = 1, start: int = EPOCH, first: int = 0) -> list[Point]:
    """One point a second with step and value equal to its index."""
    indices = range(first, first + count)
    return [(series, start + i * SECOND, i, float(i)) for i in indices]
