"""What the journal's tests share: an origin, a clock one can turn, and everything a reader says."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import HEADER_LENGTH, RECORD
from runwatch.record import START, Batch, Event, JournalId, Origin, Position, Series, SpanName

SECOND = 1_000_000_000
SMALL = 1 << 20
SOURCES = Path(__file__).parents[3] / "src"


def origin(journal: str = "6553f100-node-7-a1", *, host: str = "node", pid: int = 7) -> Origin:
    return Origin(JournalId(journal), host, pid, 1_700_000_000 * SECOND, "boot", 42)


@dataclass
class Everything:
    """All that a reader gave, with names in place of ids."""

    points: list[tuple[str, int, bytes, int]] = field(default_factory=list)
    spans: list[tuple[str, int, int, int]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    ends: list[Position] = field(default_factory=list)
    skipped: int = 0

    def add(self, batch: Batch) -> None:
        for definition in batch.definitions:
            if isinstance(definition, Series):
                self.names[definition.id] = definition.metric
            elif isinstance(definition, SpanName):
                self.names[definition.id] = definition.name
        p, s = batch.points, batch.spans
        for number, step, value, time_ns in zip(p.series, p.step, p.value, p.time_ns, strict=True):
            name = self.names.get(number, f"#{number}")
            self.points.append((name, step, struct.pack("<d", value), time_ns))
        for number, span, edge, step in zip(s.name, s.span, s.edge, s.step, strict=True):
            self.spans.append((self.names.get(number, f"#{number}"), span, edge, step))
        self.events.extend(batch.events)
        self.ends.append(batch.end)
        self.skipped += batch.skipped_records

    def values(self, metric: str) -> list[float]:
        return [struct.unpack("<d", v)[0] for name, _, v, _ in self.points if name == metric]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def bodies(self, kind: str) -> list[Any]:
        return [event.body for event in self.events if event.kind == kind]


def read_everything(
    directory: Path,
    *,
    start: Position = START,
    max_bytes: int = 1 << 20,
    final: bool = True,
    names: dict[int, str] | None = None,
) -> Everything:
    found = Everything(names=dict(names or {}))
    reader = JournalReader(directory, start=start)
    try:
        while (batch := reader.read(final=final, max_bytes=max_bytes)) is not None:
            found.add(batch)
    finally:
        reader.close()
    return found


def record_offsets(data: bytes) -> list[int]:
    """Where the records of a segment start, and behind the last where they end."""
    at, offsets = HEADER_LENGTH, []
    while at + 16 <= len(data):
        _, units, _, _ = RECORD.unpack_from(data, at)
        if units == 0:
            break
        offsets.append(at)
        at += units * 8
    return [*offsets, at]


def start_script(script: Path, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """A real process, with Runwatch on its path."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script), *map(str, arguments)],
        env={"PYTHONPATH": str(SOURCES), "PATH": "/usr/bin:/bin"},
        text=True,
        **options,
    )
