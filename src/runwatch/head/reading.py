"""Fetches the rows that a view needs and hands them in; the one way from a store to an answer.

The HTTP routes, the live stream and the command line ask here, so their numbers agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound
from runwatch.record import JournalId, RunId
from runwatch.record.stacks import Incident
from runwatch.rows import EventRow, Latest, SeriesRow
from runwatch.store.asking import heeded
from runwatch.store.store import OF_EACH, Store
from runwatch.views.configs import Configs, merge_configs
from runwatch.views.devices import count_devices
from runwatch.views.goodput.figures import WITNESSES, Holding, holdings
from runwatch.views.incidents import incidents_of
from runwatch.views.life import FORK
from runwatch.views.runs import (
    ALIVE_WINDOW_SECONDS,
    ProcessState,
    RunSummary,
    attempts,
    process_states,
    project_of,
    runs_of,
)
from runwatch.views.series import AttemptOf, Headline, Question, choose, headline
from runwatch.views.steps import last_steps

ASIDE: Final = "journal_aside"
MOST_ASIDE: Final = 1_000
INCIDENT_SECONDS: Final = 3600.0
FEW_RUNS: Final = 200
"""For so many it is quicker to ask for the series of each than for all there are."""


class Ambiguous(NotFound):
    """Several runs have the name; `choices` are their ids, newest first."""

    def __init__(self, name: str, choices: Sequence[str]) -> None:
        self.choices = list(choices)
        super().__init__(
            f"{len(choices)} runs are named {name!r}; ask for one by its id: {', '.join(choices)}"
        )


@dataclass(frozen=True, slots=True)
class Card:
    """A run and its one number, as a list shows it."""

    summary: RunSummary
    headline: Headline | None
    devices: int = 0
    """How many accelerators were seen to be its."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A journal that somebody set aside: this head, or the agent of a host."""

    host: str
    journal: str
    why: str
    version: str
    since_ns: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How it goes with taking data in; the store knows the rest."""

    problem: str = ""
    aside: Sequence[LeftAlone] = ()
    """By this head itself."""
    records_refused: int = 0
    notes: Sequence[str] = ()
    limit: Callable[[RunId], str] = lambda run: ""
    """Which limit a run has reached, in words."""


class Reading:
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = system_clock,
        alive_window_s: float = ALIVE_WINDOW_SECONDS,
        alive: Callable[[], Collection[JournalId]] = tuple,
        gone: Callable[[], Collection[JournalId]] = tuple,
        clock_offsets: Callable[[], Mapping[str, int]] = dict,
        standing: Callable[[], Standing] = Standing,
    ) -> None:
        """`clock_offsets`: how far each host's clock is ahead of ours, as its agent found."""
        self.store = store
        self.clock_offsets = clock_offsets
        self.clock = clock
        self.window_s = alive_window_s
        self.alive = alive
        self.gone = gone
        self.standing = standing

    def aside(self) -> list[LeftAlone]:
        """Journals that are left alone, here or on a node, as was said of each last."""
        found = {(each.host, each.journal): each for each in self.standing().aside}
        told = self.store.events(None, kinds=[ASIDE], limit=MOST_ASIDE, newest_first=True)
        agents = {row.journal for row in self.store.processes() if row.role == "agent"}
        for row in (row for row in told if row.journal in agents):
            body, key = row.body, (row.host, str(row.body.get("journal")))
            why, version = str(body.get("why") or ""), str(body.get("version") or "")
            state = LeftAlone(*key, why, version, row.time_ns)
            if body.get("state") == "back":
                state = replace(state, why="")
            found.setdefault(key, state)
        return sorted((a for a in found.values() if a.why), key=lambda a: (a.host, a.journal))

    # ── runs ───────────────────────────────────────────────────────────────────────────────────

    def run(self, key: str, sees: Callable[[str], bool] | None = None) -> RunId:
        """The id of the run that has this id, or else alone has this name, of those that `sees`
        lets be seen: there are no others then.  A run has a process: of some only a forked child
        is known yet, or an agent that spoke of them."""
        of_id = self.store.processes(RunId(key)) if key and (sees is None or sees(key)) else ()
        if any(row.role == "process" for row in of_id):
            return RunId(key)
        named = {
            row.run: row.start_ns
            for row in self.store.processes()
            if row.run_name == key and row.run and row.role == "process"
        }
        if sees is not None:
            named = {run: start_ns for run, start_ns in named.items() if sees(run)}
        if len(named) > 1:
            raise Ambiguous(key, sorted(named, key=lambda run: -named[run])[:20])
        if not named:
            raise NotFound(f"there is no run with id or name {_short(key)}; /api/v1/runs lists all")
        return next(iter(named))

    def project(self, run: str) -> str:
        """Its group; empty if it names none, or if there is no such run."""
        return project_of(self.store.processes(RunId(run))) or "" if run else ""

    def processes(self, run: RunId | None = None) -> list[ProcessState]:
        now_ns = self.clock.wall_ns()
        processes = self.store.processes(run)
        if run is not None and not processes:
            return []
        gone = self.gone()  # before their last words are read
        about = None if run is None else list({row.journal for row in processes})
        life = self._life(run, about)
        return process_states(processes, life, now_ns, self.window_s, alive=self.alive(), gone=gone)

    def summaries(self) -> list[RunSummary]:
        """Every run, newest first, without its last step: cheap enough to ask often."""
        return self.told(runs_of(self.processes(), {}))

    def cards(self, summaries: Sequence[RunSummary]) -> list[Card]:
        """The same runs with last step and headline."""
        if len(summaries) <= FEW_RUNS:
            series = [
                row for summary in heeded(summaries) for row in self.store.series(summary.run)
            ]
        else:
            wanted = {summary.run for summary in summaries}
            series = [row for row in self.store.series() if row.run in wanted] if wanted else []
        latest = self.latest(series)
        steps = last_steps(heeded(series), latest)
        by_run: dict[RunId, list[SeriesRow]] = {}
        for row in heeded(series):
            by_run.setdefault(row.run, []).append(row)
        return [
            Card(
                replace(summary, last_step=steps.get(summary.run)),
                headline(by_run.get(summary.run, ()), latest),
                count_devices(by_run.get(summary.run, ())),
            )
            for summary in heeded(summaries)
        ]

    def card(self, run: RunId) -> Card:
        return self.cards(self.told(runs_of(self.processes(run), {}), run))[0]

    def told(self, summaries: list[RunSummary], run: RunId | None = None) -> list[RunSummary]:
        """With what is known of those that stand still now."""
        if not any(summary.state == "running" for summary in summaries):
            return summaries
        # One that stays open is told anew every few minutes.
        since_ns = self.clock.wall_ns() - int(INCIDENT_SECONDS * 1e9)
        events = self.store.events(run, kinds=[Incident.KIND], start_ns=since_ns, of_each=OF_EACH)
        newest_last = reversed(incidents_of(events))
        still = {name: each for name, each in newest_last if each.is_open and each.is_alarm}
        return [
            replace(summary, stalled=True, reason=f"stalled: {still[summary.run].text}")
            if summary.state == "running" and summary.run in still
            else summary
            for summary in summaries
        ]

    def _life(self, run: RunId | None, about: Sequence[JournalId] | None) -> list[EventRow]:
        """What processes said of themselves, and what agents (under no run) said of them."""
        events = self.store.events(run, kinds=["run_start", "run_end", FORK], of_each=OF_EACH)
        others = ["process_exit", "job_queued"]
        return events + self.store.events(None, kinds=others, about=about, of_each=OF_EACH)

    # ── the rest ───────────────────────────────────────────────────────────────────────────────

    def series(self, run: RunId, question: Question, attempts: AttemptOf) -> list[SeriesRow]:
        """Those that answer the question.  Asked by metric, a store need not look at all."""
        if not question.metrics:
            return choose(self.store.series(run), question, attempts)
        named = (self.store.series(run, metric=metric) for metric in set(question.metrics))
        return choose(chain.from_iterable(named), question, attempts)

    def holdings(self, run: RunId, states: Iterable[ProcessState]) -> list[Holding]:
        """How many devices each attempt of the run held."""
        named = (self.store.series(run, metric=metric) for metric in WITNESSES)
        return holdings(states, chain.from_iterable(named))

    def attempts(self, run: RunId) -> AttemptOf:
        return attempts(self.store.processes(run))

    def configs(self, run: RunId) -> Configs:
        return merge_configs(self.store.events(run, kinds=["config"], of_each=10 * OF_EACH))

    def latest(self, series: Iterable[SeriesRow]) -> dict[int, Latest]:
        return {point.series: point for point in self.store.latest([s.series for s in series])}


def _short(key: str) -> str:
    return repr(key if len(key) <= 80 else key[:80] + "…")
