"""The goodput of runs to Cloud Monitoring, every minute.

A figure of a moment can be drawn up at any later time: the store has what it is made of.  So the
cursor is one number, the last moment that was sent, and whatever kept us from sending (the service,
or that no head was running), the moments that were missed are sent afterwards, in order.  Only what
is older than the service takes is lost, and counted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.exports.cloud_monitoring import (
    Series,
    Workload,
    account_shares,
    account_times,
    in_sources,
    job_times,
    job_totals,
    step_times,
    window_shares,
)
from runwatch.head.cloud import failures
from runwatch.head.cloud.clients import Connection
from runwatch.head.cloud.failures import Refused
from runwatch.head.cloud.settings import GcpSettings
from runwatch.head.forward.cursor import CursorFile, whole
from runwatch.head.forward.forwarder import Trouble
from runwatch.head.forward.report import Report
from runwatch.head.state.accounts.accounts import MOST_FOLDS, Accounts
from runwatch.views.goodput.account import Account, Goodput
from runwatch.views.goodput.figures import step_deviation_ns
from runwatch.views.runs import RunSummary

SERIES_PER_REQUEST: Final = 200
AT_ONCE: Final = 15
"""So many moments are drawn up together."""
LAG_NS: Final = 10 * 10**9
"""Records of a moment need a while to arrive."""
OLDEST_NS: Final = 24 * 3600 * 10**9
"""The service takes points of the last 25 hours."""
TOO_OLD: Final = "older than the service takes (25 hours)"
logger = logging.getLogger("runwatch.head")


_One = tuple[Workload, Series]


@dataclass(slots=True)
class _Request:
    series: list[_One]
    end_ns: int
    unclear: bool = False
    """It may have arrived already: then the service refuses it as a repetition."""


class FigureSource:
    """`summaries`: every run, newest first."""

    def __init__(
        self,
        settings: GcpSettings,
        accounts: Accounts,
        summaries: Callable[[], Sequence[RunSummary]],
        connection: Connection,
        file: CursorFile,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._settings = settings
        self._accounts = accounts
        self._summaries = summaries
        self._connection = connection
        self._file = file
        self._clock = clock
        self._interval_ns = int(settings.interval_seconds * 1e9)
        kept = file.read()
        first_ns = clock.wall_ns() - int(settings.backfill_hours * 3600e9)
        at_ns = whole(kept.get("at_ns"), first_ns)
        self._at_ns = at_ns // self._interval_ns * self._interval_ns
        self._sent, self._lost = whole(kept.get("sent")), whole(kept.get("lost"))
        self._why = str(kept.get("lost_why", ""))
        self._open: list[_Request] = []
        """Of the moments from `_at_ns` to `_through_ns`, as far as they are not sent."""
        self._through_ns = self._at_ns
        self._is_first = bool(kept)
        """The last head may have sent the next moments, and been killed before it noted it."""
        self._waiting = 0
        self._note = ""

    def round(self) -> bool:
        self._connection.ready()
        if not self._open and not self._find():
            self._waiting = 0
            return False
        while self._open:
            request = self._open[0]
            self._send(request)
            del self._open[0]
            self._waiting = max(self._waiting - len(request.series), 0)
            if not any(each.end_ns == request.end_ns for each in self._open[:1]):
                self._at_ns = request.end_ns
                self._save()
        self._at_ns = self._through_ns
        return True

    def standing(self) -> Report:
        begun = self._open[:1]
        return Report(
            to="cloud_monitoring",
            name=failures.MONITORING.name,
            sent=self._sent,
            waiting=self._waiting or sum(len(request.series) for request in self._open),
            waiting_since_ns=begun[0].end_ns if begun else None,
            lost=self._lost,
            lost_why=self._why,
            note=self._note,
        )

    def failed(self) -> None:
        self._connection.let_go()
        known = sum(len(request.series) for request in self._open)
        moments = len({request.end_ns for request in self._open})
        later = (self._clock.wall_ns() - LAG_NS - self._through_ns) // self._interval_ns
        self._waiting = known + (max(later, 0) * known // moments if moments else 0)

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.let_go()
        self._save()

    # ── which moments ─────────────────────────────────────────────────────────────────────────

    def _find(self) -> bool:
        """The next moments with something to tell."""
        until_ns = self._clock.wall_ns() - LAG_NS
        if self._at_ns + self._interval_ns > until_ns:
            return False
        runs = self._chosen()
        while not self._open and self._at_ns + self._interval_ns <= until_ns:
            first_ns, step_ns = self._at_ns + self._interval_ns, self._interval_ns
            moments = list(range(first_ns, until_ns + 1, step_ns))[:AT_ONCE]
            found = self._at(moments, runs)
            self._through_ns = moments[-1]
            self._open = [request for at in moments for request in self._requests(at, found[at])]
            self._is_first = False
            if not self._open:
                self._at_ns = self._through_ns
        self._save()
        return bool(self._open)

    def _at(self, moments: list[int], runs: Sequence[RunSummary]) -> dict[int, list[_One]]:
        """What there is to tell of each moment.  A run's account is drawn up once for all."""
        found: dict[int, list[_One]] = {at: [] for at in moments}
        named: set[tuple[int, str]] = set()
        there = [run for run in runs if any(self._works(run, at) for at in moments)]
        self._say_left_out(len(there) - MOST_FOLDS)
        for run in there[:MOST_FOLDS]:
            # Of several runs with one name the newest counts: a series has one point of a moment.
            mine = [at for at in moments if self._works(run, at) and (at, run.name) not in named]
            named.update((at, run.name) for at in mine)
            for at, one in self._of(run, mine):
                found[at].append(one)
        return found

    def _requests(self, at: int, series: list[_One]) -> Iterator[_Request]:
        for begin in range(0, len(series), SERIES_PER_REQUEST):
            yield _Request(series[begin : begin + SERIES_PER_REQUEST], at, self._is_first)

    def _chosen(self) -> list[RunSummary]:
        return [run for run in self._summaries() if self._settings.takes(run.run, run.name)]

    def _works(self, run: RunSummary, at: int) -> bool:
        """Whether it ran within the interval up to then."""
        return run.started_ns < at and _until_ns(run) > at - self._interval_ns

    def _say_left_out(self, count: int) -> None:
        self._note = (
            f"figures of {count} runs are not sent: at most {MOST_FOLDS} at a time are; choose "
            "fewer with gcp.runs"
            if count > 0
            else ""
        )

    def _save(self) -> None:
        kept = {"at_ns": self._at_ns, "sent": self._sent, "lost": self._lost}
        self._file.write(kept | {"lost_why": self._why})

    # ── figures ───────────────────────────────────────────────────────────────────────────────

    def _of(self, run: RunSummary, moments: Sequence[int]) -> Iterator[tuple[int, _One]]:
        settings = self._settings
        workload = Workload(
            run.name or run.run,
            settings.location,
            settings.replica_id,
            settings.accelerator_type,
            settings.cluster_name or None,
        )
        found: list[tuple[int, Series]] = []
        try:
            with self._accounts.of(run.run) as goodput:
                for at in moments:
                    if goodput is not None and goodput.start_ns < at:
                        found += [(at, one) for one in self._figures(workload, goodput, at)]
        except RunwatchError as error:  # of this run; the others have theirs
            logger.warning("no figures of run %s for Cloud Monitoring: %s", run.run, error)
            return
        yield from ((at, (workload, one)) for at, one in found if math.isfinite(one.value))

    def _figures(self, workload: Workload, goodput: Goodput, end_ns: int) -> Iterator[Series]:
        spent = _seconds(goodput.account(None, end_ns))
        yield from job_times(workload, spent["productive"], in_sources(spent))
        yield from job_totals(
            workload,
            disruptions=sum(each.time_ns <= end_ns for each in goodput.disruptions),
            max_step=_last_step(goodput, end_ns),
            elapsed_seconds=sum(spent.values()),
        )
        ideal, apart = goodput.ideal_step_ns, step_deviation_ns(goodput, end_ns)
        yield from step_times(
            workload,
            ideal_seconds=None if ideal is None else ideal / 1e9,
            deviation_seconds=None if apart is None else apart / 1e9,
        )
        if self._settings.account:
            yield from account_times(workload, spent)
        for window in self._settings.windows:
            yield from self._of_window(workload, goodput, window, end_ns)

    def _of_window(
        self, workload: Workload, goodput: Goodput, window: int, end_ns: int
    ) -> Iterator[Series]:
        part = goodput.account(end_ns - window * 10**9, end_ns)
        if not part.counted_ns:
            return
        counted = part.counted_ns / 1e9
        percent = {name: seconds / counted * 100 for name, seconds in _seconds(part).items()}
        yield from window_shares(workload, window, percent["productive"], in_sources(percent))
        if self._settings.account:
            yield from account_shares(workload, window, _seconds(part))

    # ── sending ───────────────────────────────────────────────────────────────────────────────

    def _send(self, request: _Request) -> None:
        if request.end_ns < self._clock.wall_ns() - OLDEST_NS:
            self._lose(len(request.series), TOO_OLD)
            return
        name = f"projects/{self._connection.project}"
        series = [_time_series(*one, request.end_ns) for one in request.series]
        try:
            self._connection.call(
                lambda client, seconds: client.create_time_series(
                    {"name": name, "time_series": series}, retry=None, timeout=seconds
                )
            )
        except Refused as error:
            self._refused(request, error)
        except Trouble:
            request.unclear = True
            raise
        else:
            self._sent += len(series)

    def _refused(self, request: _Request, error: Refused) -> None:
        """The service has taken all but some, and will not take those; it says how many."""
        if request.unclear:
            self._sent += len(request.series)
            return
        written = _points_written(error)
        self._sent += written
        self._lose(len(request.series) - written, str(error))

    def _lose(self, count: int, why: str) -> None:
        if why != self._why:
            logger.warning("Cloud Monitoring will not take %d points: %s", count, why)
        self._lost += count
        self._why = why


def _until_ns(run: RunSummary) -> int:
    return (run.ended_ns or run.last_ns) if run.state != "running" else 2**63 - 1


def _seconds(account: Account) -> dict[str, float]:
    return {name: ns / 1e9 for name, ns in account.spent_ns.items()}


def _last_step(goodput: Goodput, end_ns: int) -> int:
    """The last step that counted by then."""
    known = [step for step in (goodput.max_productive_step, goodput.step_at(end_ns)[0]) if step]
    return min(known, default=0)


def _time_series(workload: Workload, series: Series, end_ns: int) -> Any:
    from google.cloud import monitoring_v3

    asked = workload.request(series)
    seconds, nanos = divmod(end_ns, 10**9)
    value = int(series.value) if series.value_type == "int64_value" else float(series.value)
    return monitoring_v3.TimeSeries(
        metric={"type": asked["metric_type"], "labels": asked["metric_labels"]},
        resource={"type": asked["resource_type"], "labels": asked["resource_labels"]},
        points=[
            {
                "interval": {"end_time": {"seconds": seconds, "nanos": nanos}},
                "value": {series.value_type: value},
            }
        ],
    )


def _points_written(error: Refused) -> int:
    """How many points of the request were taken all the same; 0 if the service does not say."""
    from google.cloud.monitoring_v3 import CreateTimeSeriesSummary

    kind = CreateTimeSeriesSummary.pb(CreateTimeSeriesSummary())
    for detail in error.details:
        if getattr(detail, "type_url", "").endswith(kind.DESCRIPTOR.full_name):
            detail.Unpack(kind)
            return int(kind.success_point_count)
    return 0
