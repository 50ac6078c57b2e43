"""How much one run, one project and one client may send.

The limits are asked before a batch is queued.  A batch over a limit is refused with the reason, and
nothing of it is stored.  The agent sets the journal aside, says so, and asks again now and then.
For a run or a project everything in the store counts.  For a client everything counts that it sent
in the last day.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.head.access.projects import Projects, named
from runwatch.record import Batch, JournalId, RunId, RunScope, Series

if TYPE_CHECKING:  # it needs numpy, which who only asks for the settings may not have
    from runwatch.store.store import Store

DAY_NS: Final = 86_400 * 10**9
MOST_CLIENTS: Final = 20_000
MOST_TOLD: Final = 20
"""How many refusals are named; of the others only the number is given."""
_NO_RUN: Final = RunId("")
LEAST_BYTES: Final = 28
"""A record counts at least this many bytes, whatever its sender says."""
logger = logging.getLogger("runwatch.head")


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """0: no limit."""

    run_series: int = 2_000_000
    run_events: int = 20_000_000
    run_bytes: int = 1 << 40
    client_runs: int = 10_000
    client_series: int = 2_000_000
    client_events: int = 20_000_000
    client_bytes: int = 1 << 40
    project_runs: int = 0
    project_series: int = 0
    project_events: int = 0
    project_bytes: int = 0


NO_LIMITS: Final = QuotaSettings(0, 0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class _Tally:
    events: int = 0
    bytes: int = 0
    runs: int = 0
    series: int = 0
    since_ns: int = 0


class _Over(NamedTuple):
    """Somebody over a limit: why, which journal was refused last, and when."""

    why: str
    journal: JournalId
    at_ns: int


class Quotas:
    """`refusal` may be asked by any thread; `took` is called by the writer's alone."""

    def __init__(
        self,
        settings: QuotaSettings,
        store: Store,
        *,
        tell: Callable[[RunId, str, str], object] = lambda run, what, why: None,
        clock: Clock = system_clock,
    ) -> None:
        """`tell` is called once for each limit that a run reaches, in a thread of its own."""
        self.refused = 0
        """Refused batches since the start."""
        self._settings = settings
        self._store = store
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[RunId, _Tally] = {}
        self._run_of: dict[JournalId, RunId] | None = None
        self._clients: dict[str, _Tally] = {}
        self._over: dict[str, _Over] = {}
        """Who is over a limit; the newest last."""
        self._said: set[tuple[RunId, str]] = set()
        self.projects = Projects(store)
        self._runs_in: dict[str, set[RunId]] | None = None
        self._in_projects: dict[str, _Tally] = {}
        self._weighs_projects = bool(settings.project_events or settings.project_bytes)
        self._by_project = bool(
            settings.project_runs or settings.project_series or self._weighs_projects
        )

    # ── asking ────────────────────────────────────────────────────────────────────────────────

    def refusal(self, batch: Batch, client: str, size: int) -> str:
        """Why the batch is refused; empty if it is taken.  The head's own has no client."""
        if not client:
            return ""
        with self._lock:
            run = self._run(batch)
            if not self._over and not batch.definitions and self._fits(batch, run, client, size):
                return ""
            for who, why in self._refusals(batch, run, client, size):
                known = self._over.get(who)
                # A smaller batch of another journal may fit: that does not end the refusal.
                if known and (why or known.journal == batch.origin.journal):
                    del self._over[who]
                if why:
                    self.refused += 1
                    self._over[who] = _Over(why, batch.origin.journal, self._clock.mono_ns())
                    if len(self._over) > MOST_CLIENTS:
                        del self._over[next(iter(self._over))]
                    return why
            return ""

    def _refusals(
        self, batch: Batch, run: RunId, client: str, size: int
    ) -> Iterator[tuple[str, str]]:
        """Who could be over a limit, and why; empty if it is not."""
        yield client, self._of_client(batch, client, size)
        yield f"run {run}", self._of_run(batch, run, size)
        if project := self._project(batch, run):
            yield f"project {project}", self._of_project(batch, run, project, size)

    def _fits(self, batch: Batch, run: RunId, client: str, size: int) -> bool:
        """A quick answer for batches that define nothing: nearly all are far below the limits."""
        limits, events = self._settings, len(batch.events)
        of_run, of_client = self._runs.get(run), self._clients.get(client)
        of_project = None
        if self._weighs_projects and run:
            of_project = self._in_projects.get(self.projects.of(run) or "")
        return (
            (
                of_run is None
                or (not limits.run_events or of_run.events + events <= limits.run_events)
                and (not limits.run_bytes or of_run.bytes + size <= limits.run_bytes)
            )
            and (
                of_client is None
                or (not limits.client_events or of_client.events + events <= limits.client_events)
                and (not limits.client_bytes or of_client.bytes + size <= limits.client_bytes)
            )
            and (
                of_project is None
                or (
                    not limits.project_events or of_project.events + events <= limits.project_events
                )
                and (not limits.project_bytes or of_project.bytes + size <= limits.project_bytes)
            )
        )

    def notes(self) -> list[str]:
        """Who was over which limit within the last day."""
        since_ns = self._clock.mono_ns() - DAY_NS
        with self._lock:
            over = [each.why for each in self._over.values() if each.at_ns >= since_ns]
        more = len(over) - MOST_TOLD
        return over[-MOST_TOLD:] + ([f"and {more} more are over a limit"] if more > 0 else [])

    def of_run(self, run: RunId) -> str:
        over = self._over.get(f"run {run}")
        if over is None and self._by_project:
            over = self._over.get(f"project {self.projects.of(run) or ''}")
        return over.why if over is not None else ""

    def recount(self) -> None:
        """A run was deleted or restored: count its project again."""
        self.projects.look_again()
        with self._lock:
            self._runs_in = None
            self._in_projects.clear()
            self._over.clear()  # whoever is still over a limit is refused again soon

    def _of_run(self, batch: Batch, run: RunId, size: int) -> str:
        if not run:
            return ""
        known, limits = self._runs.get(run, _Tally()), self._settings
        series = self._store.count_series(run) if limits.run_series else 0
        wanted = {
            "series": (series, self._new_series(batch), limits.run_series),
            "events": (known.events, len(batch.events), limits.run_events),
            "bytes": (known.bytes, size, limits.run_bytes),
        }
        for what, (have, more, most) in wanted.items():
            if most and more and have + more > most:
                why = _words(f"run {run!r}", have, what, most, f"run_{what}")
                self._say_once(run, what, why)
                return why
        return ""

    def _of_project(self, batch: Batch, run: RunId, project: str, size: int) -> str:
        known, limits = self._in_projects.get(project, _Tally()), self._settings
        runs = self._members()[project] if batch.definitions else set()
        series = sum(map(self._store.count_series, runs)) if limits.project_series else 0
        new = {scope.run for scope in named(batch)} - runs
        wanted = {
            "runs": (len(runs), len(new), limits.project_runs),
            "series": (series, self._new_series(batch), limits.project_series),
            "events": (known.events, len(batch.events), limits.project_events),
            "bytes": (known.bytes, size, limits.project_bytes),
        }
        for what, (have, more, most) in wanted.items():
            if most and more and have + more > most:
                why = _words(f"project {project!r}", have, what, most, f"project_{what}")
                if self._store.knows_run(run):
                    self._say_once(run, f"{what} of its project", why)
                return why
        return ""

    def _of_client(self, batch: Batch, client: str, size: int) -> str:
        known, limits = self._clients.get(client), self._settings
        if known is None or self._is_old(known):
            known = _Tally()
        wanted = {
            "runs": (known.runs, self._new_runs(batch), limits.client_runs),
            "series": (known.series, self._new_series(batch), limits.client_series),
            "events": (known.events, len(batch.events), limits.client_events),
            "bytes": (known.bytes, size, limits.client_bytes),
        }
        for what, (have, more, most) in wanted.items():
            if most and more and have + more > most:
                who = f"client {client}"
                return _words(who, have, what, most, f"client_{what}", " within a day")
        return ""

    def _say_once(self, run: RunId, what: str, why: str) -> None:
        if (run, what) not in self._said:
            self._said.add((run, what))
            threading.Thread(
                target=self._say, args=(run, what, why), name="runwatch-limit", daemon=True
            ).start()

    def _say(self, run: RunId, what: str, why: str) -> None:
        logger.warning("a limit is reached: %s", why)
        try:
            self._tell(run, what, why)
        except RunwatchError as error:
            logger.warning("could not record that a limit was reached: %s", error)

    # ── counting ──────────────────────────────────────────────────────────────────────────────

    def about(self, batch: Batch) -> tuple[int, int]:
        """How many runs and series the batch would add.  Ask before it is stored."""
        return self._new_runs(batch), self._new_series(batch)

    def took(self, batch: Batch, client: str, size: int, new: tuple[int, int]) -> None:
        """The batch was stored; `new` is what `about` said of it."""
        with self._lock:
            run = self._run(batch)
            tally = self._runs.get(run)
            if tally is not None:
                tally.events += len(batch.events)
                tally.bytes += size
            known = self._clients.get(client)
            if known is None or self._is_old(known):
                known = self._clients[client] = _Tally(since_ns=self._clock.mono_ns())
                if len(self._clients) > MOST_CLIENTS:
                    del self._clients[next(iter(self._clients))]
            known.events += len(batch.events)
            known.bytes += size
            known.runs += new[0]
            known.series += new[1]
        if run and tally is None:
            self._runs[run] = self._weighed(run)
        if run and self._by_project:
            self._took_for_project(batch, run, size)

    def _took_for_project(self, batch: Batch, run: RunId, size: int) -> None:
        project = self.projects.of(run)
        if not project:
            return
        with self._lock:
            members = self._members()[project]
            members.update(scope.run for scope in named(batch))
            runs, tally = [*members], self._in_projects.get(project)
            if tally is not None:
                tally.events += len(batch.events)
                tally.bytes += size
        if tally is None and self._weighs_projects:
            # Once after a start or a deletion.  This batch is in what the store has.
            weights = [self._runs.get(each) or self._weighed(each) for each in runs]
            total = _Tally(sum(w.events for w in weights), sum(w.bytes for w in weights))
            with self._lock:
                self._in_projects[project] = total

    def _members(self) -> dict[str, set[RunId]]:
        """The runs of each project."""
        if self._runs_in is None:
            rows = self._store.processes()
            runs = {row.run for row in rows if row.run and row.role != "agent"}
            self._runs_in = defaultdict(set)
            for run in runs:
                self._runs_in[self.projects.of(run) or ""].add(run)
        return self._runs_in

    def _weighed(self, run: RunId) -> _Tally:
        """What the store has of the run, this batch included."""
        weight = self._store.weigh(run)
        return _Tally(weight.events, LEAST_BYTES * (weight.points + weight.spans + weight.events))

    def _is_old(self, tally: _Tally) -> bool:
        return self._clock.mono_ns() - tally.since_ns > DAY_NS

    def _run(self, batch: Batch) -> RunId:
        """The run that the batch belongs to.  An agent's batch belongs to none."""
        if batch.origin.role == "agent":
            return _NO_RUN
        if self._run_of is None:
            rows = self._store.processes()
            self._run_of = {row.journal: row.run for row in rows if row.role != "agent"}
        if batch.definitions:
            named = [d.run for d in batch.definitions if isinstance(d, RunScope)]
            if named:
                self._run_of[batch.origin.journal] = named[-1]
        return self._run_of.get(batch.origin.journal, _NO_RUN)

    def _project(self, batch: Batch, run: RunId) -> str:
        """The project of a new run, as the batch names it."""
        if not run or not self._by_project:
            return ""
        found = self.projects.of(run)
        if found is None:
            found = next((scope.group for scope in named(batch) if scope.run == run), "")
        return found

    def _new_runs(self, batch: Batch) -> int:
        named = {d.run for d in batch.definitions if isinstance(d, RunScope)}
        return sum(1 for run in named if run and not self._store.knows_run(run))

    def _new_series(self, batch: Batch) -> int:
        named = [d.id for d in batch.definitions if isinstance(d, Series)]
        return self._store.unknown_series(batch.origin.journal, named) if named else 0


def size_of(batch: Batch, told: int = 0) -> int:
    """In bytes: as a message (`told`), or in the journal."""
    if told:
        return told
    same = batch.start >> 32 == batch.end >> 32
    return max(batch.end - batch.start if same else batch.end & 0xFFFFFFFF, 0)


def _words(who: str, have: int, what: str, most: int, setting: str, when: str = "") -> str:
    return (
        f"{who} has sent {have:,} {what}{when}, and {most:,} are allowed ({setting} in the "
        "head's settings): the rest stays on its node"
    )
