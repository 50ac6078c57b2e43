"""Stored records to Cloud Logging: stack dumps, goodput entries and, if asked for, metrics.

An entry has an id that follows from the record, so the service knows a repeated one: after a
request without an answer, or when this head was killed, the same entries may be sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from runwatch.entries import IMPORTED, LOGGER, PREFIX, entry_of_point
from runwatch.errors import RunwatchError
from runwatch.exports import cloud_logging
from runwatch.head.cloud import failures
from runwatch.head.cloud.clients import Connection
from runwatch.head.cloud.failures import Refused
from runwatch.head.cloud.settings import GcpSettings, is_like
from runwatch.head.forward.forwarder import Trouble
from runwatch.head.forward.report import Report
from runwatch.head.forward.trail import Told, Trail
from runwatch.record import NO_STEP, Series
from runwatch.record.life import GoodputEntry
from runwatch.record.stacks import Stacks
from runwatch.store.store import Wanted

if TYPE_CHECKING:  # the libraries are loaded by the forwarders' threads
    from google.rpc.status_pb2 import Status

AT_ONCE: Final = 1_000
"""Records that are read together."""
REQUEST_BYTES: Final = 1_000_000
ENTRY_BYTES: Final = 250_000
"""The service takes entries of 256 KB, by a count of its own."""
NEVER: Final = frozenset((3, 11))
"""INVALID_ARGUMENT and OUT_OF_RANGE: the same entry will be refused again."""
MANY: Final = 10
"""If so many entries and no other are refused, the entries are not what is wrong."""
MOST_NAMED: Final = 20
"""So many refused entries are named in the head's log, one by one."""
logger = logging.getLogger("runwatch.head")


def wanted(settings: GcpSettings) -> Wanted:
    def metric(name: str) -> bool:
        if name.startswith(PREFIX):
            return settings.goodput
        return is_like(settings.metrics, name)

    kinds = [Stacks.KIND] if settings.stacks else []
    return Wanted(metric=metric, kinds=kinds + ([GoodputEntry.KIND] if settings.goodput else []))


class _Ready(NamedTuple):
    """A record and its entry, as the library takes it; None: it is not for the log."""

    told: Told
    entry: Any


@dataclass(slots=True)
class _Tally:
    """What became of a request's entries."""

    accepted: int = 0
    refused: list[tuple[Told, str]] = field(default_factory=list)

    def none_is_taken(self) -> Trouble:
        why = f"the service takes none of {len(self.refused)} entries: {self.refused[-1][1]}"
        return Trouble(why, "check the project and the other settings of gcp")


class LogSource:
    def __init__(self, settings: GcpSettings, trail: Trail, connection: Connection) -> None:
        self._settings = settings
        self._trail = trail
        self._connection = connection
        self._counts = trail.counts
        self._waiting = 0
        self._oldest_ns: int | None = None
        self._why = ""
        self._named = 0

    def round(self) -> bool:
        self._connection.ready()  # whatever is missing is said before there is anything to send
        told = self._trail.take(AT_ONCE)
        if not told:
            self._waiting, self._oldest_ns = 0, None
            return False
        self._oldest_ns = told[0].time_ns
        for chunk in _chunks(self._ready(each) for each in told):
            self._send([ready for ready in chunk if ready.entry is not None])
            self._trail.sent([ready.told for ready in chunk])
            self._waiting = max(self._waiting - len(chunk), 0)
        return True

    def standing(self) -> Report:
        return Report(
            to="cloud_logging",
            name=failures.LOGGING.name,
            sent=self._counts.get("sent", 0),
            waiting=self._waiting,
            waiting_since_ns=self._oldest_ns,
            lost=self._counts.get("lost", 0),
            lost_why=self._why,
        )

    def failed(self) -> None:
        self._connection.let_go()
        self._trail.save()
        try:
            self._waiting = self._trail.waiting()
        except RunwatchError as error:
            logger.debug("what waits cannot be counted: %s", error)

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.let_go()
        self._trail.save(now=True)

    # ── sending ───────────────────────────────────────────────────────────────────────────────

    def _send(self, ready: Sequence[_Ready]) -> None:
        tally = _Tally()
        self._try(ready, tally)
        if tally.refused and not tally.accepted and not self._counts.get("sent"):
            raise tally.none_is_taken()  # it has never taken any: that is no matter of one entry
        for told, why in tally.refused:
            self._set_aside(told, why)
        self._count("sent", tally.accepted)

    def _try(self, ready: Sequence[_Ready], tally: _Tally) -> None:
        """Send these; where some are wrong, find out which."""
        if not ready:
            return
        entries = [each.entry for each in ready]
        try:
            self._connection.call(
                lambda client, seconds: client.write_log_entries(
                    {"entries": entries, "partial_success": True}, retry=None, timeout=seconds
                )
            )
        except Refused as error:
            self._sort_out(ready, error, tally)
        else:
            tally.accepted += len(ready)

    def _sort_out(self, ready: Sequence[_Ready], error: Refused, tally: _Tally) -> None:
        partly = _partial_errors(error)
        if partly:
            passing = [status for status in partly.values() if status.code not in NEVER]
            if passing:
                raise Trouble(f"the service refuses some entries: {passing[0].message}")
            tally.refused += [(ready[at].told, status.message) for at, status in partly.items()]
            tally.accepted += len(ready) - len(partly)
        elif len(ready) == 1:
            tally.refused.append((ready[0].told, str(error)))
        else:
            middle = len(ready) // 2
            self._try(ready[:middle], tally)
            self._try(ready[middle:], tally)
        if len(tally.refused) >= MANY and not tally.accepted:
            raise tally.none_is_taken()

    def _set_aside(self, told: Told, why: str) -> None:
        """Alone: the others go on.  The record itself stays in the store."""
        self._why = why
        self._count("lost", 1)
        self._named += 1
        if self._named <= MOST_NAMED:
            what = told.event.kind if told.event is not None else _metric(told)
            run = told.scope.run
            logger.warning("Cloud Logging will not take %s of run %s: %s", what, run, why)

    def _count(self, what: str, count: int) -> None:
        self._counts[what] = self._counts.get(what, 0) + count

    # ── entries ───────────────────────────────────────────────────────────────────────────────

    def _ready(self, told: Told) -> _Ready:
        from google.cloud.logging_v2.types import LogEntry
        from google.protobuf.json_format import ParseDict, ParseError

        shaped = self._entry(told)
        if shaped is None:
            return _Ready(told, None)
        entry = LogEntry()
        try:
            ParseDict({**shaped, "insertId": told.id}, LogEntry.pb(entry))
        except (ParseError, ValueError, TypeError) as error:
            self._set_aside(told, f"it cannot be written as an entry: {error}")
            return _Ready(told, None)
        if (size := LogEntry.pb(entry).ByteSize()) > ENTRY_BYTES:
            self._set_aside(told, f"it has {size:,} bytes, and an entry may have {ENTRY_BYTES:,}")
            return _Ready(told, None)
        return _Ready(told, entry)

    def _entry(self, told: Told) -> dict[str, Any] | None:
        if told.origin.host == IMPORTED:
            return None  # it came from a log, perhaps from this one
        if told.event is None:
            return self._of_point(told, told.series) if told.series is not None else None
        if told.event.kind == GoodputEntry.KIND:
            entry = GoodputEntry.of(told.event.body)
            if entry.entry is None:
                return None
            shaped = cloud_logging.goodput_entry(entry.entry, told.time_ns)
            return self._placed(shaped, self._log_of(entry.logger, told))
        stacks = Stacks.of(told.event.body)
        if not stacks.threads:
            return None
        shaped = cloud_logging.entry(stacks, run=told.scope.name or told.scope.run)
        return self._placed(shaped, cloud_logging.LOG_NAME)

    def _of_point(self, told: Told, series: Series) -> dict[str, Any] | None:
        if series.metric.startswith(PREFIX):
            if LOGGER not in series.labels:
                return None  # told again for another run's account: the entry is in its log already
            step = NO_STEP if told.step is None else told.step
            name = told.scope.name
            entry = entry_of_point(series.metric, series.labels, step, told.value, name)
            shaped = cloud_logging.goodput_entry(entry, told.time_ns)
            return self._placed(shaped, self._log_of(series.labels[LOGGER], told))
        project = self._connection.project
        shaped = cloud_logging.metric_entry(
            series.metric,
            told.value,
            time_ns=told.time_ns,
            step=told.step,
            labels=_labels(told, series),
            run=told.scope.run,
            location=self._settings.location,
            project=project,
        )
        return shaped | {"logName": cloud_logging.log_name(project, cloud_logging.METRIC_LOG)}

    def _placed(self, shaped: dict[str, Any], log: str) -> dict[str, Any]:
        project = self._connection.project
        resource = {"type": "global", "labels": {"project_id": project}}
        return shaped | {"logName": cloud_logging.log_name(project, log), "resource": resource}

    def _log_of(self, name: str, told: Told) -> str:
        return name or f"goodput_{told.scope.name or told.scope.run}"


def _labels(told: Told, series: Series) -> dict[str, str]:
    labels = {
        "unit": series.unit or "1",
        "hostname": told.origin.host,
        "process_index": str(told.scope.rank),
        "device": series.device,
    }
    return {name: value for name, value in (labels | dict(series.labels)).items() if value}


def _metric(told: Told) -> str:
    return "a point" if told.series is None else f"a point of {told.series.metric}"


def _chunks(ready: Iterator[_Ready]) -> Iterator[list[_Ready]]:
    """Requests of a limited size."""
    from google.cloud.logging_v2.types import LogEntry

    chunk: list[_Ready] = []
    size = 0
    for each in ready:
        own = 0 if each.entry is None else LogEntry.pb(each.entry).ByteSize()
        if chunk and size + own > REQUEST_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += own
    if chunk:
        yield chunk


def _partial_errors(error: Refused) -> dict[int, Status]:
    """By the entry's place in the request; empty if the service does not say."""
    from google.cloud.logging_v2.types import WriteLogEntriesPartialErrors

    kind = WriteLogEntriesPartialErrors.pb(WriteLogEntriesPartialErrors())
    for detail in error.details:
        if getattr(detail, "type_url", "").endswith(kind.DESCRIPTOR.full_name):
            detail.Unpack(kind)
            return dict(kind.log_entry_errors)
    return {}
