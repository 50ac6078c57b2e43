"""A directory with a run's numbers and texts for TensorBoard, which can go on while the run does.

    DIR/rank-0/events.out.tfevents.…            a rank, in the run's first attempt
    DIR/rank-0/attempt-2/events.out.tfevents.…  … and in a later one
    DIR/host-gpu-17/events.out.tfevents.…       what an agent measured of a host and its devices
    DIR/run/events.out.tfevents.…               the run's goodput, configuration and texts
    DIR/.runwatch-export.json                   how far we are

Files are written whole and then get their names, in place of those of an earlier export.  After
that they only grow.  The note with our place in each series has the length of each file: what a
process wrote after its last note and before it was killed is cut off, and written again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from runwatch.errors import StoreBusy, UsageError
from runwatch.exports.event_files import (
    account_scalars,
    hyperparameters_frame,
    opening,
    scalar_frame,
    text_frame,
)
from runwatch.files import safe_name, written
from runwatch.record.life import LogText

NOTE: Final = ".runwatch-export.json"
VERSION: Final = 1
SECOND: Final = 10**9  # a whole number: dividing by 1e9 would round twice
RUN_WIDE: Final = "run"
_STAGING: Final = ".runwatch-new"
_STAGED: Final = "events"  # TensorBoard takes every file with "tfevents" in its name
LONGEST_TEXT: Final = 100_000
MOST_HYPERPARAMETERS: Final = 500
_EXACT: Final = 2**53  # a double holds every whole number up to this

Stretch = Mapping[str, Any]
"""A line of `stretches.py`."""


@dataclass(slots=True)
class Place:
    """How far a series is written."""

    time_ns: int
    at_that_time: int
    """How many points it has at this time."""
    count: int
    where: str
    """The file and the tag, so that a store that numbers its series anew is noticed."""


@dataclass(slots=True)
class Note:
    """What is written, and how far; kept in the directory."""

    run: str
    only: dict[str, Any]
    """The metrics and ranks that were asked for."""
    version: int = VERSION
    files: dict[str, int] = field(default_factory=dict)
    """Their lengths, by path."""
    series: dict[int, Place] = field(default_factory=dict)
    text_ns: int = -(2**63)
    texts: list[str] = field(default_factory=list)
    """The texts of that time, by their hashes."""
    texts_written: int = 0
    goodput_last: list[float | None] = field(default_factory=list)
    """Time and value of the last account."""
    goodput_written: int = 0
    is_configured: bool = False
    is_whole: bool = True
    """False: some of the files may not be there yet."""

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, path: Path) -> Note | None:
        """None if there is none, or if it is not one of ours."""
        try:
            known = json.loads(path.read_bytes())
            if known["version"] != VERSION:
                return None
            known["series"] = {int(n): Place(**place) for n, place in known["series"].items()}
            return cls(**known)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


class EventDirectory:
    """The directory of one run.  Use it in a `with` block; it is nobody else's meanwhile."""

    def __init__(
        self, path: Path, run: str, started_ns: int, *, only: Mapping[str, Any], force: bool = False
    ) -> None:
        self._path = path
        self._started_ns = started_ns
        digest = hashlib.sha256(run.encode()).hexdigest()[:8]
        self._name = f"events.out.tfevents.{started_ns // SECOND:010}.runwatch-{digest}"
        self._root = path
        self._before = self._checked(run, force)
        self.note = Note(run, dict(only))
        self._grown: set[str] = set()
        """Files that grew since the last note."""
        self._fd = -1

    def _checked(self, run: str, force: bool) -> Note | None:
        path = self._path
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is not a directory: name another with -o DIR")
        before = Note.read(path / NOTE)
        if force or not path.is_dir():
            return before
        if before is not None and before.run != run:
            raise UsageError(
                f"{path} has the export of another run ({before.run}): name another directory, or "
                "replace it with --force"
            )
        if before is None and any(name != _STAGING for name in os.listdir(path)):
            raise UsageError(
                f"{path} has files that are not ours: name a new directory, or write beside them "
                "with --force"
            )
        return before

    def __enter__(self) -> EventDirectory:
        self._path.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise StoreBusy(f"another export writes into {self._path}: end it first") from None
        self._before = Note.read(self._path / NOTE) or self._before
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        os.close(self._fd)
        shutil.rmtree(self._path / _STAGING, ignore_errors=True)

    # ── from the beginning, or from where we were ─────────────────────────────────────────────

    def resume(self) -> bool:
        """Go on where an earlier export ended, if it was about the same; False: it must be begun
        anew."""
        before = self._before
        if before is None or not before.is_whole:
            return False
        if (before.run, before.only) != (self.note.run, self.note.only):
            return False
        paths = [self._path / name for name in before.files]
        try:
            sizes = [path.stat().st_size for path in paths]
        except OSError:
            return False
        if any(size < was for size, was in zip(sizes, before.files.values(), strict=True)):
            return False
        for path, was in zip(paths, before.files.values(), strict=True):
            os.truncate(path, was)
        for path in set(self._path.rglob(self._name)) - set(paths):
            path.unlink()
        self.note = before
        return True

    def begin(self) -> None:
        """Forget what was; what is written from now on gets its name with `keep`."""
        self._root = self._path / _STAGING
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir()
        self.note = Note(self.note.run, self.note.only)

    def keep(self) -> None:
        """What was written is there, and noted."""
        if self._root != self._path:
            self._move()
        else:
            for name in self._grown:
                _sync(self._path / name)
        self._grown.clear()
        self._leave(self.note)

    def _leave(self, note: Note) -> None:
        with written(self._path / NOTE, mode=0o666) as file:
            file.write(note.text())

    def _move(self) -> None:
        """If we are killed in between, the next export knows whose files these are, and begins
        anew."""
        old = set() if self._before is None else set(self._before.files)
        ours = dict.fromkeys((*old, *self.note.files), 0)
        self._leave(Note(self.note.run, self.note.only, files=ours, is_whole=False))
        for name in self.note.files:
            target = self._path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            staged = self._root / target.relative_to(self._path).parent / _STAGED
            _sync(staged)
            staged.replace(target)
        for name in old - set(self.note.files):
            (self._path / name).unlink(missing_ok=True)
        shutil.rmtree(self._root)
        self._root = self._path
        self._before = self.note

    # ── what is written ───────────────────────────────────────────────────────────────────────

    def since_ns(self, series: int) -> int | None:
        """The time of the newest point that is written; None if there is none."""
        place = self.note.series.get(series)
        return None if place is None else place.time_ns

    def count(self, series: int) -> int:
        place = self.note.series.get(series)
        return 0 if place is None else place.count

    def points(self, stretch: Stretch) -> int:
        """Write those that are new; returns how many."""
        folder, tag = _folder(stretch), _tag(stretch)
        place = self.note.series.setdefault(
            stretch["series"], Place(-(2**63), 0, 0, f"{folder}|{tag}")
        )
        frames = []
        skip = place.at_that_time
        for time_ns, step, value in zip(
            stretch["time_ns"], stretch["step"], stretch["value"], strict=True
        ):
            if time_ns < place.time_ns:
                continue
            if time_ns > place.time_ns:
                place.time_ns, place.at_that_time, skip = time_ns, 0, 0
            elif skip:
                skip -= 1
                continue
            number = place.count if step is None else step
            frames.append(scalar_frame(time_ns / SECOND, tag, number, float(value)))
            place.at_that_time += 1
            place.count += 1
        self._append(folder, frames)
        return len(frames)

    def goodput(
        self, time_ns: int, share: float | None, spent_seconds: Mapping[str, float]
    ) -> None:
        """The account at a time.  It has no step: it is numbered."""
        if self.note.goodput_last == [time_ns, share]:
            return
        self.note.goodput_last = [time_ns, share]
        percent = None if share is None else share * 100
        scalars = account_scalars(percent, spent_seconds, self.note.goodput_written)
        self._append(RUN_WIDE, [scalar_frame(time_ns / SECOND, *scalar[:3]) for scalar in scalars])
        self.note.goodput_written += 1

    def configuration(self, time_ns: int, values: Mapping[str, Any]) -> None:
        """As a table on the page "Text", and as hyperparameters of the run."""
        if self.note.is_configured or not values:
            return
        flat = dict(_flat(values))
        shown = {name: _plain(value) for name, value in flat.items()}
        rows = "".join(f"|{_cell(name)}|{_cell(value)}|\n" for name, value in shown.items())
        table = f"|name|value|\n|---|---|\n{rows}"[:LONGEST_TEXT]
        few = {name: shown[name] for name in list(shown)[:MOST_HYPERPARAMETERS]}
        seconds = time_ns / SECOND
        self._append(RUN_WIDE, [text_frame(seconds, "config", 0, table)])
        self._append("rank-0", [hyperparameters_frame(seconds, few)])
        self.note.is_configured = True

    def texts(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Texts that the program logged, in the order of time; those of the newest time may come
        again."""
        frames = []
        for event in events:
            time_ns, body = event["time_ns"], event["body"]
            mark = hashlib.sha256(json.dumps([event["rank"], body]).encode()).hexdigest()[:16]
            if time_ns < self.note.text_ns or (
                time_ns == self.note.text_ns and mark in self.note.texts
            ):
                continue
            if time_ns > self.note.text_ns:
                self.note.text_ns, self.note.texts = time_ns, []
            self.note.texts.append(mark)
            step = self.note.texts_written if event["step"] is None else event["step"]
            logged = LogText.of(body)
            tag = f"{logged.name or 'text'}/rank-{event['rank']}"
            words = str(_plain(logged.value))[:LONGEST_TEXT]
            frames.append(text_frame(time_ns / SECOND, tag, step, words))
            self.note.texts_written += 1
        self._append(RUN_WIDE, frames)

    def _append(self, folder: str, frames: Iterable[bytes]) -> None:
        data = b"".join(frames)
        if not data:
            return
        name = f"{folder}/{self._name}"
        if name not in self.note.files:
            data = opening(self._started_ns / SECOND) + data
        path = self._path / name if self._root == self._path else self._root / folder / _STAGED
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
            self.note.files[name] = file.tell()
        self._grown.add(name)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _folder(stretch: Stretch) -> str:
    if stretch["agent"] and stretch["attempt"] is None:
        return f"host-{safe_name(stretch['host'])}"
    rank, attempt = f"rank-{stretch['rank']}", stretch["attempt"] or 1
    return rank if attempt == 1 else f"{rank}/attempt-{attempt}"


def _tag(stretch: Stretch) -> str:
    parts = [stretch["metric"], stretch["device"]]
    labels = sorted((k, v) for k, v in stretch["labels"].items() if k != "journal")
    parts.append(",".join(f"{key}={value}" for key, value in labels))
    return "/".join(part for part in parts if part)


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _plain(value: Any) -> bool | float | str:
    if isinstance(value, int) and abs(value) > _EXACT:
        return str(value)
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
