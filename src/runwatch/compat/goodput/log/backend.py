"""A job's log, unless the caller passes in another: in the journals of a run of that name.

`JournalLogger` does what the original's Cloud Logging client does for recorders and calculators:
it takes one entry at a time and gives back those that are new.  Writing is a record in the
process's own journal, so it waits for nothing and survives a kill.  Reading follows the journals
under $RUNWATCH_DIR; with RUNWATCH_HEAD, or when retention has taken what a head has stored, that
head is asked.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.fields import _JOB_NAME
from runwatch.compat.goodput.log.entries import (
    UNIT,
    AsPoint,
    Columns,
    Entry,
    Mark,
    from_mark,
    mark_of,
    to_event,
    to_record,
)
from runwatch.entries import STEP_START, TYPE
from runwatch.errors import HeadUnreachable
from runwatch.journal.writer import JournalWriter, PointCall
from runwatch.record import NO_STEP
from runwatch.sdk import front
from runwatch.sdk.guard import attempt, guarded, tally, text_of
from runwatch.sdk.identity import display_name, identify, slug
from runwatch.sdk.run import Run
from runwatch.sdk.values.plain import mapping, text
from runwatch.settings import runwatch_dir

if TYPE_CHECKING:
    from runwatch.compat.goodput.log.following import Journals
    from runwatch.compat.goodput.log.remote import HeadLog

MOST_EARLY: Final = 100
MAX_SERIES: Final = 1000
"""Beyond this many, another type of custom event is kept with its entry."""

Cursor = tuple[datetime | None, str]
Log: TypeAlias = "Journals | HeadLog"

# What the quick way of `mark` cannot take; it raises before anything is written.
_ODD: Final = (LookupError, TypeError, AttributeError, ArithmeticError, StructError)
_INT64: Final = Struct("<q")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class JournalLogger:
    """The log `logger_name` of the job `job_name`, in journals under `root` (else $RUNWATCH_DIR).

    Entries go to the process's current run if it has the job's name, else to a run of that name
    that begins with the first entry and ends with the process.  Nothing that is written raises or
    waits; reading raises a RunwatchError when a head that must be asked cannot be.
    """

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        *,
        root: str | os.PathLike[str] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.job_name = job_name
        self.logger_name = logger_name
        self._logger = text(text_of(logger_name))
        self._root = root
        self._clock = clock
        self._now = clock.wall_ns
        self._run: Run | None = None
        self._writer: JournalWriter | None = None
        self._point: PointCall = _no_point
        self._series: dict[tuple[str, str], int] = {}
        self._log: Log | None = None
        self._columns_log: Log | None = None
        self._cursor = ""
        self._early: list[AsPoint] = []
        """The first entries, as long as they went to a run that a recorder began."""

    # ── writing ───────────────────────────────────────────────────────────────────────────────

    def mark(
        self, field: str, moment: datetime | None = None, step: int = NO_STEP, type: str = ""
    ) -> None:
        """Write the entry whose time field is `field`, for `moment`, else for now.

        The quick way to `write_cloud_logging_entry`.  A moment without a time zone is local time.
        """
        run = self._run
        try:
            if moment is None and run is not None and run._writer is self._writer:
                self._point(self._series[field, type], self._now() / 1e9, step)
                return
        except _ODD:
            pass
        self._mark_slowly(field, moment, step, type)

    @guarded("record a goodput entry")
    def _mark_slowly(self, field: str, moment: object, step: object, type: object) -> None:
        seconds = self._now() / 1e9 if moment is None else seconds_of(moment)
        number = step_of(step)
        if seconds is not None and number is not None:
            self._write(from_mark(Mark(field, text_of(type)), number, seconds, self.job_name))

    @guarded("record a goodput entry")
    def write_cloud_logging_entry(self, entry: Mapping[str, Any] | None) -> None:
        """Write one entry.  As in the original, one of another job is left out."""
        if entry is not None and entry.get(_JOB_NAME) == self.job_name:
            self._write(entry)
            return
        named = None if entry is None else text_of(entry.get(_JOB_NAME))
        tally.count(
            "goodput entry of another job",
            f"an entry of job {named!r} does not belong in the log of {self.job_name!r}",
        )

    def flush(self) -> None:
        """Returns at once: what was written is in the journal already."""

    def _write(self, entry: Mapping[str, Any]) -> None:
        writer = self._ready()
        if writer is None or self._run is None:
            return
        entry = mapping(entry)
        record = to_record(entry, self._logger)
        series = self._series_of(record, writer) if isinstance(record, AsPoint) else None
        if STEP_START in entry:
            self._run._hooks.silence_steps()
        if isinstance(record, AsPoint) and series is not None:
            writer.point(series, record.value, record.step)
            if len(self._early) < MOST_EARLY and self._run in _runs.values():
                self._early.append(record)
        else:
            writer.tell(to_event(entry, self._logger), scope=self._run._scope)

    def _series_of(self, point: AsPoint, writer: JournalWriter) -> int | None:
        mark = mark_of(point.metric, point.labels)
        assert mark is not None and self._run is not None
        known = self._series.get(mark)
        if known is None:
            if TYPE in point.labels and len(self._series) >= MAX_SERIES:
                return None
            known = self._series[mark] = writer.series(
                point.metric, scope=self._run._scope, unit=UNIT, labels=point.labels
            )
        return known

    def _ready(self) -> JournalWriter | None:
        """The journal to write to; another one after a fork, and when another run has begun."""
        before = self._run
        run = self._run = _run_of(text_of(self.job_name), self._root, before)
        writer = run._open()
        if run._finished:
            tally.count(
                "after finish", f"run {run._identity.name!r} has finished: nothing more is recorded"
            )
            return None
        if writer is None:
            tally.count("no journal")
        elif writer is not self._writer:
            self._series, self._point, self._writer = {}, writer.point, writer
            if before is not None and before._left_for == run.id:
                self._tell_again(writer, run._scope)
        return writer

    def _tell_again(self, writer: JournalWriter, scope: int) -> None:
        """For the account of the run that the process went over to.  These points are in no log:
        there the entries are already."""
        early, self._early = self._early, []
        for point in early:
            labels = {TYPE: point.labels[TYPE]} if TYPE in point.labels else {}
            number = writer.series(point.metric, scope=scope, unit=UNIT, labels=labels)
            writer.point(number, point.value, point.step)

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def read_cloud_logging_entries(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        last_entry_info: Any = None,
    ) -> tuple[list[Entry], Any]:
        """(entries, cursor): those recorded after `start_time` and up to `end_time`, in order.

        With a cursor of an earlier answer only those that have come since, however late they were
        recorded.  Of a cursor of another kind its time counts.
        """
        if last_entry_info in (None, (None, None), [None, None]):
            return self._read_afresh(start_time, end_time)
        log = self._log = self._log or self._open_log()
        moment, name = _parts(last_entry_info)
        after = _ns(start_time)
        if name != self._cursor and not (isinstance(name, str) and log.resume(name)):
            log.resume("")
            after = max((t for t in (after, _ns(moment)) if t is not None), default=None)
        return self._read(log, after, _ns(end_time), last_entry_info)

    def read_columns(self) -> Iterator[Columns]:
        """What has come since the last call, all of the log at the first: the same entries, a
        stretch at a time and without an object for each."""
        if self._columns_log is None:
            self._columns_log = self._open_log()
        try:
            yield from self._columns_log.read()
        except HeadUnreachable:
            self._columns_log = None
            raise

    def close(self) -> None:
        """Let go of the files that are read.  Reading again begins at the beginning."""
        for log in (self._log, self._columns_log):
            if log is not None:
                log.close()
        self._log = self._columns_log = None
        self._cursor = ""

    def _read_afresh(
        self, start_time: datetime | None, end_time: datetime | None
    ) -> tuple[list[Entry], Any]:
        """Reading a window must not move the cursor of the log that is followed."""
        if start_time is None and end_time is None:
            log = self._log = self._log or self._open_log()
            log.resume("")
            return self._read(log, None, None, None)
        log = self._open_log()
        try:
            return self._read(log, _ns(start_time), _ns(end_time), None)
        finally:
            log.close()

    def _read(
        self, log: Log, after_ns: int | None, until_ns: int | None, cursor: Any
    ) -> tuple[list[Entry], Any]:
        entries: list[Entry] = []
        last_ns = None
        try:
            for columns in log.read(until_ns):
                last_ns = max(last_ns or 0, columns.last_ns)
                if after_ns is not None:
                    columns = columns.split(after_ns)[1]
                entries.extend(columns.entries(self.job_name))
        except HeadUnreachable:
            self._log = None  # the next call looks again where the log is
            raise
        if last_ns is None:
            return entries, cursor
        if log is self._log:
            self._cursor = log.cursor
        return entries, (_EPOCH + timedelta(microseconds=last_ns // 1000), log.cursor)

    def _open_log(self) -> Log:
        # Loaded here: a program that only records does not need it.
        from runwatch.compat.goodput.log.following import Journals, is_of_job
        from runwatch.compat.goodput.log.remote import HeadLog, head_of, named_head, run_names

        name = text_of(self.job_name)
        runs = run_names(name)
        head = named_head() if self._root is None else None
        if head is not None:
            return HeadLog(*head, runs, self._logger)
        root = runwatch_dir() if self._root is None else Path(self._root).expanduser()
        journals = Journals(root, is_of_job(name), self._logger, clock=self._clock)
        if journals.discover() and not journals.is_cut:
            return journals
        head = head_of(root)
        if head is not None:
            log = HeadLog(*head, runs, self._logger)
            if log.knows_the_run():
                journals.close()
                return log
        return journals


# ── the runs that recorders begin ─────────────────────────────────────────────────────────────

_runs: dict[tuple[str, str], Run] = {}
_lock = threading.RLock()


def _run_of(name: str, root: str | os.PathLike[str] | None, last: Run | None) -> Run:
    """The run to record to: the current one if it has the name, else one of our own.

    `last` is the one that was recorded to; once it has finished, it stays so: an entry that comes
    after the end does not make a new attempt.
    """
    if last is not None and not last._finished:
        return last
    current = front.current_run()
    if current is not None and root is None and _is_named(current, name):
        return current
    if last is not None:
        return last
    key = (name, os.fspath(root) if root is not None else "")
    with _lock:
        run = _runs.get(key)
        if run is None or run._finished:
            run = _runs[key] = _begin(name, root)
        return run


def _is_named(run: Run, name: str) -> bool:
    """By its name or by its id: $RUNWATCH_RUN_ID is for whatever the program calls its run."""
    same_id = run.id in (slug(name), identify(name).run)
    return same_id or run._identity.name == name == display_name(name)


def _begin(name: str, root: str | os.PathLike[str] | None) -> Run:
    run = Run(identify(name), directory=root)
    run._start({})
    if root is None:
        front.offer(run)
    if tally.listener is None:
        tally.listener = run._report
    return run


def finish_runs() -> None:
    """End the runs that recorders began in this process.  Without this call they end at exit."""
    with _lock:
        runs = list(reversed(_runs.values()))
        _runs.clear()
    for run in runs:
        run.finish()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    for run in _runs.values():
        run._after_fork()


os.register_at_fork(after_in_child=_after_fork)


# ── small readers ─────────────────────────────────────────────────────────────────────────────


def seconds_of(moment: Any) -> float | None:
    """Seconds since the epoch; without a time zone it is local time.  None (counted) for what is
    not a datetime."""
    return attempt("take a time", None, lambda: float(moment.timestamp()))


def step_of(step: Any) -> int | None:
    """A step as the original takes it: what int() does.  None (counted) for anything else."""
    return attempt("take a step", None, lambda: _fitting(int(step)))


def _fitting(number: int) -> int:
    _INT64.pack(number)  # or it says that this does not fit a record
    return number


def _parts(cursor: Any) -> tuple[Any, Any]:
    """(moment, name) of what someone hands back as a cursor."""
    if isinstance(cursor, (tuple, list)) and len(cursor) == 2:
        return cursor[0], cursor[1]
    return cursor, None


def _ns(moment: Any) -> int | None:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return None
    if isinstance(moment, datetime):
        moment = moment.timestamp()
    return round(moment * 1e9) if isinstance(moment, (int, float)) else None


def _no_point(series: int, value: float, step: int = NO_STEP) -> NoReturn:
    raise LookupError(series)
