"""What a monitor uploads: each time it asks the calculator once, then writes to each outlet.

An outlet that fails or is missing does not affect the others.  All of it runs in the monitor's one
thread, so the calculator and the event file have a single user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.calculator.quiet import Quiet
from runwatch.compat.goodput.goodput_utils import BadputType, GCPOptions, GoodputType, each_amount
from runwatch.compat.goodput.monitor.cloud import CloudOutlet
from runwatch.compat.goodput.monitor.pace import Pace
from runwatch.compat.goodput.monitor.tensorboard import job_scalars
from runwatch.compat.goodput.monitor.timetable import Timetable
from runwatch.errors import UsageError
from runwatch.exports.cloud_monitoring import (
    Parts,
    Series,
    Workload,
    account_shares,
    account_times,
    job_times,
    job_totals,
    slice_efficiencies,
    step_times,
    window_shares,
)
from runwatch.exports.event_files import EventFile, Scalar, account_scalars
from runwatch.sdk.guard import attempt, logger

if TYPE_CHECKING:
    from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
    from runwatch.views.goodput.account import Account

T = TypeVar("T")

GOODPUT: Final = "goodput upload"
DEVIATION: Final = "step deviation upload"
ROLLING: Final = "rolling window upload"
INTERVAL: Final = "interval upload"

_DEVIATION_TAG: Final = "step_deviation"
_SCALARS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a monitor was asked to do."""

    job_name: str
    tensorboard_dir: str
    """Where event files go; "" is nowhere."""
    options: GCPOptions
    include_badput_breakdown: bool
    include_slice_efficiency: bool
    include_account: bool
    """Whether Runwatch's own account goes beside the original's figures."""
    ideal_step_time: float | None
    exit_seconds: float | None
    """How long a last upload may hold up the program's exit; None is no last upload."""


class Uploads:
    """A monitor's thread and all it uses; a forked child makes its own."""

    def __init__(
        self,
        plan: Plan,
        make_calculator: Callable[[], GoodputCalculator],
        *,
        client: Any = None,
        clock: Clock = system_clock,
    ) -> None:
        self._plan = plan
        self._make_calculator = make_calculator
        self._calculator: GoodputCalculator | None = None
        self._step = 0
        """The last productive one that is known."""
        self._pace = Pace(plan.ideal_step_time)
        self._clock = clock
        self._cloud = CloudOutlet(plan.job_name, plan.options, client=client, clock=clock)
        directory = plan.tensorboard_dir
        self._board = EventFile(directory, plan.job_name, clock=clock) if directory else None
        self.timetable = Timetable(
            "runwatch-goodput-monitor",
            at_rest=self._put_away,
            exit_seconds=plan.exit_seconds,
            clock=clock,
        )

    @property
    def calculator(self) -> GoodputCalculator:
        if self._calculator is None:
            self._calculator = self._make_calculator()
        return self._calculator

    def goodput(self) -> None:
        """The job so far."""
        plan = self._plan
        answer = _answer(
            lambda: self.calculator.get_job_goodput(
                plan.include_badput_breakdown, configured_ideal_step_time=plan.ideal_step_time
            )
        )
        if answer is not None:
            percent, badput, self._step = answer
            self._show(job_scalars(percent, _by_name(badput), self._step))
            attempt("upload goodput", None, self._send_job)
        if plan.include_account:
            attempt("upload the account", None, self._account)

    def _account(self) -> None:
        """Known even where the original's rules give no figures."""
        account = _answer(self.calculator.get_account)
        if account is None:
            return
        percent, spent = account.goodput, _seconds(account)
        self._show(account_scalars(None if percent is None else percent * 100, spent, self._step))
        if self._cloud.takes_goodput and (workload := self._cloud.workload) is not None:
            # A request of its own: whatever becomes of it, the others are there.
            self._cloud.send(account_times(workload, spent))

    def step_deviation(self) -> None:
        """Steps that have not been shown yet, and how far the latest are from the ideal."""
        self._pace.follow(self.calculator)
        attempt("write TensorBoard files", None, self._show_deviations)
        if self._cloud.takes_step_times and (workload := self._cloud.workload) is not None:
            self._cloud.send(self._step_series(workload))

    def rolling(self, windows: Sequence[int]) -> None:
        """Windows that end now.  Where nothing was recorded, the strict account answers."""
        if not self._cloud.takes_goodput or (workload := self._cloud.workload) is None:
            return
        series: list[Series] = []
        now = self._now()
        for seconds in windows:
            begin = now - timedelta(seconds=seconds)
            series += self._window_series(workload, seconds, begin, now)
        self._cloud.send(series)
        if self._plan.include_account:
            self._send_accounts(workload, windows, now)

    def interval(self, seconds: float) -> None:
        """One window that ends now, in percent; and in seconds under the names of the job's own
        times, where programs of the first generation look, unless the job's own go there."""
        if not self._cloud.takes_goodput or (workload := self._cloud.workload) is None:
            return
        now = self._now()
        begin = now - timedelta(seconds=seconds)
        window = self._window(begin, now)
        if window is None:
            return  # the job did not run
        percent, parts = window.goodput_percent, _by_name(window.badput_percent)
        series = window_shares(workload, int(seconds), percent, parts)
        if not self.timetable.runs(GOODPUT):
            share = window.total / 100
            of_parts = each_amount(parts, lambda percent: percent * share)
            series += job_times(workload, percent * share, of_parts)
        self._cloud.send(series)
        if self._plan.include_account:
            self._send_accounts(workload, [int(seconds)], now)

    def _send_accounts(self, workload: Workload, windows: Sequence[int], now: datetime) -> None:
        series: list[Series] = []
        for seconds in windows:
            begin = now - timedelta(seconds=seconds)
            account = _of_window(partial(self.calculator.get_account, begin, now))
            if account is not None:
                series += account_shares(workload, seconds, _seconds(account))
        self._cloud.send(series)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)

    def _show(self, scalars: list[Scalar]) -> None:
        if self._board is not None:
            attempt("write TensorBoard files", None, partial(self._board.write, scalars))

    def _show_deviations(self) -> None:
        if self._board is None:
            return
        new = self._pace.deviations(self._board.last_step(_DEVIATION_TAG))
        scalars = (Scalar(_DEVIATION_TAG, step, seconds) for step, seconds in new)
        while some := list(islice(scalars, _SCALARS_AT_ONCE)):
            self._board.write(some)

    def _send_job(self) -> None:
        cloud = self._cloud
        goodput, step_time = cloud.takes_goodput, cloud.takes_step_times
        if (workload := cloud.workload) is None or not (goodput or step_time):
            return
        details = self.calculator.get_job_goodput_details(include_step_deviation=False)
        series: list[Series] = []
        if goodput:
            series += self._job_series(workload, details)
        if step_time and not self.timetable.runs(DEVIATION):  # which sends them more often
            self._pace.follow(self.calculator)
            series += self._step_series(workload)
        cloud.send(series)

    def _job_series(self, workload: Workload, details: Mapping[str, Any]) -> list[Series]:
        return [
            *job_times(
                workload,
                details["goodput_time"].get(GoodputType.TOTAL, 0.0),
                _by_name(details["badput_time"]),
            ),
            *job_totals(
                workload,
                disruptions=details["disruption_count"],
                max_step=details["max_productive_step"],
                elapsed_seconds=details["total_elapsed_time"],
            ),
            *self._slices(workload, details, 0),
        ]

    def _step_series(self, workload: Workload) -> list[Series]:
        pace = self._pace
        return step_times(workload, ideal_seconds=pace.ideal, deviation_seconds=pace.deviation())

    def _window_series(
        self, workload: Workload, seconds: int, begin: datetime, now: datetime
    ) -> list[Series]:
        window = self._window(begin, now)
        if window is None:
            return []
        badput = _by_name(window.badput_percent)
        series = window_shares(workload, seconds, window.goodput_percent, badput)
        if self._plan.include_slice_efficiency:
            details = self.calculator.get_interval_metric_details(begin, now)
            series += self._slices(workload, details, seconds)
        return series

    def _window(self, begin: datetime, now: datetime) -> Quiet | None:
        """By the original's rules, or by the strict account where those say nothing; None if the
        job did not run."""
        answer = _answer(partial(self.calculator.look_at, begin, now))
        return answer or _of_window(partial(self.calculator.get_quiet_interval, begin, now))

    def _slices(self, workload: Workload, details: Mapping[str, Any], seconds: int) -> list[Series]:
        if not self._plan.include_slice_efficiency:
            return []
        stepping = details.get("stepping_slice_efficiency")
        return slice_efficiencies(
            workload, stepping, details.get("available_slice_efficiency"), seconds
        )

    def _put_away(self) -> None:
        if self._board is not None:
            self._board.close()


def _answer(question: Callable[[], T]) -> T | None:
    """None while there is none: a job that has not begun, a window in which nothing happened."""
    try:
        return question()
    except ValueError as error:
        logger.debug("nothing to upload: %s", error)
        return None


def _of_window(question: Callable[[], T]) -> T | None:
    """None if the job did not run in it: a head refuses to answer about such a window."""

    def ask() -> T | None:
        try:
            return _answer(question)
        except UsageError as error:
            logger.debug("nothing to upload: %s", error)
            return None

    return attempt("account for a window", None, ask)


def _seconds(account: Account) -> dict[str, float]:
    return {name: ns / 1e9 for name, ns in account.spent_ns.items()}


def _by_name(badput: Mapping[BadputType, Any]) -> Parts:
    return {kind.name: amount for kind, amount in badput.items()}
