"""Uploads a job's goodput while it runs: to TensorBoard and to Google Cloud Monitoring.

One daemon thread does it all, with one calculator.  No call here raises into the program or holds
it up, except that a `stop_…` waits for its last upload: `final_flush_timeout_seconds` at most.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.goodput_utils import GCPOptions
from runwatch.compat.goodput.monitor.uploads import (
    DEVIATION,
    GOODPUT,
    INTERVAL,
    ROLLING,
    Plan,
    Uploads,
)
from runwatch.sdk.guard import attempt, guarded, logger, tally

if TYPE_CHECKING:
    from runwatch.compat.goodput.calculator.calculator import GoodputCalculator

ACCOUNT_VARIABLE: Final = "RUNWATCH_GOODPUT_ACCOUNT"
_TENSORBOARD_FOLDER: Final = "goodput"
_DEFAULT_SECONDS: Final = 30.0
_DEFAULT_OPTIONS: Final = GCPOptions()  # every monitor works on a copy
_LEAST_SECONDS: Final = 0.05
_SKIP_SECONDS: Final = 1.0
"""How long a stop without a last upload waits for one that is under way."""


class GoodputMonitor:
    """Only one process of a job should monitor it; the others pass `monitoring_enabled=False`.

    Event files lie in `tensorboard_dir`/goodput.  Cloud Monitoring takes part where a project and
    a location are known, from `gcp_options` or, on Google Cloud, from the machine itself, and
    where `gcp_options` does not turn it off.
    """

    _include_slice_efficiency = False

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        tensorboard_dir: str,
        upload_interval: int,
        monitoring_enabled: bool = False,
        pathway_enabled: bool = False,
        include_badput_breakdown: bool = False,
        include_step_deviation: bool = False,
        configured_ideal_step_time: float | None = None,
        step_deviation_interval_seconds: int = 10,
        gcp_options: GCPOptions = _DEFAULT_OPTIONS,
        skip_final_flush: bool = False,
        final_flush_timeout_seconds: float | None = 10,
        gcs_sync_interval_seconds: int = 3600,
        cache_dir: str = "/tmp",
        max_logs_retention_period: timedelta | None = None,
        *,
        cloud_logger: Any = None,
        metrics_client: Any = None,
        include_account: bool | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """Intervals and timeouts are seconds; a timeout of None waits for ever.

        `include_account` uploads Runwatch's own account beside the original's figures; None is
        what RUNWATCH_GOODPUT_ACCOUNT says, so that no line need be changed for it.

        `cloud_logger` is another back end to read from, `metrics_client` a ready
        `MetricServiceClient`.  `gcs_sync_interval_seconds` and `cache_dir` have nothing to do
        here: there is no cache on disk.
        """
        self._enabled = bool(monitoring_enabled)
        self._upload_seconds = _seconds(upload_interval, _DEFAULT_SECONDS)
        self._deviation_seconds = _seconds(step_deviation_interval_seconds, 10.0)
        self._include_step_deviation = bool(include_step_deviation)
        self._skips_flush = bool(skip_final_flush)
        self._flush_seconds = _timeout(final_flush_timeout_seconds)
        self._seen: set[str] = set()
        plan = Plan(
            job_name=job_name,
            tensorboard_dir=_board_directory(tensorboard_dir),
            options=attempt("read gcp_options", GCPOptions(), lambda: replace(gcp_options)),
            include_badput_breakdown=bool(include_badput_breakdown),
            include_slice_efficiency=self._include_slice_efficiency,
            include_account=_wants_account(include_account),
            ideal_step_time=_ideal(configured_ideal_step_time),
            exit_seconds=None if skip_final_flush else min(self._flush_seconds or 10.0, 10.0),
        )
        calculator = partial(
            self._make_calculator,
            job_name=job_name,
            logger_name=logger_name,
            cloud_logger=cloud_logger,
            using_pathways=pathway_enabled,
            max_logs_retention_period=max_logs_retention_period,
            clock=clock,
        )
        self._make = partial(_uploads, plan, calculator, metrics_client, clock)
        self._uploads: Uploads | None = None

    @staticmethod
    def _make_calculator(**arguments: Any) -> GoodputCalculator:
        from runwatch.compat.goodput.calculator.calculator import GoodputCalculator

        return GoodputCalculator(**arguments)

    # ── the job so far ────────────────────────────────────────────────────────────────────────

    @guarded("start the goodput upload")
    def start_goodput_uploader(self) -> None:
        """Upload the job's goodput, and its badput if asked for, every `upload_interval`."""
        self._start(GOODPUT, self._upload_seconds, lambda uploads: uploads.goodput)

    @guarded("stop the goodput upload")
    def stop_goodput_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Upload a last time, even if nothing was started, unless `skip_final_flush`."""
        self._stop(GOODPUT, skip_final_flush, lambda uploads: uploads.goodput)

    # ── step deviation ────────────────────────────────────────────────────────────────────────

    @guarded("start the step deviation upload")
    def start_step_deviation_uploader(self) -> None:
        """Upload how far each step was from the ideal, if `include_step_deviation`."""
        if not self._include_step_deviation:
            logger.info("step deviation is not uploaded: include_step_deviation is False")
            return
        self._start(DEVIATION, self._deviation_seconds, lambda uploads: uploads.step_deviation)

    @guarded("stop the step deviation upload")
    def stop_step_deviation_uploader(self, skip_final_flush: bool | None = None) -> None:
        last = (lambda uploads: uploads.step_deviation) if self._include_step_deviation else None
        self._stop(DEVIATION, skip_final_flush, last)

    # ── windows ───────────────────────────────────────────────────────────────────────────────

    @guarded("start the rolling window upload")
    def start_rolling_window_goodput_uploader(self, rolling_windows_seconds: list[int]) -> None:
        """Upload the goodput of the last so many seconds, to Cloud Monitoring only."""
        windows = [window for window in map(_window, _listed(rolling_windows_seconds)) if window]
        if not windows:
            tally.count("rolling windows", "no rolling window: give sizes in seconds, as [3600]")
            return
        self._start(
            ROLLING, self._upload_seconds, lambda uploads: partial(uploads.rolling, windows)
        )

    @guarded("stop the rolling window upload")
    def stop_rolling_window_goodput_uploader(self, skip_final_flush: bool | None = None) -> None:
        self._stop(ROLLING, skip_final_flush)

    @guarded("start the interval upload")
    def start_goodput_interval_uploader(self, window_size_seconds: float) -> None:
        """One rolling window, as programs of the first generation ask for it."""
        window = _window(window_size_seconds)
        if not window:
            tally.count("interval window", f"no window of {window_size_seconds!r} seconds")
            return
        self._start(
            INTERVAL, self._upload_seconds, lambda uploads: partial(uploads.interval, window)
        )

    @guarded("stop the interval upload")
    def stop_goodput_interval_uploader(self, skip_final_flush: bool | None = None) -> None:
        self._stop(INTERVAL, skip_final_flush)

    # ── the thread ────────────────────────────────────────────────────────────────────────────

    def _start(self, name: str, seconds: float, work: _Work) -> None:
        if not self._enabled:
            return
        uploads = self._here()
        self._seen.add(name)
        if not uploads.timetable.add(name, seconds, work(uploads)):
            tally.count(f"{name} again", f"the {name} is going on already")

    def _stop(self, name: str, skip: bool | None, last: _Work | None = None) -> None:
        if not self._enabled:
            return
        uploads = self._here()
        flush = not (self._skips_flush if skip is None else skip)
        seconds = self._flush_seconds if flush else _SKIP_SECONDS
        if name in self._seen:
            done = uploads.timetable.end(name, once_more=flush, seconds=seconds)
        elif last is not None and flush:
            done = uploads.timetable.once(name, last(uploads), seconds)
        else:
            return
        if not done:
            tally.count(
                f"{name} late", f"the last {name} is not done after {seconds} s: left alone"
            )

    def _here(self) -> Uploads:
        """The uploads of this process; a forked child, which has no thread, gets new ones."""
        if self._uploads is None or self._uploads.timetable.pid != os.getpid():
            self._uploads = self._make()
            self._seen.clear()
            weakref.finalize(self, self._uploads.timetable.abandon).atexit = False
        return self._uploads


_Work = Callable[[Uploads], Callable[[], None]]


def _uploads(
    plan: Plan, calculator: Callable[[], GoodputCalculator], client: Any, clock: Clock
) -> Uploads:
    return Uploads(plan, calculator, client=client, clock=clock)


def _wants_account(flag: bool | None, environment: Mapping[str, str] = os.environ) -> bool:
    if flag is not None:
        return bool(flag)
    return environment.get(ACCOUNT_VARIABLE, "").strip().lower() in ("on", "1", "yes", "true")


def _board_directory(directory: str | os.PathLike[str] | None) -> str:
    """Joined by hand: gs://bucket/x is no path of this system."""
    text = attempt("read tensorboard_dir", "", lambda: os.fspath(directory) if directory else "")
    return f"{text.rstrip('/')}/{_TENSORBOARD_FOLDER}" if text else ""


def _seconds(value: Any, default: float) -> float:
    seconds = attempt("read an interval", default, lambda: float(value))
    return max(seconds, _LEAST_SECONDS) if math.isfinite(seconds) else default


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    return max(attempt("read a timeout", 10.0, lambda: float(value)), 0.0)


def _ideal(value: Any) -> float | None:
    """Seconds; None (compute it) if the value cannot be the time of a step."""
    if value is None:
        return None
    seconds = attempt("read configured_ideal_step_time", 0.0, lambda: float(value))
    return seconds if seconds > 0 and math.isfinite(seconds) else None


def _window(value: Any) -> int:
    """Whole seconds; 0 if the value cannot be the size of a window."""
    seconds = attempt("read a window's size", 0.0, lambda: float(value))
    return max(int(seconds), 0) if math.isfinite(seconds) else 0


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
