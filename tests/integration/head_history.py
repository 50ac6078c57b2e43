"""Small histories of runs, written into a real store as the batches of their journals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.store.store import Store

SECOND = 10**9
START = 1_700_000_000 * SECOND


@dataclass
class Producer:
    """One process: its journal, and the run that it takes part in."""

    store: Store
    journal: str
    run: str = "run-1"
    name: str = "llama"
    group: str = ""
    rank: int = 0
    host: str = "host-a"
    start_ns: int = START
    role: Any = "process"
    attempt_key: str = ""
    at: int = 0
    series: dict[tuple[str, str], int] = field(default_factory=dict)
    spans: int = 0

    def _definitions(self) -> list[Definition]:
        scope = RunScope(
            1,
            RunId(self.run),
            self.name,
            rank=self.rank,
            world_size=2,
            attempt_key=self.attempt_key,
            group=self.group,
        )
        known: list[Definition] = [scope] if self.run else []
        known += [
            Series(number, metric, scope=1, unit="u", device=device)
            for (metric, device), number in self.series.items()
        ]
        return [*known, SpanName(1, "step", scope=1)]

    def write(
        self,
        points: Iterable[tuple[str, float, int | None, float]] = (),
        events: Sequence[tuple[str, float, dict[str, Any]]] = (),
        *,
        device: str = "",
        steps: Iterable[tuple[int, float, float]] = (),
        scope: int = 1,
    ) -> Batch:
        """Store (metric, seconds since START, step, value), (kind, seconds, body) and steps."""
        points = list(points)
        for metric, *_ in points:
            self.series.setdefault((metric, device), len(self.series) + 1)
        origin = Origin(
            JournalId(self.journal), self.host, 100, self.start_ns, "boot", 0, self.role
        )
        batch = Batch(origin, Position(self.at), Position(self.at), self._definitions())
        for metric, seconds, step, value in points:
            batch.points.append(
                self.series[metric, device], when(seconds), NO_STEP if step is None else step, value
            )
        for step, begin, end in steps:
            self.spans += 1
            batch.spans.append(1, self.spans, BEGIN, when(begin), step)
            batch.spans.append(1, self.spans, END, when(end), step)
        batch.events += [Event(when(at), kind, body, scope=scope) for kind, at, body in events]
        batch.end = Position(self.at + 10 * max(batch.records, 1))
        (verdict,) = self.store.write([batch])
        assert verdict.accepted
        self.at = batch.end
        return batch


def when(seconds: float) -> int:
    return START + round(seconds * SECOND)


def agent(store: Store, journal: str = "agent-a", host: str = "host-a") -> Producer:
    return Producer(store, journal, run="", name="", host=host, role="agent")


def exited(journal: str, at: float, **how: Any) -> tuple[str, float, dict[str, Any]]:
    body = {"journal": journal, "pid": 100, "run": "", "code": None, "signal": None, **how}
    return "process_exit", at, body


def fill(store: Store) -> None:
    """Five runs: killed and restarted, completed, failed, two of one name; odd values."""
    _restarted(store)
    done = Producer(store, "j-done", run="run-2", name="bert", group="sweep", start_ns=when(5))
    done.write(
        [("loss", 5 + i, i, 1.0 / (i + 1)) for i in range(10)]
        + [("odd", 6, 0, math.nan), ("odd", 7, None, math.inf), ("odd", 8, 2, -math.inf)],
        [
            ("run_start", 5, {"run": "run-2", "name": "bert"}),
            (
                "config",
                5,
                {"part": "user", "values": {"lr": 0.1, "bad": math.nan, "text": "\ud800"}},
            ),
            ("config", 6, {"part": "user", "values": {"lr": 0.2}}),
            ("config", 6, {"part": "software", "values": {"python": "3.11"}}),
            ("log", 7, {"name": "note", "value": {"deep": [1, math.inf, {"x": None}]}}),
            ("run_end", 20, {"status": "completed", "reason": "", "explicit": True}),
        ],
        steps=[(0, 5, 5.5), (1, 6, 6.5)],
    )
    failed = Producer(store, "j-failed", run="run-3", name="Ünïcode 名前 / x", start_ns=when(6))
    failed.write([], [("run_end", 9, {"status": "failed", "exception": "ValueError: no"})])
    for number in (4, 5):
        twin = Producer(store, f"j-twin-{number}", run=f"run-{number}", name="twin")
        twin.write([("loss", 1, 1, float(number))])


def _restarted(store: Store) -> None:
    watcher = agent(store)
    for rank in (0, 1):
        first = Producer(store, f"j-a{rank}", rank=rank, start_ns=when(rank / 10))
        first.write(
            [("loss", i, i, 10.0 - i + rank) for i in range(5)],
            [("run_start", rank / 10, {"run": "run-1"})],
        )
        first.write([("gpu_used_bytes", i, None, 1e9) for i in range(3)], device="0")
    watcher.write([], [exited("j-a1", 5, signal=9, oom=True), exited("j-a0", 6, code=1)], scope=0)
    for rank in (0, 1):
        again = Producer(store, f"j-b{rank}", rank=rank, start_ns=when(100 + rank / 10))
        again.write([("loss", 100 + i, 3 + i, 7.0 - i + rank) for i in range(5)])
    # A kind that nobody reads is stored and does no harm.
    watcher.write([], [("heartbeat", 110, {"alive": ["j-b0", "j-b1"]})], scope=0)
