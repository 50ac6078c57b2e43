"""A job's log lines as a trace: which worker logged what, and when.

Entries of Cloud Logging, as the service, `gcloud logging read` or its downloads write them, become
instants.  A worker has a track (a "process"), what it speaks of a line on it (a "thread"): known
troubles first, then the source file.  Everything streams; only tracks and lines are kept in memory.
Times are microseconds since the epoch, so that traces of one job lie beside each other; `timestamp`
of every instant has the nanoseconds.  Reading entries is next door, in `log_entries.py`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from runwatch.compat.xprofiler.mltrace.log_entries import Entry, mapping, message, nanoseconds

COORDINATOR: Final = "Coordinator"
OTHER: Final = "Other logs"
NOWHERE: Final = "no pod"
MAX_TITLE: Final = 200
MAX_TEXT: Final = 2_000
PIECE: Final = 500
"""So many entries are written at once."""

SECTIONS: Final = (
    ("BAD_ICI", ("bad_ici",)),
    ("Missing hosts", ("missing host", "missing worker", "hosts are missing")),
    ("Node pool error", ("node pool error", "nodepool error", "error: node pool")),
    ("Failed to connect", ("failed to connect", "connection refused", "could not connect")),
    ("Out of memory", ("out of memory", "resource_exhausted", "oomkilled")),
    ("Preemption", ("preempt", "sigterm", "maintenance event")),
    ("MegaScale Topology Discovery", ("topology discovery", "megascale topology")),
    ("Checkpoint", ("checkpoint",)),
)
"""Section → words.  A line belongs to the first section that has one of its words, in small or
capital letters.  Words are plain text, not patterns."""

_GLOG = re.compile(r"\s*[IWEF]\d{4} [\d:.]+\s+\d+ ([^\s:\]]+):\d+\]")
_INDEXES = re.compile(r"-(\d+)-(\d+)(?:-(?:[a-z0-9]{5}|[0-9]*[a-z][a-z0-9]*))?$")
_PAGE: Final = Path(__file__).with_name("mltrace.html")

Item = dict[str, Any]


def section(text: str, file: str = "") -> str:
    """The section that a line belongs to."""
    lower = text.lower()
    for name, words in SECTIONS:
        for word in words:
            if word in lower:
                return name
    if file:
        return file
    prefix = _GLOG.match(text)
    return prefix[1] if prefix else OTHER


# ── tracks ─────────────────────────────────────────────────────────────────────────────────────


class Worker(NamedTuple):
    """The source of a log line.  A pod that was started again is the same worker."""

    group: str
    slice: int
    number: int
    name: str
    is_alone: bool
    """Whether the name alone identifies it; else other workers may have the same name."""


def worker(pod: str, container: str, job: str) -> Worker:
    """Of `<job>-slice-job-2-17-x7k2p` number 17 in slice 2; of others the container."""
    rest = pod.removeprefix(job)
    indexes = _INDEXES.search(pod)
    group = pod[: indexes.start()] if indexes else pod
    own = group.removeprefix(job)
    if indexes and (own == "" or "slice" in rest or "job" in rest):
        where = f"{int(indexes[1])}-{int(indexes[2])}"
        name = COORDINATOR if where == "0-0" else f"Slice-Worker {where}"
        return Worker(group, int(indexes[1]), int(indexes[2]), name, True)
    numbers = (int(indexes[1]), int(indexes[2])) if indexes else (-1, -1)
    return Worker(f"{group}/{container}", *numbers, container or pod or NOWHERE, False)


@dataclass(slots=True)
class Trace:
    """Turns entries into items, and counts them."""

    job: str
    start_ns: int | None = None
    end_ns: int | None = None
    lines: int = 0
    without_time: int = 0
    _tracks: dict[Worker, int] = field(default_factory=dict)
    _known: dict[tuple[str, str], int] = field(default_factory=dict)
    _sections: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def tracks(self) -> int:
        return len(self._tracks)

    def item(self, entry: Entry) -> Item | None:
        """An instant, or nothing for an entry that is outside of the time asked for."""
        time_ns = nanoseconds(entry.get("timestamp") or entry.get("receiveTimestamp"))
        if time_ns is None:
            self.without_time += 1
            return None
        if (self.start_ns is not None and time_ns < self.start_ns) or (
            self.end_ns is not None and time_ns > self.end_ns
        ):
            return None
        self.lines += 1
        return self._item(entry, time_ns)

    def _item(self, entry: Entry, time_ns: int) -> Item:
        labels = mapping(mapping(entry.get("resource")).get("labels"))
        text = message(entry)
        file = str(mapping(entry.get("sourceLocation")).get("file") or "")
        pod, container = labels.get("pod_name"), labels.get("container_name")
        track = self._track(str(pod or ""), str(container or ""))
        return {
            "ph": "i", "s": "t", "name": text[:MAX_TITLE],
            "cat": str(entry.get("severity") or "DEFAULT"),
            "pid": track, "tid": self._line(track, section(text, file)), "ts": time_ns / 1e3,
            "args": _said(entry, labels, text, file),
        }  # fmt: skip

    def _track(self, pod: str, container: str) -> int:
        known = self._known.get((pod, container))
        if known is None:
            who = worker(pod, container, self.job)
            known = self._tracks.setdefault(who, len(self._tracks) + 1)
            self._known[pod, container] = known
        return known

    def _line(self, track: int, name: str) -> int:
        # Far from the tracks' own numbers: a thread with its process's would be its main one.
        return self._sections.setdefault((track, name), 1_000_000 + len(self._sections))

    def names(self) -> list[Item]:
        """Names of tracks and lines.  They come last: only then are all of them known."""
        items = []
        for place, (who, name) in enumerate(named(self._tracks)):
            track = self._tracks[who]
            items.append(_metadata("process_name", track, 0, name=name))
            items.append(_metadata("process_sort_index", track, 0, sort_index=place))
        for (track, name), line in self._sections.items():
            items.append(_metadata("thread_name", track, line, name=name))
        return items


def named(workers: Iterable[Worker]) -> list[tuple[Worker, str]]:
    """In order, each with a name that no other has."""
    ordered = sorted(workers, key=lambda who: (not who.is_alone, *who))
    counts: dict[str, int] = {}
    for who in ordered:
        counts[who.name] = counts.get(who.name, 0) + 1
    return [(who, who.name if counts[who.name] == 1 else _longer(who)) for who in ordered]


def _longer(who: Worker) -> str:
    if who.is_alone:
        return f"{who.name} ({who.group})"
    pod = who.group.rpartition("/")[0]
    return f"{who.name} ({pod if who.slice < 0 else f'{pod}-{who.slice}-{who.number}'})"


def _metadata(kind: str, track: int, line: int, **values: Any) -> Item:
    return {"ph": "M", "name": kind, "pid": track, "tid": line, "args": values}


def _said(entry: Entry, resource: Mapping[str, Any], text: str, file: str) -> dict[str, str]:
    fields = {
        "message": text,
        "severity": entry.get("severity"),
        "timestamp": entry.get("timestamp"),
        "pod_name": resource.get("pod_name"),
        "container_name": resource.get("container_name"),
        "cluster_name": resource.get("cluster_name"),
        "location": resource.get("location"),
        "file": file,
        "line": mapping(entry.get("sourceLocation")).get("line"),
        "insertId": entry.get("insertId"),
    }
    for key, value in mapping(entry.get("labels")).items():
        fields[f"labels.{key}"] = value
    return {key: str(value)[:MAX_TEXT] for key, value in fields.items() if value}


# ── files ──────────────────────────────────────────────────────────────────────────────────────


def trace_text(trace: Trace, entries: Iterable[Entry], about: Mapping[str, Any]) -> Iterator[str]:
    """The trace in pieces, as JSON that Perfetto and chrome://tracing open."""
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    separator = ""
    for piece in _pieces(trace, entries):
        yield separator + ",\n".join(map(_json, piece))
        separator = ",\n"
    totals = {**about, "job": trace.job, "lines": trace.lines, "tracks": trace.tracks}
    yield f'\n],"otherData":{_json(totals)}}}\n'


def _pieces(trace: Trace, entries: Iterable[Entry]) -> Iterator[list[Item]]:
    piece: list[Item] = []
    for entry in entries:
        item = trace.item(entry)
        if item is not None:
            piece.append(item)
            if len(piece) == PIECE:
                yield piece
                piece = []
    piece += trace.names()
    if piece:
        yield piece


_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def page_text(title: str, packed: IO[bytes]) -> Iterator[str]:
    """A page that contains a packed trace and shows it without a network."""
    before, _, after = _PAGE.read_text(encoding="utf-8").partition("@TRACE@")
    yield before.replace("@TITLE@", escape(title))
    while piece := packed.read(3 << 16):  # by threes: base64 of the parts is that of the whole
        yield b64encode(piece).decode("ascii")
    yield after
