"""What a log of another tool says, whatever form it has.  Every reader yields these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from runwatch.errors import UsageError
from runwatch.record import NO_STEP
from runwatch.record.checks import LATEST_NS

Kind = Literal["tensorboard", "wandb", "mlflow", "csv", "json", "mldiagnostics"]
KINDS: Final[Mapping[Kind, str]] = {
    "tensorboard": "a TensorBoard log",
    "wandb": "a wandb run",
    "mlflow": "an MLflow store",
    "csv": "a CSV file",
    "json": "a JSON export",
    "mldiagnostics": "log entries of mldiagnostics",
}
"""What a run was imported from, in words."""
Labels = tuple[tuple[str, str], ...]
Mark = Mapping[str, Any]
"""How far a stream was read, as its reader wrote it down: plain JSON."""


class NotALog(UsageError):
    """The file is none of the forms that can be imported, or it is damaged."""


class SourceChanged(UsageError):
    """What was imported before is no longer in the log: it is another one under the same name."""


class Lane(NamedTuple):
    """One process of a run: it becomes one journal."""

    rank: int = 0
    attempt: str = ""


MAIN: Final = Lane()


class Point(NamedTuple):
    metric: str
    step: int
    time_ns: int
    value: float
    lane: Lane = MAIN
    device: str = ""
    labels: Labels = ()


class Text(NamedTuple):
    """A text, or another value that is no number, which the program logged."""

    name: str
    value: Any
    time_ns: int
    step: int = NO_STEP


class Line(NamedTuple):
    """A line that the program wrote on its console."""

    text: str
    time_ns: int
    stream: Literal["out", "err"] = "out"


class Settings(NamedTuple):
    part: Literal["user", "software", "system"]
    values: Mapping[str, Any]
    time_ns: int | None = None


class Begun(NamedTuple):
    """When the run began, and what is known of the program."""

    time_ns: int
    argv: tuple[str, ...] = ()
    cwd: str = ""
    user: str = ""


class Ended(NamedTuple):
    """How the run ended, if the log says so."""

    status: Literal["completed", "failed", "killed"]
    time_ns: int | None = None
    exit_code: int | None = None
    reason: str = ""


class LeftOut(NamedTuple):
    """What the log holds and Runwatch does not keep."""

    what: str
    times: int = 1


class Reached(NamedTuple):
    """Everything of the stream up to here has been yielded.  The next import begins here."""

    stream: str
    mark: Mark
    read_bytes: int = 0
    """How much was read since the last one."""


Item = Point | Text | Line | Settings | Begun | Ended | LeftOut | Reached


@dataclass(frozen=True, slots=True)
class Source:
    """One run that a log holds."""

    kind: Kind
    path: Path
    name: str
    """What the other tool calls the run."""
    identity: str
    """The same for the same log, wherever it lies and however long it has become."""
    read: Callable[[Mapping[str, Mark]], Iterator[Item]]
    """From the marks on that an earlier reading yielded."""
    group: str = ""
    bytes: int = 0
    notes: tuple[str, ...] = field(default=())
    """What a person should know of how it is read."""


def is_time(time_ns: int) -> bool:
    """Whether a record can hold this time."""
    return 0 <= time_ns <= LATEST_NS


def nanoseconds(seconds: float) -> int | None:
    """A time in seconds since the epoch, exact to the microsecond, as far as a float can tell."""
    if not 0 <= seconds * 1e9 <= LATEST_NS:  # nor NaN
        return None
    return round(seconds * 1_000_000) * 1_000


def utf8(data: bytes) -> str:
    return data.decode("utf-8", "replace")
