"""Accounts of long runs are drawn up and saved beside, before anybody asks, as records come in.

So that the first look at a long run is quick, whether it goes on or is over.  It takes a tenth of
one core in the long run: after each one it rests nine times as long as it worked, and now and then
during a long one, so that whoever asks for something else meanwhile is not held up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from runwatch.clock import Clock
from runwatch.record import Batch, JournalId, RunId

MANY_RECORDS: Final = 50_000
"""Of one journal since its run was last looked at, and a tenth of what it has."""
LAST_RECORDS: Final = 10_000
"""At its end so many are enough."""
REST: Final = 9.0
BREATH: Final = 2.0
"""Times as long as it worked; in a long one, unless somebody waits for it by now."""
_LOOK_SECONDS: Final = 0.05


class Arrivals:
    """Counts what is stored of each journal; told by the writer's thread, so it is quick."""

    def __init__(self) -> None:
        self._new: dict[JournalId, int] = {}
        self._all: dict[JournalId, int] = {}

    def stored(self, batches: Iterable[Batch]) -> list[JournalId]:
        """The journals whose run should be looked at."""
        due: list[JournalId] = []
        for batch in batches:
            journal = batch.origin.journal
            if batch.origin.role != "agent" and batch.records:
                self._all[journal] = self._all.get(journal, 0) + batch.records
                self._new[journal] = self._new.get(journal, 0) + batch.records
                if self._new[journal] >= max(MANY_RECORDS, self._all[journal] // 10):
                    self._new[journal] = 0
                    due.append(journal)
            due += [journal for journal in _ended(batch) if self._forget(journal) >= LAST_RECORDS]
        return due

    def _forget(self, journal: JournalId) -> int:
        """How many were new."""
        self._all.pop(journal, None)
        return self._new.pop(journal, 0)


def _ended(batch: Batch) -> list[JournalId]:
    """The journals that an event of the batch says are at their end."""
    found = [batch.origin.journal for event in batch.events if event.kind == "run_end"]
    exits = [event.body.get("journal") for event in batch.events if event.kind == "process_exit"]
    return found + [JournalId(name) for name in exits if isinstance(name, str)]


class Upkeep:
    """Has runs looked after, one after the other, in a thread that is there while it is needed."""

    def __init__(
        self,
        tend: Callable[[RunId], None],
        runs_of: Callable[[Collection[JournalId]], Sequence[RunId]],
        clock: Clock,
    ) -> None:
        self._tend = tend
        self._runs_of = runs_of
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[RunId, None] = {}
        self._journals: set[JournalId] = set()
        self._busy = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._since_ns = 0
        """When it last began to work."""

    def want(self, runs: Iterable[RunId] = (), journals: Iterable[JournalId] = ()) -> None:
        with self._lock:
            self._runs.update(dict.fromkeys(runs))
            self._journals.update(journals)
            if (self._runs or self._journals) and not self._busy and not self.stopped():
                self._busy = True
                self._thread = threading.Thread(
                    target=self._run, name="runwatch-upkeep", daemon=True
                )
                self._thread.start()

    def stopped(self) -> bool:
        return self._stop.is_set()

    def breathe(self, is_urgent: Callable[[], bool]) -> bool:
        """To be called now and then by what takes long; whether it should be given up."""
        self._rest(BREATH, is_urgent)
        return self.stopped()

    def close(self) -> None:
        with self._lock:
            self._stop.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (runs := self._take()) is not None:
            for run in runs:
                if not self.stopped():
                    self._look_after(run)

    def _take(self) -> list[RunId] | None:
        """What is wanted by now; None: nothing, and whoever wants something starts anew."""
        with self._lock:
            if self.stopped() or not (self._runs or self._journals):
                self._busy = False
                return None
            runs, self._runs = self._runs, {}
            journals, self._journals = self._journals, set()
        return list(runs | dict.fromkeys(self._runs_of(journals) if journals else ()))

    def _look_after(self, run: RunId) -> None:
        self._since_ns = self._clock.mono_ns()
        self._tend(run)
        self._rest(REST, lambda: False)

    def _rest(self, times: float, is_urgent: Callable[[], bool]) -> None:
        now_ns = self._clock.mono_ns()
        until_ns = now_ns + int((now_ns - self._since_ns) * times)
        while now_ns < until_ns and not is_urgent():
            if self._stop.wait(min((until_ns - now_ns) / 1e9, _LOOK_SECONDS)):
                break
            now_ns = self._clock.mono_ns()
        self._since_ns = now_ns
