"""Running a program that does not know us, with and without hooks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import runwatch
from runwatch.record import BEGIN, END
from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import SOURCE, program_environment

PROGRAMS = Path(__file__).parent / "unchanged"
BOOT = Path(runwatch.__file__).parent / "sdk" / "boot"
"""On the path of every process that `runwatch exec` starts."""


@dataclass
class Ran:
    code: int
    out: str
    err: str
    stories: list[Story] = field(default_factory=list)

    @property
    def story(self) -> Story:
        (only,) = self.stories
        return only


def ran(program: str, folder: Path, *more: str, hooks: bool = True, **environment: str) -> Ran:
    """`program` is the name of one of `unchanged/`, or its text."""
    records, files = folder / "runwatch", folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    variables = program_environment(records, **environment)
    if hooks:
        variables |= {"PYTHONPATH": f"{BOOT}:{SOURCE}", "RUNWATCH_AUTO": "1"}
    known = PROGRAMS / f"{program}.py" if "\n" not in program else None
    what = [str(known)] if known is not None else ["-c", program]
    done = subprocess.run(
        [sys.executable, *what, str(files), *more],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, [*read_stories(records)])


def steps(story: Story) -> dict[int | None, float]:
    """Numbers and seconds of the steps that ended; each has begun, under the same number."""
    begun = [e.step for e in story.edges if e.name == "step" and e.edge == BEGIN]
    ended = [e.step for e in story.edges if e.name == "step" and e.edge == END]
    assert begun[: len(ended)] == ended
    return {n.step: n.value for n in story.numbers if n.metric == "step_seconds"}


def spans(story: Story, name: str) -> int:
    edges = [e.edge for e in story.edges if e.name == name]
    assert edges.count(BEGIN) == edges.count(END)
    return edges.count(BEGIN)


def seconds(story: Story, name: str) -> list[float]:
    """Of stretches that were told at their end."""
    return [body["seconds"] for body in story.bodies("elapsed") if body["name"] == name]
