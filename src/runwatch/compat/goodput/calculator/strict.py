"""The strict account of a job, beside the original's figures: `calculator.get_account()`.

From journals it is what `runwatch goodput` shows: steps and spans of all ranks, and how processes
ended.  For a back end that the caller passes in, it is made of the entries there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, Protocol

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.log.following import Journals, is_of_job
from runwatch.compat.goodput.log.reading import stretches
from runwatch.compat.goodput.log.remote import HeadLog, head_of, named_head, run_names
from runwatch.entries import STEP_START
from runwatch.record import Batch, JournalId, RunId, RunScope
from runwatch.record.life import RunStart
from runwatch.rows import EventRow, ProcessRow
from runwatch.sdk.identity import display_name
from runwatch.settings import runwatch_dir
from runwatch.ship.tail import Tail
from runwatch.views.attempts import attempts
from runwatch.views.goodput.account import Account, Goodput, Range
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import Diary, Scribe, nanoseconds
from runwatch.views.goodput.ledger import Ledger, Stale
from runwatch.views.goodput.waiting import machines_of
from runwatch.views.life import LIFE_KINDS
from runwatch.views.pods import NO_PODS
from runwatch.views.runs import process_states, ranks_of

STRETCH: Final = 10_000
MANY_STEPS: Final = 32
"""At least so many steps without other entries between them are added at once."""
_KINDS: Final = ("custom_badput_event_type", "elastic_wait_event_type")


Read = Callable[[Any], tuple[Sequence[Mapping[str, Any]], Any]]
"""Entries behind a cursor (None: all of them), and the cursor behind those; None if there are no
cursors."""


class AccountSource(Protocol):
    """Where an account can be had."""

    def account(
        self, now_ns: int, since_ns: int | None, until_ns: int | None, exclude: Iterable[Range]
    ) -> Account | None: ...


def account_of(job_name: str, read: Read | None) -> AccountSource:
    """From the caller's own back end if `read` is given, else from the head or the journals."""
    if read is not None:
        return EntryAccount(read)
    head = named_head()
    root = runwatch_dir()
    if head is None and not _has_journals(root, job_name):
        head = head_of(root)
    if head is not None:
        return HeadAccount(*head, run_names(job_name))
    return JournalAccount(root, display_name(job_name))


def _has_journals(root: Path, job_name: str) -> bool:
    journals = Journals(root, is_of_job(job_name), "")
    try:
        return bool(journals.discover()) and not journals.is_cut
    finally:
        journals.close()


class _Folded:
    def goodput(self, now_ns: int) -> Goodput | None:
        raise NotImplementedError

    def account(
        self, now_ns: int, since_ns: int | None, until_ns: int | None, exclude: Iterable[Range]
    ) -> Account | None:
        goodput = self.goodput(now_ns)
        return None if goodput is None else goodput.account(since_ns, until_ns, exclude=exclude)


# ── entries ────────────────────────────────────────────────────────────────────────────────────

_Fact = tuple[int, str, str, int, Mapping[str, Any] | None]
"""Time, time field, type, step, or the whole entry if it is a checkpoint's."""


class EntryAccount(_Folded):
    """Made of entries in order of their own times; one that comes late is put in its place."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._cursor: Any = None
        self._begin()

    def goodput(self, now_ns: int) -> Goodput | None:
        if self._cursor is None:
            self._begin()
        entries, cursor = self._read(self._cursor)
        held = [entries]
        del entries
        if not self._told_in_order(held):
            everything, cursor = self._read(None)
            self._begin()
            in_order = _in_order(everything)
            while facts := list(islice(in_order, STRETCH)):
                self._tell(facts)
        if cursor is not None and cursor != (None, None):
            self._cursor = cursor
        self._ledger.settle()
        return draw_up(self._ledger, self._diary.lives(), now_ns)

    def _begin(self) -> None:
        self._ledger = Ledger(lenient=True)
        self._diary = Diary(self._ledger, "log", 1, 0)
        self._told_ns = 0

    def _told_in_order(self, held: list[Sequence[Mapping[str, Any]]]) -> bool:
        """A stretch at a time; False as soon as one is about earlier times than the one before."""
        for stretch in stretches(held, STRETCH):
            facts = _facts(stretch)
            if facts and facts[0][0] < self._told_ns:
                return False
            self._tell(facts)
        return True

    def _tell(self, facts: Sequence[_Fact]) -> None:
        if not facts:
            return
        for is_steps, some in groupby(facts, _is_step):
            run = list(some)
            if is_steps and len(run) >= MANY_STEPS:
                times = array("q", [fact[0] for fact in run])
                self._diary.steps(times, array("q", [fact[3] for fact in run]))
            else:
                self._tell_each(run)
        self._told_ns = facts[-1][0]

    def _tell_each(self, facts: Sequence[_Fact]) -> None:
        for time_ns, what, kind, step, checkpoint in facts:
            if checkpoint is None:
                self._diary.entry(what, kind, step, time_ns)
            else:
                self._diary.checkpoint(checkpoint)


def _facts(entries: Iterable[Mapping[str, Any]]) -> list[_Fact]:
    facts = [fact for entry in entries if (fact := _fact(entry)) is not None]
    facts.sort(key=_moment)
    return facts


def _in_order(entries: Sequence[Mapping[str, Any]]) -> Iterator[_Fact]:
    """The same as `_facts` of them all, but only those that are late are in memory together."""
    late: list[_Fact] = []
    for _ in _timely(entries, late.append):
        pass
    late.sort(key=_moment)
    # Of one time the timely come first, as in the log: a late one comes after a later time.
    return merge(_timely(entries), late, key=_moment)


def _timely(
    entries: Iterable[Mapping[str, Any]], pass_over: Callable[[_Fact], object] = bool
) -> Iterator[_Fact]:
    """Without entries whose time is earlier than that of one before them."""
    newest_ns = 0
    for entry in entries:
        fact = _fact(entry)
        if fact is None:
            continue
        if fact[0] < newest_ns:
            pass_over(fact)
        else:
            newest_ns = fact[0]
            yield fact


def _is_step(fact: _Fact) -> bool:
    return fact[1] == STEP_START


def _moment(fact: _Fact) -> int:
    return fact[0]


def _fact(entry: Mapping[str, Any]) -> _Fact | None:
    """None for an entry whose fields are missing or of the wrong type."""
    started = entry.get("step_start_time")
    if started is not None:
        step = entry.get("step_count")
        if isinstance(step, int) and isinstance(started, int | float):
            return nanoseconds(started), STEP_START, "", step, None
        return None
    if "event_type" in entry:
        return _checkpoint_fact(entry)
    for field, value in entry.items():
        if field.endswith(("_start_time", "_end_time")) and isinstance(value, int | float):
            kind = next((str(entry[name]) for name in _KINDS if name in entry), "")
            return nanoseconds(value), field, kind, 0, None
    return None


def _checkpoint_fact(entry: Mapping[str, Any]) -> _Fact | None:
    stem = "checkpoint_manager_blocking" if entry["event_type"] == "save" else "checkpoint_manager"
    start, took = entry.get(f"{stem}_start_time"), entry.get(f"{stem}_duration_secs")
    if not isinstance(start, int | float) or not isinstance(took, int | float):
        return None
    return nanoseconds(start + took), "", "", 0, entry


# ── journals ───────────────────────────────────────────────────────────────────────────────────


class JournalAccount(_Folded):
    """What a directory's journals hold of the newest run of a name, read as far as they go."""

    def __init__(self, root: Path, name: str, *, clock: Clock = system_clock) -> None:
        self._root = root
        self._name = name
        self._clock = clock
        self._started_ns: dict[JournalId, int] = {}
        """As the processes say.  A run may begin before its first record."""
        self._begin(None, Ledger())

    def close(self) -> None:
        self._tail.close()

    def goodput(self, now_ns: int) -> Goodput | None:
        while not self._is_read():
            self.close()
            self._begin(self._rows, Ledger(lenient=True))
        alive, gone = self._tail.alive(), self._tail.gone()
        rows, events = self._rows.values(), self._events
        states = process_states(rows, events, now_ns, alive=alive, gone=gone)
        lives = self._scribe.lives(ranks_of(states))
        return draw_up(self._scribe.ledger, lives, now_ns, machines_of(states, NO_PODS))

    def _begin(self, rows: dict[JournalId, ProcessRow] | None, ledger: Ledger) -> None:
        """From the beginning; `rows` are the processes that are known already."""
        self._tail = Tail(self._root, clock=self._clock)
        self._rows: dict[JournalId, ProcessRow] = rows or {}
        self._run = newest_run(self._rows.values())
        self._events: list[EventRow] = []
        self._numbers: dict[JournalId, int] = {}
        self._scribe = Scribe(self._run, ledger)
        self._enter()

    def _is_read(self) -> bool:
        """False if a process turned up that makes the account so far wrong."""
        try:
            self._read()
        except Stale:
            return False
        return True

    def _read(self) -> None:
        """A stretch of each journal in turn, so that they advance together."""
        self._tail.discover()
        while new := [batch for _, batch in self._tail.read()]:
            for batch in new:
                self._learn(batch)
            self._enter()
            for batch in new:
                self._scribe.batch(batch)
            self._scribe.ledger.settle()

    def _learn(self, batch: Batch) -> None:
        journal, host = batch.origin.journal, batch.origin.host
        for scope in batch.definitions:
            if isinstance(scope, RunScope) and scope.name == self._name:
                self._rows.setdefault(journal, _row(batch, scope))
        row = self._rows.get(journal)
        run = RunId("") if row is None else row.run
        if row is not None:
            self._rows[journal] = replace(row, last_ns=max(row.last_ns, _last_ns(batch)))
        self._events += [
            EventRow(journal, run, host, 0, e.time_ns, None, e.kind, e.body)
            for e in batch.events
            if e.kind in LIFE_KINDS
        ]
        for event in batch.events:
            if event.kind == RunStart.KIND:
                self._started_ns.setdefault(journal, event.time_ns)

    def _enter(self) -> None:
        if newest_run(self._rows.values()) != self._run:
            raise Stale("another run of this name has begun")
        rows = [row for row in self._rows.values() if row.run == self._run]
        numbers = {journal: number for (journal, _), number in attempts(rows).items()}
        if any(numbers.get(journal) != number for journal, number in self._numbers.items()):
            raise Stale("attempts are counted differently now")
        self._numbers = numbers
        for row in rows:
            if row.role == "process":
                start_ns = self._started_ns.get(row.journal, row.start_ns)
                self._scribe.enter(row.journal, numbers[row.journal], row.rank, start_ns)


# ── a head ─────────────────────────────────────────────────────────────────────────────────────


class HeadAccount:
    """As the head that has the run answers."""

    def __init__(self, address: str, token: str, runs: list[str]) -> None:
        self._head = HeadLog(address, token, runs, "")

    def account(
        self, now_ns: int, since_ns: int | None, until_ns: int | None, exclude: Iterable[Range]
    ) -> Account | None:
        asked = [("since", since_ns), ("until", until_ns)]
        pairs = [(name, str(ns)) for name, ns in asked if ns is not None]
        pairs += [("exclude", f"{start}/{end}") for start, end in exclude]
        answer = self._head.ask("goodput", pairs)
        if answer is None:
            return None
        spent = {item["name"]: int(item["ns"]) for item in answer["spent"]}
        return Account(int(answer["start_ns"]), int(answer["end_ns"]), spent)


def newest_run(rows: Iterable[ProcessRow]) -> RunId:
    newest = max(rows, key=lambda row: (row.start_ns, row.run), default=None)
    return RunId("") if newest is None else newest.run


def _row(batch: Batch, scope: RunScope) -> ProcessRow:
    origin = batch.origin
    return ProcessRow(
        origin.journal, scope.run, scope.name, origin.host, origin.pid, scope.rank,
        scope.world_size, scope.attempt_key, scope.group, origin.start_ns, origin.boot,
        origin.process_start_ticks, origin.role, origin.start_ns,
    )  # fmt: skip


def _last_ns(batch: Batch) -> int:
    columns = (batch.points.time_ns, batch.spans.time_ns)
    times = [column[-1] for column in columns if len(column)]
    return max([*times, *(event.time_ns for event in batch.events[-1:])], default=0)
