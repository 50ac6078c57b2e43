"""How the runs stand, every few seconds, for receivers that may be away.

Nothing in the store says what state a run was in at a time.  So it is looked at, and kept in memory
until it is sent: of a receiver that is away for long the oldest are given up, and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.exports.gauges import Gauge
from runwatch.exports.prometheus import RunGoodput
from runwatch.head.state.board import RunBoard
from runwatch.record import RunId
from runwatch.views.life import SHOWN_STATES
from runwatch.views.runs import RunSummary

ENDED_SECONDS: Final = 3600.0
"""So long the state of a run that has ended is still told."""
MOST_RUNS: Final = 1_000
MOST_KEPT: Final = 500_000
"""So many values are kept for one receiver."""
LAST_SECONDS: Final = 5.0
logger = logging.getLogger("runwatch.head")


class Kept:
    """What one receiver has not got yet.  Any thread may put, one takes."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._looks: deque[list[Gauge]] = deque()
        self._count = 0
        self.given_up = 0

    def put(self, look: list[Gauge]) -> None:
        with self._lock:
            self._looks.append(look)
            self._count += len(look)
            while self._count > self._most and len(self._looks) > 1:
                oldest = self._looks.popleft()
                self._count -= len(oldest)
                self.given_up += len(oldest)

    def take(self, until_ns: int) -> list[Gauge]:
        """What was seen up to a time."""
        found: list[Gauge] = []
        with self._lock:
            while self._looks and self._looks[0][0].time_ns[0] <= until_ns:
                look = self._looks.popleft()
                self._count -= len(look)
                found += look
        return found

    @property
    def count(self) -> int:
        return self._count

    @property
    def since_ns(self) -> int | None:
        with self._lock:
            return self._looks[0][0].time_ns[0] if self._looks else None


class Pulse:
    def __init__(
        self,
        board: RunBoard,
        goodput: Callable[[], Sequence[RunGoodput]],
        interval_seconds: float,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._board = board
        self._goodput = goodput
        self._interval_seconds = interval_seconds
        self._clock = clock
        self.receivers: list[Kept] = []
        self.on_ended: Callable[[RunId], None] = lambda run: None
        """Called for a run that has ended, when that was seen."""
        self._going: set[RunId] = set()
        self._told: dict[RunId, list[Gauge]] = {}
        """What was said of each run the last time."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runwatch-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_seconds):
            try:
                self.beat()
            except RunwatchError as error:  # the store's; whoever asks for a page is told, too
                logger.warning("the state of runs is not sent on: %s", error)

    def beat(self) -> None:
        now_ns = self._clock.wall_ns()
        recent_ns = now_ns - int(ENDED_SECONDS * 1e9)
        summaries, _ = self._board.summaries()
        chosen = [s for s in summaries if _is_recent(s, recent_ns)][:MOST_RUNS]
        cards = self._board.cards(chosen)
        accounts = {account.run: account for account in self._goodput()}
        said = {
            card.summary.run: list(_gauges(card.summary, accounts.get(card.summary.run), now_ns))
            for card in cards
        }
        look = [gauge for gauges in said.values() for gauge in gauges]
        for run in self._told.keys() - said.keys():
            look += [_ending(gauge, now_ns) for gauge in self._told[run]]
        self._told = said
        if look:
            for receiver in self.receivers:
                receiver.put(look)
        going = {summary.run for summary in chosen if summary.state == "running"}
        for run in self._going - going:
            self.on_ended(run)
        self._going = going


def _is_recent(run: RunSummary, since_ns: int) -> bool:
    return run.state == "running" or (run.ended_ns or run.last_ns) >= since_ns


def _gauges(run: RunSummary, account: RunGoodput | None, now_ns: int) -> Iterator[Gauge]:
    labels = {"run": run.run, "run_name": run.name}

    def gauge(name: str, value: float, unit: str = "", **more: str) -> Gauge:
        return Gauge(name, labels | more, [now_ns], [float(value)], unit)

    for state in SHOWN_STATES:
        yield gauge("run_state", run.shown_state == state, state=state)
    yield gauge("run_stalled", run.stalled)
    yield gauge("run_ranks", run.ranks)
    if run.last_step is not None:
        yield gauge("run_step", run.last_step)
    if account is None:
        return
    if account.goodput is not None:
        yield gauge("goodput_ratio", account.goodput, "1")
    for name, seconds in account.spent_seconds.items():
        yield gauge("spent_seconds", seconds, "s", **{"class": name})


def _ending(gauge: Gauge, now_ns: int) -> Gauge:
    return Gauge(gauge.name, gauge.labels, [now_ns], [float("nan")], gauge.unit, ends=True)
