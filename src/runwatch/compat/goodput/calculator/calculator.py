"""Answers about a job's goodput, as the original's callers ask.

Every question first reads what the log has got since the last one, and costs no more than that.
Times are seconds, shares percent.  Where the original's figures are known to mislead (a hang
counts as productive, a kind may be counted twice) they are still given here.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.calculator.deviations import step_info
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.quiet import Quiet, in_kinds
from runwatch.compat.goodput.calculator.rules import Fold, accounted, checked, shares
from runwatch.compat.goodput.calculator.windows import Window, bounds, look, nanoseconds_of
from runwatch.compat.goodput.goodput_cache import GoodputCache
from runwatch.compat.goodput.goodput_exclusion import GoodputExclusion
from runwatch.compat.goodput.goodput_utils import (
    GoodputInfo,
    GoodputType,
    IntervalWorkloadMetricDetails,
    Percent,
    StepInfo,
    UnproductiveTimeDict,
    WorkloadMetricDetails,
)
from runwatch.compat.goodput.log.reading import CloudLogger, HistoryEntries, Reader, entries_of
from runwatch.views.goodput.account import Account

if TYPE_CHECKING:
    from runwatch.compat.goodput.calculator.strict import AccountSource

T = TypeVar("T")


class GoodputCalculator(GoodputExclusion):
    """The job `job_name`, by its log `logger_name`.

    The log is in the journals of the run of that name, or where `cloud_logger` says.
    `using_pathways`, `gcs_path` and `cache_dir` are taken and change nothing: there is no cache
    on disk.  Neither does `max_logs_retention_period` (a timedelta, or seconds): all of the log
    that there is counts.
    """

    _fold_type: ClassVar[type[Fold]] = Fold

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        cloud_logger: CloudLogger | None = None,
        using_pathways: bool = False,
        max_logs_retention_period: timedelta | float | None = None,
        gcs_path: str | None = None,
        cache_dir: str = "/tmp",
        *,
        clock: Clock = system_clock,
    ) -> None:
        self.job_name = job_name
        self.using_pathways = using_pathways
        self.max_logs_retention_period = _period(max_logs_retention_period)
        self._clock = clock
        self._lock = threading.RLock()
        log = self._own_journal(logger_name) if cloud_logger is None else cloud_logger
        self._reader = Reader(log, clock)
        self._has_own_log = cloud_logger is not None
        self._strict: AccountSource | None = None
        self._history = History()
        self._fold = self._fold_type(self._history)
        self._ideal_step_time: float | None = None
        self._goodput_cache = GoodputCache(
            job_name,
            cache_dir,
            gcs_path,
            entries=lambda: entries_of(self._history, self.job_name),
            step_info=self._step_info,
        )

    # ── the job so far ────────────────────────────────────────────────────────────────────────

    def get_job_goodput(
        self,
        include_badput_breakdown: bool = False,
        configured_ideal_step_time: float | None = None,
    ) -> tuple[float, UnproductiveTimeDict, int]:
        """(goodput, badput by kind or {} if not asked for, last productive step).

        ValueError if no start of the job is known, or if its steps took longer than it did.
        """
        with self._lock:
            self._refresh()
            info = self._measure()
            self._goodput_cache.update_goodput_info(info)
            self._expect(configured_ideal_step_time)
        assert info.total_unproductive_time is not None
        total = info.total_elapsed_time
        badput = shares(info.total_unproductive_time, total) if include_badput_breakdown else {}
        goodput = Percent(info.total_productive_time / total * 100)
        return goodput, badput, info.max_productive_step

    def get_job_goodput_details(
        self, *, include_step_deviation: bool = True
    ) -> WorkloadMetricDetails:
        """What the last question about the whole job found; nothing is read.

        `include_step_deviation=False` leaves the ideal step time at 0 and the deviations out,
        which cost as much as the job is long.
        """
        with self._lock:
            info = self._goodput_cache.get_goodput_info()
            steps = None
            if info is not None and include_step_deviation:
                steps = self._goodput_cache.get_step_info()
        known = info or GoodputInfo()
        return {
            "goodput_time": {GoodputType.TOTAL: known.total_productive_time} if info else {},
            "badput_time": known.total_unproductive_time or {},
            "max_productive_step": known.max_productive_step,
            "total_elapsed_time": known.total_elapsed_time,
            "disruption_count": known.number_of_disruptions,
            "step_time_deviation": steps.step_deviations if steps else {},
            "ideal_step_time": steps.ideal_step_time if steps else 0.0,
            "total_excluded_time": 0.0,
        }

    def _measure(self) -> GoodputInfo:
        figures = self._fold.figures()
        now = self._now()
        total = self._total(figures.start, figures.end, now)
        productive = checked(figures.productive, total)
        return GoodputInfo(
            productive,
            total,
            accounted(productive, figures.badput, total),
            figures.max_productive_step,
            figures.last_step,
            datetime.fromtimestamp(now, UTC),
            figures.disruptions,
        )

    def _total(self, start: float | None, end: float | None, now: float) -> float:
        if start is None:
            raise ValueError(
                f"the log of job {self.job_name!r} has no job_start_time among its "
                f"{len(self._history)} entries, so its total time is not known: is it the right "
                "job and logger name, and was record_job_start_time called?"
            )
        total = (now if end is None else end) - start
        if total <= 0:
            until = "now" if end is None else f"its job_end_time, {end}"
            raise ValueError(
                f"job {self.job_name!r} took {total} s from its job_start_time, {start}, until "
                f"{until}: that leaves no time to divide; look at those entries"
            )
        return total

    # ── steps ─────────────────────────────────────────────────────────────────────────────────

    def get_step_deviation(
        self, configured_ideal_step_time: float | None = None
    ) -> dict[int, float]:
        """Step → how far its time was from the ideal, in seconds.

        ValueError if no two consecutive steps are known.
        """
        with self._lock:
            self._refresh()
            self._expect(configured_ideal_step_time)
            steps = step_info(self._history, configured_ideal_step_time)
            self._goodput_cache.update_step_info(steps)
            return steps.step_deviations

    def _expect(self, ideal: float | None) -> None:
        """The deviations of steps are computed when they are asked for."""
        self._ideal_step_time = ideal
        self._goodput_cache.update_step_info(None)

    def _step_info(self) -> StepInfo | None:
        try:
            return step_info(self._history, self._ideal_step_time)
        except ValueError:
            return None  # there are no two steps yet

    # ── windows ───────────────────────────────────────────────────────────────────────────────

    def get_job_goodput_interval(
        self, interval_start: datetime, interval_end: datetime
    ) -> tuple[float, UnproductiveTimeDict, int, float, int]:
        """(goodput, badput by kind, last productive step, seconds, disruptions) of a window.

        Both moments need a time zone.  The seconds are those from the first to the last entry in
        the window.  ValueError if there are not two.
        """
        window = self.look_at(interval_start, interval_end)
        return (
            window.goodput_percent,
            window.badput_percent,
            window.max_productive_step,
            window.total,
            window.disruptions,
        )

    def get_interval_metric_details(
        self, interval_start: datetime, interval_end: datetime
    ) -> IntervalWorkloadMetricDetails:
        """Goodput and badput of a window; both empty if too little was recorded in it."""
        start, end = bounds(interval_start, interval_end)
        size = int(end - start)
        try:
            window = self.look_at(interval_start, interval_end)
        except ValueError:
            return {"interval_goodput": {}, "interval_badput": {}, "interval_size": size}
        return {
            "interval_goodput": {GoodputType.TOTAL: window.goodput_percent},
            "interval_badput": window.badput_percent,
            "interval_size": size,
        }

    def get_job_goodput_interval_details(
        self, interval_start: datetime, interval_end: datetime
    ) -> dict[str, Any]:
        """Goodput and badput of a window in seconds, as the first generation gives them."""
        bounds(interval_start, interval_end)
        try:
            window = self.look_at(interval_start, interval_end)
        except ValueError:
            return {"goodput_time_dict": {}, "badput_time_dict": {}}
        return {
            "goodput_time_dict": {GoodputType.TOTAL: window.productive},
            "badput_time_dict": window.badput,
        }

    def get_quiet_interval(self, interval_start: datetime, interval_end: datetime) -> Quiet:
        """The strict account of a window about which the methods above say nothing.  In a hang,
        nothing is productive.

        ValueError if the job did not run in it.
        """
        account = self.get_account(interval_start, interval_end)
        with self._lock:
            self._refresh()
            kinds = self._fold.figures().badput
            # How long the very first step may take is not known.
            is_first = len(self._history.steps) == 1
        return in_kinds(account, kinds, may_be_productive=not is_first)

    def look_at(self, start: datetime, end: datetime) -> Window:
        """A window by the original's rules.  ValueError if too little was recorded in it."""
        _, until = bounds(start, end)
        with self._lock:
            self._refresh()
            history = self._history
            if self._is_before(until):
                history = History()
                history.add(self._reader.read_window(start, end))
            return look(history, start, end, self._fold_type)

    def _is_before(self, until: float) -> bool:
        """Whether everything that was read is later: a log may at first give only its last days."""
        return not self._history or until < self._history.item(0).time

    # ── the strict account ────────────────────────────────────────────────────────────────────

    def get_account(
        self,
        interval_start: datetime | None = None,
        interval_end: datetime | None = None,
        exclusion_intervals: Sequence[tuple[datetime, datetime]] = (),
    ) -> Account:
        """How every nanosecond of the job, or of a window, was spent; the original has no such
        figures.

        Hangs, waits for data, work done again and the time between attempts are classes of their
        own, and all classes sum to the time that passed.  The same as `runwatch goodput` shows.
        ValueError if nothing of the job is known.
        """
        from runwatch.compat.goodput.calculator.strict import account_of

        since, until = (
            None if moment is None else nanoseconds_of(moment)
            for moment in (interval_start, interval_end)
        )
        exclude = [(nanoseconds_of(a), nanoseconds_of(b)) for a, b in exclusion_intervals]
        with self._lock:
            if self._has_own_log:
                self._refresh()
            if self._strict is None:
                read = self._entries_from if self._has_own_log else None
                self._strict = account_of(self.job_name, read)
                self._let_go_with_this(self._strict)
            account = self._strict.account(self._clock.wall_ns(), since, until, exclude)
        if account is None:
            raise ValueError(
                f"nothing is known of job {self.job_name!r}: is it the right name, and was "
                "anything recorded under it?"
            )
        return account

    # ── the log ───────────────────────────────────────────────────────────────────────────────

    def sync_to_gcs(self) -> None:
        """Nothing to do: there is no cache on disk."""

    def _refresh(self) -> None:
        if self._reader.read_into(self._history):
            self._fold = self._fold_type(self._history)
            if self._has_own_log:
                self._strict = None  # it was made in another order
        self._fold.advance()
        self._goodput_cache.update_last_entry_info(self._reader.cursor)

    def _own_journal(self, logger_name: str) -> CloudLogger:
        from runwatch.compat.goodput.log.backend import JournalLogger

        return self._let_go_with_this(JournalLogger(self.job_name, logger_name))

    def _let_go_with_this(self, log: T) -> T:
        """Closed when this calculator is dropped: callers do not close calculators."""
        close = getattr(log, "close", None)
        if close is not None:
            weakref.finalize(self, close).atexit = False
        return log

    def _entries_from(self, place: int | None) -> tuple[HistoryEntries, int]:
        """What the caller's own log has got since, for the strict account."""
        return HistoryEntries(self._history, place or 0), len(self._history)

    def _now(self) -> float:
        return self._clock.wall_ns() / 1e9


def _period(value: timedelta | float | None) -> timedelta | None:
    """The original's README passes seconds, its code takes a timedelta."""
    if value is None or isinstance(value, timedelta):
        period = value
    elif isinstance(value, int | float) and math.isfinite(value):
        period = timedelta(seconds=value)
    else:
        raise ValueError(
            f"max_logs_retention_period is {value!r}: pass a timedelta or a number of seconds"
        )
    if period is not None and period <= timedelta(0):
        raise ValueError(f"max_logs_retention_period is {value!r}: pass more than 0")
    return period
