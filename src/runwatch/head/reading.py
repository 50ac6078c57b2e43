"""Fetches the rows that a view needs and hands them in; the one way from a store to an answer.

The HTTP routes, the live stream and the command line ask here, so their numbers agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound
from runwatch.head.forward.report import Report
from runwatch.head.tails import Tails
from runwatch.likeness import either, near
from runwatch.record import JournalId, RunId
from runwatch.record.life import Fork, Joined, RunEnd, RunStart
from runwatch.record.losses import JournalAside
from runwatch.record.node import JobQueued, ProcessExit
from runwatch.record.pods import PodTold
from runwatch.record.stacks import Incident
from runwatch.rows import EventRow, Latest, ProcessRow, SeriesRow
from runwatch.store.asking import heeded
from runwatch.store.store import OF_EACH, Store
from runwatch.views.attempts import attempts
from runwatch.views.configs import Configs, merge_configs
from runwatch.views.devices import count_devices
from runwatch.views.divergence import Divergence, divergences, is_loss
from runwatch.views.goodput.figures import WITNESSES, Holding, holdings
from runwatch.views.goodput.waiting import down_since
from runwatch.views.incidents import incidents_of
from runwatch.views.pods import NO_PODS, Pod, Pods
from runwatch.views.runs import (
    ALIVE_WINDOW_SECONDS,
    ProcessState,
    RunSummary,
    process_states,
    project_of,
    runs_of,
)
from runwatch.views.series import AttemptOf, Headline, Question, attempt_of, choose, headline
from runwatch.views.steps import last_steps
from runwatch.views.warnings import RunWarning, of_losses

MOST_ASIDE: Final = 1_000
INCIDENT_SECONDS: Final = 3600.0
PARTAKERS: Final = ("process", "launcher")
"""The roles that make a run one."""
LONGEST_GUESSED: Final = 200
FEW_RUNS: Final = 200
"""Up to this many runs, asking for the series of each is quicker than asking for all series."""


class Ambiguous(NotFound):
    """Several runs have the name; `choices` are their ids, newest first."""

    def __init__(self, name: str, choices: Sequence[str]) -> None:
        self.choices = list(choices)
        super().__init__(
            f"{len(choices)} runs are named {name!r}; ask for one by its id: {', '.join(choices)}"
        )


class Unknown(NotFound):
    """No run has the name; `choices` are the ids of runs that may be meant."""

    def __init__(self, name: str, near: Mapping[str, str]) -> None:
        self.choices = list(dict.fromkeys(near.values()))
        guess = f": did you mean {either(list(near))}?" if near else ";"
        super().__init__(
            f"there is no run with id or name {_short(name)}{guess} /api/v1/runs lists all"
        )


@dataclass(frozen=True, slots=True)
class Card:
    """A run and its one number, as a list shows it."""

    summary: RunSummary
    headline: Headline | None
    devices: int = 0
    """How many accelerators the run holds."""
    warnings: tuple[RunWarning, ...] = ()


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
    """How well data is taken in."""

    problem: str = ""
    aside: Sequence[LeftAlone] = ()
    """Records that this head refused."""
    records_refused: int = 0
    notes: Sequence[str] = ()
    limit: Callable[[RunId], str] = lambda run: ""
    """Which limit a run has reached, in words."""
    forwards: Sequence[Report] = ()
    """How what is sent on to other services fares."""


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
        self._tails = Tails(store)

    def aside(self) -> list[LeftAlone]:
        """Journals that this head or an agent leaves alone, by the newest word about each."""
        found = {(each.host, each.journal): each for each in self.standing().aside}
        rows = self.store.events(
            None, kinds=[JournalAside.KIND], limit=MOST_ASIDE, newest_first=True
        )
        agents = {row.journal for row in self.store.processes() if row.role == "agent"}
        for row in (row for row in rows if row.journal in agents):
            told = JournalAside.of(row.body)
            why = "" if told.state == JournalAside.BACK else told.why
            left = LeftAlone(row.host, told.journal, why, told.version, row.time_ns)
            found.setdefault((row.host, told.journal), left)
        return sorted((a for a in found.values() if a.why), key=lambda a: (a.host, a.journal))

    # ── runs ───────────────────────────────────────────────────────────────────────────────────

    def run(self, key: str, sees: Callable[[str], bool] | None = None) -> RunId:
        """The run with this id, or else the only run with this name.  Runs that `sees` does not
        let through do not exist for the caller.  A run has a process; of some runs only a forked
        child is known yet, or what an agent told."""
        of_id = self.store.processes(RunId(key)) if key and (sees is None or sees(key)) else ()
        if any(row.role in PARTAKERS for row in of_id):
            heir = self._heir(RunId(key), of_id)
            if heir is None:
                return RunId(key)
            if self.store.processes(heir) and (sees is None or sees(heir)):
                return heir
        named = {
            row.run: row.start_ns
            for row in self.store.processes()
            if row.run_name == key and row.run and row.role in PARTAKERS
        }
        if sees is not None:
            named = {run: start_ns for run, start_ns in named.items() if sees(run)}
        named = {run: start_ns for run, start_ns in named.items() if self._heir(run) is None}
        if len(named) > 1:
            raise Ambiguous(key, sorted(named, key=lambda run: -named[run])[:20])
        if not named:
            raise Unknown(key, self._near(key, sees))
        return next(iter(named))

    def _near(self, key: str, sees: Callable[[str], bool] | None) -> dict[str, str]:
        """Names and ids that are like this one, each with the run's id; as the caller may see."""
        known: dict[str, str] = {}
        for row in self.store.processes():
            if row.run and row.role in PARTAKERS:
                known.setdefault(row.run, row.run)
                known.setdefault(row.run_name or row.run, row.run)
        found = near(
            key[:LONGEST_GUESSED], [n for n, run in known.items() if not sees or sees(run)]
        )
        return {name: known[name] for name in found}

    def _heir(self, run: RunId, rows: Sequence[ProcessRow] | None = None) -> RunId | None:
        """The run that all processes of this one went over to."""
        told = self.store.events(run, kinds=[Joined.KIND], of_each=OF_EACH)
        if not told:
            return None
        rows = self.store.processes(run) if rows is None else rows
        left = {event.journal: Joined.of(event.body).run for event in told}
        if any(row.role in PARTAKERS and row.journal not in left for row in rows):
            return None
        return RunId(next(reversed(left.values())))

    def project(self, run: str) -> str:
        """The run's group; empty if it has none, or if there is no such run."""
        return project_of(self.store.processes(RunId(run))) or "" if run else ""

    def processes(self, run: RunId | None = None) -> list[ProcessState]:
        return self.processes_and_pods(run)[0]

    def processes_and_pods(self, run: RunId | None) -> tuple[list[ProcessState], Pods]:
        now_ns = self.clock.wall_ns()
        processes = self.store.processes(run)
        if run is not None and not processes:
            return [], NO_PODS
        gone = self.gone()  # ask before the last words are read
        about = None if run is None else list({row.journal for row in processes})
        life = self._life(run, about)
        pods = Pods(event for event in life if event.kind == PodTold.KIND)
        states = process_states(
            processes, life, now_ns, self.window_s, alive=self.alive(), gone=gone, pods=pods
        )
        return states, pods

    def pods(self, run: RunId, states: Iterable[ProcessState]) -> Pods:
        """What a cluster told of the pods of the run; `states` are of its processes."""
        if not any(state.pod_uid for state in states):
            return NO_PODS
        return Pods(self.store.events(run, kinds=[PodTold.KIND], of_each=OF_EACH))

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
            self._card(
                replace(summary, last_step=steps.get(summary.run)),
                by_run.get(summary.run, ()),
                latest,
            )
            for summary in heeded(summaries)
        ]

    def _card(
        self, summary: RunSummary, series: Sequence[SeriesRow], latest: Mapping[int, Latest]
    ) -> Card:
        diverged = self._diverged(summary, series, latest).get(summary.attempts, ())
        warnings = of_losses(diverged)
        return Card(summary, headline(series, latest), count_devices(series), tuple(warnings))

    def diverged(self, summary: RunSummary) -> dict[int, list[Divergence]]:
        """The losses that ended as NaN or infinite, by attempt."""
        series = [row for row in self.store.series(summary.run) if is_loss(row.metric)]
        return self._diverged(summary, series, self.latest(series))

    def _diverged(
        self, summary: RunSummary, series: Iterable[SeriesRow], latest: Mapping[int, Latest]
    ) -> dict[int, list[Divergence]]:
        known = [row for row in series if row.series in latest]
        # Nearly all runs are well, and a list has thousands of series.
        if not any(
            not math.isfinite(latest[row.series].value) and is_loss(row.metric) for row in known
        ):
            return {}
        losses = [row for row in known if is_loss(row.metric)]
        numbers = self.attempts(summary.run)
        # A rank that came again within an attempt has several series of a metric.
        newest: dict[tuple[int, str, int], SeriesRow] = {}
        for row in sorted(losses, key=lambda row: latest[row.series].time_ns):
            newest[attempt_of(row, numbers) or 0, row.metric, row.rank] = row
        found: dict[int, list[Divergence]] = {}
        for number in {attempt for attempt, _, _ in newest}:
            rows = [row for (attempt, _, _), row in newest.items() if attempt == number]
            ranks: dict[str, set[int]] = {}
            for row in rows:
                ranks.setdefault(row.metric, set()).add(row.rank)
            going = summary.state == "running" and number == summary.attempts
            found[number] = divergences(self._tails.of(rows, latest), ranks, going=going)
        return found

    def card(self, run: RunId) -> Card:
        return self.card_of(run, self.processes(run))

    def card_of(self, run: RunId, states: Sequence[ProcessState]) -> Card:
        """`states`: of its processes, as just read."""
        return self.cards([self.summary(run, states)])[0]

    def summary(self, run: RunId, states: Sequence[ProcessState]) -> RunSummary:
        """Without its last step."""
        (summary,) = self.told(runs_of(states, {}, self.pods(run, states)), run)
        return summary

    def told(self, summaries: list[RunSummary], run: RunId | None = None) -> list[RunSummary]:
        """With what is known of runs that stand still now."""
        if not any(summary.state == "running" for summary in summaries):
            return summaries
        # An open incident is recorded again every few minutes.
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
        """What processes said of themselves, and a cluster of their pods; and what agents (under no
        run) said of them."""
        own = [RunStart.KIND, RunEnd.KIND, Fork.KIND, Joined.KIND, PodTold.KIND]
        events = self.store.events(run, kinds=own, of_each=OF_EACH)
        others = [ProcessExit.KIND, JobQueued.KIND]
        return events + self.store.events(None, kinds=others, about=about, of_each=OF_EACH)

    # ── the rest ───────────────────────────────────────────────────────────────────────────────

    def series(self, run: RunId, question: Question, attempts: AttemptOf) -> list[SeriesRow]:
        """The series that answer the question.  Asked by metric, a store reads only some."""
        if not question.metrics:
            return choose(self.store.series(run), question, attempts)
        named = (self.store.series(run, metric=metric) for metric in set(question.metrics))
        return choose(chain.from_iterable(named), question, attempts)

    def holdings(self, run: RunId, states: Sequence[ProcessState]) -> list[Holding]:
        """How many devices each attempt of the run held."""
        named = (self.store.series(run, metric=metric) for metric in WITNESSES)
        return holdings(states, chain.from_iterable(named), self._coming(run, states))

    def _coming(self, run: RunId, states: Sequence[ProcessState]) -> list[Pod]:
        """The pods that are there to go on with the run, if it is down."""
        since_ns = down_since(states)
        known = {state.pod_uid for state in states}
        return [] if since_ns is None else self.pods(run, states).coming(since_ns, known)

    def attempts(self, run: RunId) -> AttemptOf:
        return attempts(self.store.processes(run))

    def configs(self, run: RunId) -> Configs:
        return merge_configs(self.store.events(run, kinds=["config"], of_each=10 * OF_EACH))

    def latest(self, series: Iterable[SeriesRow]) -> dict[int, Latest]:
        return {point.series: point for point in self.store.latest([s.series for s in series])}


def _short(key: str) -> str:
    return repr(key if len(key) <= 80 else key[:80] + "…")
