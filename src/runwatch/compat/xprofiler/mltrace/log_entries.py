"""Entries of Cloud Logging, one at a time: from a file, or from the service page by page.

A file has an entry in each line, or is one array of them (`gcloud logging read --format=json`), or
a table whose columns are named like `resource.labels.pod_name`; any may be packed with gzip.
`cloud_pages` is the only part that talks to the service; it needs the `[gcp]` extra.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from runwatch.errors import RunwatchError, UsageError
from runwatch.views.times import rfc3339

Entry = Mapping[str, Any]
MAX_ENTRY: Final = 16 << 20
"""The service allows 256 KB; anything larger than this is not an entry."""
_CHUNK: Final = 1 << 18
_NOTHING: Final[Mapping[str, Any]] = {}
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)? ?(Z|UTC|[+-]\d\d:?\d\d)$"
)
# A log line may begin with a bracket, too: "[E] …".
_IS_ARRAY = re.compile(r"\s*\[\s*[{\]]")


# ── one entry ──────────────────────────────────────────────────────────────────────────────────


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else _NOTHING


def message(entry: Entry) -> str:
    text = entry.get("textPayload")
    if not text:
        payload = mapping(entry.get("jsonPayload")) or mapping(entry.get("protoPayload"))
        text = payload.get("message") or (json.dumps(payload, default=str) if payload else "")
    return str(text).rstrip()


def nanoseconds(text: object) -> int | None:
    """Since the epoch; None if the text is not a time."""
    parts = _MOMENT.match(text) if isinstance(text, str) else None
    if parts is None:
        return None
    seconds = _seconds(parts[1], parts[2], parts[4])
    return None if seconds is None else seconds * 10**9 + int((parts[3] or "").ljust(9, "0"))


# Most lines have the same second as the line before.
@lru_cache(maxsize=1024)
def _seconds(day: str, time: str, zone: str) -> int | None:
    offset = "+00:00" if zone in ("Z", "UTC") else zone
    try:
        return int(datetime.fromisoformat(f"{day}T{time}{offset}").timestamp())
    except ValueError:  # the 31st of June
        return None


# ── files ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Skipped:
    """What a file has beside entries."""

    count: int = 0
    first: int = 0

    def add(self, line: int) -> None:
        self.count += 1
        self.first = self.first or line


@contextmanager
def opened(file: Path) -> Iterator[io.TextIOBase]:
    try:
        raw = file.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    with raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        plain = gzip.GzipFile(fileobj=raw) if packed else raw
        # newline="": a table's cells may have line ends of their own.
        yield io.TextIOWrapper(plain, encoding="utf-8-sig", errors="replace", newline="")


def read_file(file: Path, skipped: Skipped) -> Iterator[Entry]:
    """Entries of a file; lines that are not entries are counted and skipped."""
    with opened(file) as text:
        try:
            if file.name.removesuffix(".gz").endswith(".csv"):
                yield from _table(text)
                return
            head = text.read(_CHUNK)
            if _IS_ARRAY.match(head):
                yield from _array(text, head, file)
            else:
                yield from _lines(text, head, skipped)
        except (EOFError, gzip.BadGzipFile, csv.Error) as error:
            raise RunwatchError(f"{file} is damaged: {error}") from error


def _lines(text: io.TextIOBase, head: str, skipped: Skipped) -> Iterator[Entry]:
    for number, line in enumerate(_split(text, head), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            yield entry
        else:
            skipped.add(number)


def _split(text: io.TextIOBase, head: str) -> Iterator[str]:
    while head:
        *whole, rest = head.split("\n")
        yield from whole
        if len(rest) > MAX_ENTRY:
            raise RunwatchError(f"a line of more than {MAX_ENTRY} characters is no log entry")
        more = text.read(_CHUNK)
        if not more:
            yield rest
        head = rest + more if more else ""


def _array(text: io.TextIOBase, held: str, file: Path) -> Iterator[Entry]:
    """An array's elements, without having it in memory as a whole."""
    decode = json.JSONDecoder().raw_decode
    held, at = held.lstrip(), 1
    while True:
        at = _next(held, at)
        if held[at : at + 1] == "]":
            return
        try:
            entry, at = decode(held, at)
        except (ValueError, RecursionError) as error:
            more = text.read(_CHUNK)
            held, at = held[at:] + more, 0
            if not more or len(held) > MAX_ENTRY:
                raise RunwatchError(f"{file} is not an array of log entries: {error}") from error
            continue
        if isinstance(entry, dict):
            yield entry


_BETWEEN = re.compile(r"[\s,]*")


def _next(held: str, at: int) -> int:
    gap = _BETWEEN.match(held, at)
    return gap.end() if gap else at


def _table(text: io.TextIOBase) -> Iterator[Entry]:
    for row in csv.DictReader(text):
        entry: dict[str, Any] = {}
        for column, value in row.items():
            if value and isinstance(value, str):
                _put(entry, column.split("."), value)
        yield entry


def _put(entry: dict[str, Any], path: list[str], value: str) -> None:
    for name in path[:-1]:
        below = entry.setdefault(name, {})
        if not isinstance(below, dict):
            return
        entry = below
    entry.setdefault(path[-1], value)


# ── the service ────────────────────────────────────────────────────────────────────────────────


def cloud_filter(job: str, start_ns: int, end_ns: int, more: str = "") -> str:
    """What to ask the service for; every part in brackets of its own."""
    parts = [
        'resource.type="k8s_container"',
        f"resource.labels.pod_name:{json.dumps(job)}",
        f'timestamp>="{rfc3339(start_ns)}"',
        f'timestamp<="{rfc3339(end_ns)}"',
        *([more] if more.strip() else []),
    ]
    return " AND ".join(f"({part})" for part in parts)


def cloud_pages(client: Any, project: str, query: str) -> Iterator[Iterable[Any]]:
    """From a `google.cloud.logging.Client`; newer versions of it have no pages to ask for."""
    answer = client.list_entries(
        resource_names=[f"projects/{project}"], filter_=query, order_by="timestamp asc",
        page_size=1000,
    )  # fmt: skip
    yield from getattr(answer, "pages", None) or (answer,)


def entries(pages: Iterable[Iterable[Any]]) -> Iterator[Entry]:
    """Every entry of every page, the first one's as well, in the service's JSON form."""
    for page in pages:
        for entry in page:
            yield entry if isinstance(entry, Mapping) else entry.to_api_repr()


def cloud_client(project: str) -> Any:
    try:
        logging: Any = import_module("google.cloud.logging")
    except ImportError as error:
        raise UsageError(
            "reading from Cloud Logging needs google-cloud-logging: pip install 'runwatch[gcp]'; "
            "or name a file of entries with -f"
        ) from error
    return logging.Client(project=project)
