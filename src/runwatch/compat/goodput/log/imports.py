"""Logs that the original wrote, into journals.

`read_log` takes the original's own cache (`<job>_timeline.jsonl`), the output of `gcloud logging
read --format=json`, and log entries one to a line; `read_cloud_logging` asks Cloud Logging itself.
`import_entries` writes what is new of them as one journal of a run of that name.  Importing a log
again, or a longer one of the same job, doubles nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from runwatch.clock import system_clock
from runwatch.compat.goodput.fields import _JOB_END_TIME, _JOB_NAME, _JOB_START_TIME
from runwatch.compat.goodput.log.entries import (
    UNIT,
    AsPoint,
    Entry,
    time_ns_of,
    to_record,
)
from runwatch.compat.goodput.log.following import Journals, is_of_job
from runwatch.entries import IMPORTED
from runwatch.errors import NotFound, UsageError
from runwatch.imports.json_objects import json_objects
from runwatch.journal.segment import new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import Origin, RunId, RunScope
from runwatch.record.life import GoodputEntry, RunEnd, RunStart
from runwatch.sdk.guard import logger
from runwatch.sdk.identity import display_name, slug
from runwatch.sdk.values.plain import mapping, text

HOST: Final = IMPORTED
DEFAULT_SINCE: Final = timedelta(days=60)
PAGE: Final = 1000
"""As many entries as Cloud Logging gives at once."""
_NO_BUDGET: Final = 1 << 60
_STAMP: Final = re.compile(r"(.*?\d\d:\d\d:\d\d)(?:\.(\d+))?(.*)")

Progress = Callable[[int], None]
"""Called with the number of entries read since the last call."""


class Logged(NamedTuple):
    """One entry, with its time and the name of its log."""

    entry: Entry
    time_ns: int | None = None
    """When it was logged, if that is known."""
    logger: str = ""


class Imported(NamedTuple):
    run: RunId
    job_name: str
    read: int
    written: int
    """As many as were not there yet."""


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def read_log(path: Path, *, progress: Progress = lambda _: None) -> Iterator[Logged]:
    """The entries of a file, in the order of the log."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            objects = _counted(json_objects(file, path, logger.warning), progress)
            first = next(objects, None)
            if first is not None and ("jsonPayload" in first or "logName" in first):
                yield from _in_order(first, objects)
            elif first is not None:
                yield from _payloads(first, objects, path)
    except FileNotFoundError as error:
        raise NotFound(f"No such file: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _payloads(first: Entry, rest: Iterator[Entry], path: Path) -> Iterator[Logged]:
    if _JOB_NAME not in first:
        raise UsageError(
            f"{path} holds no goodput log: its first entry has neither {_JOB_NAME!r} nor "
            f"'jsonPayload' but {', '.join(map(repr, list(first)[:5]))}"
        )
    yield Logged(first)
    for entry in rest:
        yield Logged(entry)


def _in_order(first: Entry, rest: Iterator[Entry]) -> Iterator[Logged]:
    """What Cloud Logging exported.  By default gcloud lists the newest first."""
    by_time: dict[tuple[int, str], Logged] = {}
    for number, exported in enumerate(chain((first,), rest)):
        payload = exported.get("jsonPayload")
        if isinstance(payload, dict):
            stamp = _stamp_ns(str(exported.get("timestamp", "")))
            key = (stamp or 0, str(exported.get("insertId") or number))
            by_time[key] = Logged(payload, stamp, _logger_name(str(exported.get("logName", ""))))
    for key in sorted(by_time):
        yield by_time[key]


def _counted(objects: Iterator[Entry], progress: Progress) -> Iterator[Entry]:
    count = 0
    for count, value in enumerate(objects, 1):
        if count % PAGE == 0:
            progress(PAGE)
        yield value
    progress(count % PAGE)


def _stamp_ns(stamp: str) -> int | None:
    """2026-01-02T03:04:05.123456789Z, to the nanosecond."""
    parts = _STAMP.fullmatch(stamp)
    if parts is None:
        return None
    try:
        moment = datetime.fromisoformat(parts[1] + (parts[3] or "+00:00"))
    except ValueError:
        return None
    return round(moment.timestamp()) * 10**9 + int((parts[2] or "0").ljust(9, "0")[:9])


def _logger_name(log_name: str) -> str:
    """projects/P/logs/NAME, with NAME quoted."""
    return unquote(log_name.partition("/logs/")[2])


# ── Cloud Logging ─────────────────────────────────────────────────────────────────────────────


def read_cloud_logging(
    job_name: str,
    logger_name: str,
    *,
    project: str | None = None,
    since: datetime | None = None,
    client: Any = None,
    progress: Progress = lambda _: None,
) -> Iterator[Logged]:
    """The entries that Cloud Logging has of a job, oldest first, from `since` (60 days ago) on."""
    client = client or _client(project)
    start = since or datetime.fromtimestamp(system_clock.wall_ns() / 1e9, UTC) - DEFAULT_SINCE
    entries = client.list_entries(
        filter_=cloud_filter(job_name, logger_name, project or client.project, start),
        order_by="timestamp asc",
        page_size=PAGE,
    )
    count = 0
    for count, logged in enumerate(entries, 1):
        if count % PAGE == 0:
            progress(PAGE)
        if isinstance(logged.payload, Mapping):
            stamp = None if logged.timestamp is None else round(logged.timestamp.timestamp() * 1e9)
            yield Logged(dict(logged.payload), stamp, logger_name)
    progress(count % PAGE)


def cloud_filter(job_name: str, logger_name: str, project: str | None, since: datetime) -> str:
    clauses = ["severity=INFO", f"jsonPayload.job_name={_quoted(job_name)}"]
    if project:
        clauses.insert(0, f"logName={_quoted(f'projects/{project}/logs/{logger_name}')}")
    return " AND ".join([*clauses, f'timestamp>="{since.astimezone(UTC).isoformat()}"'])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _client(project: str | None) -> Any:
    try:
        cloud_logging = import_module("google.cloud.logging")
        errors = import_module("google.auth.exceptions")
    except ImportError as error:
        raise UsageError(
            'reading Cloud Logging needs its client: pip install "runwatch[gcp]"'
        ) from error
    try:
        return cloud_logging.Client(project=project)
    except errors.GoogleAuthError as error:
        raise UsageError(
            f"no access to Cloud Logging: {error} (`gcloud auth application-default login`)"
        ) from error


# ── writing ───────────────────────────────────────────────────────────────────────────────────


def import_entries(
    entries: Iterable[Logged | Entry],
    directory: str | os.PathLike[str],
    *,
    job_name: str | None = None,
    logger_name: str | None = None,
) -> Imported:
    """Write the entries of one job into a journal under `directory`, in the order given.

    `job_name` chooses among several jobs in one log.  Without `logger_name` it is the one that
    the log says, else `goodput_<job name>`, as most programs call it.
    """
    logged = [one if isinstance(one, Logged) else Logged(one) for one in entries]
    job = _only_job(logged, job_name)
    mine = [one for one in logged if one.entry.get(_JOB_NAME) == job]
    logger_in_log = next((one.logger for one in mine if one.logger), f"goodput_{job}")
    name = text(logger_name or logger_in_log)
    root = Path(directory).expanduser()
    fresh = _fresh(mine, root, job, name)
    if fresh:
        _write(fresh, root, job)
    return Imported(slug(job), job, len(mine), len(fresh))


class _Fresh(NamedTuple):
    time_ns: int
    record: AsPoint | GoodputEntry


def jobs(logged: Iterable[Logged]) -> dict[str, int]:
    """The jobs of a log, and how many entries each has."""
    return dict(Counter(str(one.entry[_JOB_NAME]) for one in logged if _JOB_NAME in one.entry))


def _only_job(logged: list[Logged], wanted: str | None) -> str:
    known = sorted(jobs(logged))
    if wanted is not None:
        if wanted not in known:
            raise NotFound(f"the log has no entry of job {wanted!r}; it has {_listed(known)}")
        return wanted
    if len(known) != 1:
        raise UsageError(
            f"the log has entries of {len(known)} jobs, choose one: {_listed(known)}"
            if known
            else f"the log has no entry with a {_JOB_NAME!r}"
        )
    return known[0]


def _listed(jobs: list[str]) -> str:
    more = f" and {len(jobs) - 5} more" if len(jobs) > 5 else ""
    return (", ".join(map(repr, jobs[:5])) or "none") + more


def _fresh(logged: list[Logged], root: Path, job: str, name: str) -> list[_Fresh]:
    """What the job's log does not have yet, each with a time of its own that keeps the order."""
    known = _known(root, job, name)
    fresh: list[_Fresh] = []
    last_ns = -(2**62)
    for one in logged:
        record = to_record(mapping(one.entry), name)
        key = _key(record)
        if key in known:
            continue
        known.add(key)
        moment = one.time_ns
        if moment is None:
            moment = time_ns_of(one.entry, max(last_ns, 0))
        last_ns = max(moment, last_ns + 1)
        fresh.append(_Fresh(last_ns, record))
    return fresh


def _known(root: Path, job: str, name: str) -> set[int]:
    journals = Journals(root, is_of_job(job), name)
    known: set[int] = set()
    try:
        for columns in journals.read():
            known.update(_key(to_record(entry, name)) for entry in columns.entries(job))
    finally:
        journals.close()
    return known


def _key(record: AsPoint | GoodputEntry) -> int:
    """Exact duplicates have the same.  A number rather than the fields: there may be millions."""
    if isinstance(record, AsPoint):
        return hash(repr((record.metric, sorted(record.labels.items()), *record[2:])))
    return hash(json.dumps(record.body(), sort_keys=True))


class _ImportClock:
    """It is the time of the entry that is being written."""

    def __init__(self, time_ns: int) -> None:
        self.time_ns = time_ns

    def wall_ns(self) -> int:
        return self.time_ns

    def mono_ns(self) -> int:
        return self.time_ns

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        return wake(max(seconds, 0.0))


def _write(fresh: list[_Fresh], root: Path, job: str) -> None:
    """As one journal, which appears when it is complete.

    The same entries make the same journal, record for record: a head that has stored it already
    takes nothing.
    """
    clock = _ImportClock(fresh[0].time_ns)
    journal = new_journal_id(HOST, 0, max(clock.time_ns, 0), _mark(fresh, job))
    stage = root / f"{journal}.tmp"
    shutil.rmtree(stage, ignore_errors=True)  # of an import that was cut short
    origin = Origin(journal, HOST, 0, clock.time_ns)
    try:
        writer = JournalWriter(stage, origin, budget_bytes=_NO_BUDGET, clock=clock)
        try:
            _write_records(writer, fresh, clock, job)
        finally:
            writer.close()
        (root / "journals").mkdir(mode=0o700, exist_ok=True)
        target = root / "journals" / journal
        if not target.exists():
            os.rename(stage / "journals" / journal, target)  # a folder: `files.written` makes files
    except OSError as error:
        raise UsageError(f"cannot write to {root}: {error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _write_records(
    writer: JournalWriter, fresh: list[_Fresh], clock: _ImportClock, job: str
) -> None:
    run, name = slug(job), display_name(job)
    scope = writer.scope(RunScope(0, run, name))
    writer.tell(RunStart(run=run, name=name, rank=0, imported=True), scope=scope)
    ended = False
    for time_ns, record in fresh:
        clock.time_ns = time_ns
        if isinstance(record, GoodputEntry):
            writer.tell(record, scope=scope)
            continue
        series = writer.series(record.metric, scope=scope, unit=UNIT, labels=record.labels)
        writer.point(series, record.value, record.step)
        if record.metric.endswith((_JOB_START_TIME, _JOB_END_TIME)):
            ended = record.metric.endswith(_JOB_END_TIME)
    if ended:
        writer.tell(RunEnd("completed"), scope=scope)


def _mark(fresh: list[_Fresh], job: str) -> str:
    digest = hashlib.sha256(job.encode("utf-8", "surrogatepass"))
    for one in fresh:
        digest.update(repr(one).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:8]
