"""`runwatch export --format tensorboard`: a run's event files, once, or for as long as it runs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runwatch.cli.pictures.progress import progress
from runwatch.cli.source import Source
from runwatch.errors import HeadUnreachable, UsageError
from runwatch.exports.tensorboard import EventDirectory

PAGE: Final = 10_000
AT_ONCE: Final = 200
"""So many series are asked for in one request: an address must not be too long."""
GOODPUT_POINTS: Final = 200
PATIENCE_SECONDS: Final = 3600.0
"""A head that is away for longer is given up.  The next --follow goes on from there."""

Run = Mapping[str, Any]
Step = Callable[[int], None]


def check(arguments: argparse.Namespace) -> None:
    if arguments.output is None:
        raise UsageError("TensorBoard reads a directory: name one with -o DIR")
    if not arguments.every > 0:
        raise UsageError(f"--every {arguments.every}: seconds, more than 0")


def export(head: Source, run: Run, arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    only = {"metric": sorted(arguments.metric or ()), "rank": sorted(arguments.rank or ())}
    directory = EventDirectory(
        output, run["run"], run["started_ns"], only=only, force=arguments.force
    )
    with directory:
        made = _Export(head, run, directory, only)
        if arguments.follow:
            head.follow()
        if not (arguments.follow and directory.resume() and made.is_same_store()):
            made.whole()
        if arguments.follow:
            made.follow(arguments.every)
    files, points = len(directory.note.files), made.written_before + made.points
    print(f"Wrote {output}: {points:,} points in {files} files; `tensorboard --logdir {output}`")
    return 0


class _Export:
    def __init__(
        self, head: Source, run: Run, directory: EventDirectory, only: Mapping[str, Any]
    ) -> None:
        self._head = head
        self._run = run
        self._path = f"/runs/{run['run']}"
        self._directory = directory
        self._only = {name: values or None for name, values in only.items()}
        self.points = 0
        self.written_before = 0

    # ── all of it ─────────────────────────────────────────────────────────────────────────────

    def whole(self) -> None:
        self.points = 0
        self._directory.begin()
        with progress(f"exporting {self._run['name']}", "points") as step:
            for stretch in self._stretches(**self._only):
                self._write(stretch, step)
            self._beside(goodput_points=GOODPUT_POINTS)
        self._directory.keep()

    def is_same_store(self) -> bool:
        """Whether the head numbers its series as it did when the directory was written."""
        known = {each["series"] for each in self._series()}
        places = self._directory.note.series
        self.written_before = sum(place.count for place in places.values())
        if places.keys() <= known:
            return True
        self.written_before = 0
        return False

    # ── what is new ───────────────────────────────────────────────────────────────────────────

    def follow(self, every_seconds: float) -> None:
        """Until the run has ended, and once more: its last points may come after its end."""
        heard, is_told = time.monotonic(), False
        running = True
        while running:
            try:
                running = self._head.get(self._path)["state"] == "running"
                if running:
                    time.sleep(every_seconds)
                self._head.refresh()
                self._news()
                heard, is_told = time.monotonic(), False
            except HeadUnreachable as error:
                if time.monotonic() - heard > PATIENCE_SECONDS:
                    raise
                if not is_told:
                    print(f"runwatch: {error}; trying again for an hour", file=sys.stderr)
                is_told = True
                time.sleep(every_seconds)
                running = True
        if not self._is_complete():
            self.written_before = 0
            self.whole()

    def _news(self) -> None:
        for start_ns, series in self._changed():
            for stretch in self._stretches(series=series, start=start_ns):
                self._write(stretch, lambda count: None)
        self._beside(goodput_points=1)
        self._directory.keep()

    def _changed(self) -> Iterator[tuple[int | None, list[int]]]:
        """Series with new points, and from when on to read them."""
        new: list[int] = []
        grown: list[tuple[int, int]] = []
        for each in self._series():
            if each["latest"] is None:
                continue
            since_ns = self._directory.since_ns(each["series"])
            if since_ns is None:
                new.append(each["series"])
            elif each["latest"]["time_ns"] > since_ns:
                grown.append((since_ns, each["series"]))
        grown.sort()
        for at in range(0, len(new), AT_ONCE):
            yield None, new[at : at + AT_ONCE]
        for at in range(0, len(grown), AT_ONCE):
            part = grown[at : at + AT_ONCE]
            yield part[0][0], [series for _, series in part]

    def _is_complete(self) -> bool:
        """A point that was recorded with an earlier time than one before it would be missing."""
        found: dict[int, int] = {}
        with progress(f"checking {self._run['name']}", "points") as step:
            for stretch in self._stretches(**self._only):
                count = len(stretch["time_ns"])
                found[stretch["series"]] = found.get(stretch["series"], 0) + count
                step(count)
        return all(count == self._directory.count(series) for series, count in found.items())

    # ── asking ────────────────────────────────────────────────────────────────────────────────

    def _write(self, stretch: Mapping[str, Any], step: Step) -> None:
        count = self._directory.points(stretch)
        self.points += count
        step(count)

    def _beside(self, *, goodput_points: int) -> None:
        """Goodput, configuration and texts."""
        account = self._head.get(f"{self._path}/goodput", buckets=goodput_points)
        for time_ns, share, spent in _accumulated(account["over_time"] or ()):
            self._directory.goodput(time_ns, share, spent)
        user = self._head.get(f"{self._path}/configs")["user"]
        self._directory.configuration(self._run["started_ns"], user)
        for page in self._texts():
            self._directory.texts(page)

    def _texts(self) -> Iterator[list[dict[str, Any]]]:
        while True:
            start_ns = self._directory.note.text_ns
            page = self._head.get(
                f"{self._path}/events", kind="log", start=max(start_ns, 0), limit=PAGE
            )["events"]
            yield page
            if len(page) < PAGE or page[-1]["time_ns"] == start_ns:
                return

    def _series(self) -> Iterator[dict[str, Any]]:
        offset: int | None = 0
        while offset is not None:
            page = self._head.get(f"{self._path}/series", limit=PAGE, offset=offset, **self._only)
            yield from page["series"]
            offset = page["next_offset"]

    def _stretches(self, **asked: Any) -> Iterator[dict[str, Any]]:
        rest = b""
        for chunk in self._head.stream(f"{self._path}/export", format="series", **asked):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from map(json.loads, lines)


def _accumulated(
    parts: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[int, float | None, dict[str, float]]]:
    """The account at the end of each part: time, goodput, seconds of each class so far."""
    spent_ns: dict[str, int] = {}
    for part in parts:
        for name, ns in part["spent_ns"].items():
            spent_ns[name] = spent_ns.get(name, 0) + ns
        counted = sum(ns for name, ns in spent_ns.items() if name != "excluded")
        share = spent_ns.get("productive", 0) / counted if counted else None
        yield part["end_ns"], share, {name: ns / 1e9 for name, ns in spent_ns.items()}
