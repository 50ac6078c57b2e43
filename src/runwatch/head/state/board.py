"""All runs as the list shows them, in memory: a request costs what changed since, not all runs.

The writer's thread says which journals grew (`stored`).  A request reads the runs of those journals
again, and the running ones: silence alone can change a run's state.  With `told=False` nobody calls
`stored`, and everything is read again each time.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from runwatch.errors import NotFound, RunwatchError
from runwatch.exports.prometheus import RunStanding
from runwatch.head.reading import Card, Reading
from runwatch.record import Batch, Event, JournalId, RunId, RunScope
from runwatch.record.life import Config, Fork, Joined, RunEnd, RunStart
from runwatch.record.node import ProcessExit
from runwatch.record.pods import PodTold
from runwatch.rows import EventRow
from runwatch.store.asking import Shared, look
from runwatch.store.store import OF_EACH
from runwatch.views.configs import merge_configs
from runwatch.views.pods import Pods
from runwatch.views.runs import RunSummary, process_states, runs_of
from runwatch.views.totals import total_steps

_OWN_WORDS: Final = (RunStart.KIND, RunEnd.KIND, Fork.KIND, Joined.KIND)
MOST_CONFIG_BYTES: Final = 32 << 20
"""Of all runs together, the newest first: who has more tells only of those how many steps are
planned."""
logger = logging.getLogger("runwatch.head")


@dataclass(slots=True)
class _News:
    """What was stored since the last request."""

    moved: set[JournalId] = field(default_factory=set)
    spoke: set[JournalId] = field(default_factory=set)
    """Began or ended a run …"""
    configured: set[JournalId] = field(default_factory=set)
    """… or told of its configuration."""
    exits: list[EventRow] = field(default_factory=list)
    pods: set[RunId] = field(default_factory=set)
    """Runs of whose pods a cluster told …"""
    tellers: set[JournalId] = field(default_factory=set)
    """… or, where it is not known which, the journals that say it."""


@dataclass(frozen=True, slots=True)
class GoodputNote:
    """A run's goodput, as last asked for."""

    time_ns: int
    share: float | None
    spent: dict[str, float]
    """Shares of the counted time, by class."""


class RunBoard:
    def __init__(self, reading: Reading, *, told: bool = False) -> None:
        self._reading = reading
        self._told = told
        self._shared = Shared()
        self._lock = self._shared.lock
        self._epoch = secrets.token_hex(4)
        self._version = 0
        self._begun = False
        self._runs_of: dict[JournalId, tuple[RunId, ...]] = {}
        self._words: dict[RunId, list[EventRow]] = {}
        self._exits: dict[JournalId, list[EventRow]] = defaultdict(list)
        self._pods: dict[RunId, list[EventRow]] = {}
        self._totals: dict[RunId, int | None] = {}
        self._summaries: dict[RunId, RunSummary] = {}
        self._in_order: list[RunSummary] | None = None
        self._told_last: list[RunSummary] = []
        self._cards: dict[RunId, tuple[RunSummary, Card]] = {}
        """With the summary that each was made of."""
        self._notes: dict[RunId, GoodputNote] = {}
        # What the writer's thread sees, too.
        self._gate = threading.Lock()
        self._news = _News()
        self._scopes: dict[tuple[JournalId, int], RunId] = {}
        """The runs that agents' journals named: one that tells of pods does so of many runs."""

    # ── in the writer's thread ────────────────────────────────────────────────────────────────

    def stored(self, batches: Sequence[Batch]) -> None:
        with self._gate:
            for batch in batches:
                if batch.origin.role == "agent":
                    self._learn_scopes(batch)
                if not _is_of_pods(batch):
                    self._news.moved.add(batch.origin.journal)
                for event in batch.events:
                    if event.kind in _OWN_WORDS:
                        self._news.spoke.add(batch.origin.journal)
                    elif event.kind == Config.KIND:
                        self._news.configured.add(batch.origin.journal)
                    elif event.kind == ProcessExit.KIND:
                        self._news.exits.append(_row(batch, event))
                    elif event.kind == PodTold.KIND:
                        self._hear_of_pod(batch.origin.journal, event.scope)

    def _learn_scopes(self, batch: Batch) -> None:
        for definition in batch.definitions:
            if isinstance(definition, RunScope):
                self._scopes[batch.origin.journal, definition.id] = definition.run

    def _hear_of_pod(self, journal: JournalId, scope: int) -> None:
        run = self._scopes.get((journal, scope))
        if run is None:  # it named the run before this head began
            self._news.tellers.add(journal)
        else:
            self._news.pods.add(run)

    def warm(self) -> None:
        """Read all there is, so that the first who asks need not wait; in a thread of its own."""
        try:
            self.summaries()
        except RunwatchError as error:  # whoever asks will be told
            logger.warning("the list of runs: %s", error)

    # ── for whoever asks ──────────────────────────────────────────────────────────────────────

    def summaries(self) -> tuple[list[RunSummary], str]:
        """Every run, newest first, without its last step; and a name for exactly this state."""
        with self._caught_up():
            if self._in_order is None:
                found = self._summaries.values()
                self._in_order = sorted(found, key=lambda run: (-run.started_ns, run.run))
            listed = self._reading.told(self._in_order)
            if listed != self._told_last:
                self._told_last = listed
                self._version += 1
            return listed, f"{self._epoch}-{self._version}"

    def cards(self, summaries: Sequence[RunSummary]) -> list[Card]:
        """The same runs, with all that the list shows."""
        with self._shared.held():
            return self._described(summaries)

    def card(self, run: RunId) -> Card:
        """Of a run that there is."""
        with self._caught_up():
            if run not in self._summaries:
                raise NotFound(f"there is no run {run!r} any more")
            return self._described(self._reading.told([self._summaries[run]], run))[0]

    def _described(self, summaries: Sequence[RunSummary]) -> list[Card]:
        known = self._cards if self._told else {}
        # An ended run is judged differently from one that goes on.
        missing = [
            summary
            for summary in summaries
            if summary.run not in known or known[summary.run][0].state != summary.state
        ]
        for summary, card in zip(missing, self._reading.cards(missing), strict=True):
            known[summary.run] = summary, card
        for summary in summaries:
            held, card = known[summary.run]
            if held is not summary:
                newer = replace(summary, last_step=card.summary.last_step)
                known[summary.run] = summary, replace(card, summary=newer)
        return [known[summary.run][1] for summary in summaries]

    def standings(self) -> list[RunStanding]:
        """How all runs stand, for a scrape; warnings are told of those that go on."""
        summaries, _ = self.summaries()
        going = self.cards([summary for summary in summaries if summary.state == "running"])
        codes = {card.summary.run: [each.code for each in card.warnings] for card in going}
        return [RunStanding(s.run, s.shown_state, codes.get(s.run, ())) for s in summaries]

    def forget(self, run: RunId) -> None:
        """A run was deleted or restored: read everything again at the next request."""
        with self._lock:
            self._begun = False
            self._cards.pop(run, None)
            self._notes.pop(run, None)
            self._version += 1

    def total_steps(self, run: RunId) -> int | None:
        with self._lock:
            return self._totals.get(run)

    def note(self, run: RunId, note: GoodputNote) -> None:
        """Keeps the goodput of an account that was just made, for the list."""
        with self._lock:
            if self._notes.get(run) != note:
                self._notes[run] = note
                self._version += 1

    def noted(self, run: RunId) -> GoodputNote | None:
        return self._notes.get(run)

    # ── catching up ───────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """The lock.  To catch up is for all who wait; what is made of it is each one's own."""
        with self._shared.held() as together:
            with together.asked():
                self._catch_up()
            look()
            yield

    def _catch_up(self) -> None:
        gone = self._reading.gone()  # before their last words are taken
        with self._gate:
            news, self._news = self._news, _News()
        is_whole = self._begun and self._told
        self._begun = False  # should it be given up half-way, or the store fail us
        if not is_whole:
            self._begin(gone)
        self._take(news)
        changed = self._of(news.moved) | self._of(map(_journal, news.exits)) | news.pods
        if changed:
            self._version += 1
        for run in changed:
            self._cards.pop(run, None)
        alive = self._reading.alive()
        going = {run for run, s in self._summaries.items() if s.state == "running"}
        # One that was taken for lost may be seen again.
        silent = {run for run, s in self._summaries.items() if s.state == "lost"}
        self._look(changed | going | (silent & self._of(alive)), alive, gone)
        self._begun = True

    def _begin(self, gone: Collection[JournalId]) -> None:
        """Read it all; what is stored meanwhile is news, and hearing it twice does no harm."""
        store = self._reading.store
        self._words, self._exits = defaultdict(list), defaultdict(list)
        self._pods = defaultdict(list)
        for row in store.events(None, kinds=[PodTold.KIND], of_each=OF_EACH):
            self._pods[row.run].append(row)
        for row in store.events(None, kinds=[ProcessExit.KIND], of_each=OF_EACH):
            self._exits[_journal(row)].append(row)
        for row in store.events(None, kinds=list(_OWN_WORDS), of_each=OF_EACH):
            self._words[row.run].append(row)
        configs: dict[RunId, list[EventRow]] = defaultdict(list)
        found = store.events(
            None,
            kinds=[Config.KIND],
            of_each=OF_EACH,
            newest_first=True,
            most_bytes=MOST_CONFIG_BYTES,
        )
        for row in reversed(found):
            configs[row.run].append(row)
        self._totals = {run: _total(events) for run, events in configs.items()}
        self._know_journals()
        self._summaries, self._in_order = {}, None
        self._look(self._of(self._runs_of), self._reading.alive(), gone)

    def _know_journals(self) -> None:
        found: dict[JournalId, list[RunId]] = defaultdict(list)
        for row in self._reading.store.processes():
            found[row.journal].append(row.run)
        self._runs_of = {journal: tuple(dict.fromkeys(runs)) for journal, runs in found.items()}

    def _take(self, news: _News) -> None:
        store = self._reading.store
        # A journal may join a run at any time, and says so by a word of its own.
        if news.spoke or not news.moved <= self._runs_of.keys():
            self._know_journals()
        for run in self._of(news.spoke):
            self._words[run] = store.events(run, kinds=list(_OWN_WORDS), of_each=OF_EACH)
        for run in self._of(news.configured):
            self._totals[run] = _total(store.events(run, kinds=[Config.KIND], of_each=OF_EACH))
        for row in news.exits:
            self._exits[_journal(row)].append(row)
        for journal in news.tellers:
            news.pods |= store.runs_of(journal) - {RunId("")}
        for run in news.pods:
            self._pods[run] = store.events(run, kinds=[PodTold.KIND], of_each=OF_EACH)

    def _of(self, journals: Iterable[JournalId]) -> set[RunId]:
        return {run for journal in journals for run in self._runs_of.get(journal, ()) if run}

    def _look(
        self, runs: Iterable[RunId], alive: Collection[JournalId], gone: Collection[JournalId]
    ) -> None:
        reading, now_ns = self._reading, self._reading.clock.wall_ns()
        for run in runs:
            look()
            processes = reading.store.processes(run)
            life = list(self._words.get(run, ()))
            for row in processes:
                life += self._exits.get(row.journal, ())
            pods = Pods(self._pods.get(run, ()))
            states = process_states(
                processes, life, now_ns, reading.window_s, alive=alive, gone=gone, pods=pods
            )
            if not states and self._summaries.pop(run, None) is not None:
                self._in_order = None  # its processes went over to another run
            for summary in runs_of(states, {}, pods):
                if self._summaries.get(run) != summary:
                    self._summaries[run], self._in_order = summary, None


def _is_of_pods(batch: Batch) -> bool:
    """Who tells of pods does so of many runs; only those that it tells of now have changed."""
    nothing_else = not len(batch.points) and not len(batch.spans)
    return nothing_else and all(event.kind == PodTold.KIND for event in batch.events)


def _row(batch: Batch, event: Event) -> EventRow:
    origin, time_ns = batch.origin, event.time_ns
    return EventRow(
        origin.journal, RunId(""), origin.host, 0, time_ns, None, event.kind, event.body
    )


def _journal(row: EventRow) -> JournalId:
    return JournalId(ProcessExit.of(row.body).journal)


def _total(events: Sequence[EventRow]) -> int | None:
    return total_steps(merge_configs(events).user)
