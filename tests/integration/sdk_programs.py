"""Running a user's program as a process of its own, and reading what its journals say."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import runwatch
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import journal_directories
from runwatch.record import NO_STEP, Event, Origin, RunScope, Series, SpanName

SOURCE = Path(runwatch.__file__).parents[1]
ROOT = Path(__file__).parents[2]


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
        """As recorded last."""
        values: Mapping[str, Any] = [b for b in self.bodies("config") if b["part"] == part][-1]
        return values["values"]  # type: ignore[no-any-return]

    @property
    def end(self) -> Mapping[str, Any]:
        """The one `run_end`."""
        (body,) = self.bodies("run_end")
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
    known: dict[int, Any] = {}
    while (batch := reader.read(final=True)) is not None:
        for definition in batch.definitions:
            if isinstance(definition, RunScope) and definition.id not in known:
                story.scopes.append(definition)
            known[definition.id] = definition
        points, spans = batch.points, batch.spans
        for series, time_ns, step, value in zip(
            points.series, points.time_ns, points.step, points.value, strict=True
        ):
            what = known[series]
            assert isinstance(what, Series)
            story.numbers.append(
                Number(
                    what.metric, what.device, _step(step), value, time_ns, what.labels, what.unit
                )
            )
        for name, span, edge, time_ns, step in zip(
            spans.name, spans.span, spans.edge, spans.time_ns, spans.step, strict=True
        ):
            assert isinstance(known[name], SpanName)
            story.edges.append(Edge(known[name].name, span, edge, _step(step), time_ns))
        story.events.extend(batch.events)
    reader.close()
    return story


def _step(step: int) -> int | None:
    return None if step == NO_STEP else step


def program_environment(directory: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH", "SLURM", "TORCH"))}
    return {
        **kept,
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT / 'dropin'}",
        "RUNWATCH_AGENT": "off",
        "RUNWATCH_DIR": str(directory),
        **more,
    }


def start_program(text: str, directory: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=program_environment(directory, **environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_program(text: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    process = start_program(text, directory, **environment)
    with process:
        try:
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
