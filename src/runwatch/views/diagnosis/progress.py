"""Whether a run gets on: a fold over its ranks' steps and spans.

A rank's *progress* is the last edge of a step or a span that it reached.  How long it may take to
the next one is learned: a multiple of what its run's steps usually take, never below a floor, and
never below what healthy pauses of this run have taken.  Spans that are known to take long have
limits of their own.  The run stands still when every rank that takes steps is past its limit.  As
long as one of them has an excuse, the others may be waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from runwatch.record import BEGIN
from runwatch.views.diagnosis.usual import FEW, Usual
from runwatch.views.goodput.classes import SPAN_CLASSES
from runwatch.views.pace import PAUSE_MARGIN, Limits, nanoseconds, stall_ns
from runwatch.views.times import to_the_second

STEP: Final = "step"
DATA_LOADING: Final = "data_loading"
BACKGROUND: Final = "/background"
USEFUL: Final = "/useful"
"""The end of the names of spans that count as productive; people see the name without it."""
LONG_SPANS: Final = frozenset(SPAN_CLASSES) - {"data_loading"}
"""Spans during which a run is expected to take no step for a long time."""

MOST_NAMES: Final = 1000
"""So many span names are learned; some programs number theirs, and would fill the memory."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    time_ns: int
    ok: bool = True
    signal: str = ""
    code: int | None = None
    reason: str = ""

    @property
    def words(self) -> str:
        if self.signal:
            return f"was killed by {self.signal}"
        if self.code:
            return f"ended with exit code {self.code}"
        return "ended" if self.ok else "ended badly"

    @property
    def words_of_many(self) -> str:
        return self.words.replace("was killed", "were killed")


@dataclass(frozen=True, slots=True)
class Stall:
    """`run`: nobody gets on; `rank`: the others do."""

    kind: Literal["run", "rank"]
    ranks: tuple[int, ...]
    """The ranks that stand still, of those that are alive and heard from."""
    since_ns: int
    """When one of them last made progress."""
    limit_ns: int
    """How long a rank may take from one progress to the next."""
    usual_ns: int | None
    """What a step usually takes; None before it is known."""
    last_steps: Mapping[int, int]
    """The last completed step of every rank."""
    open_spans: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """By rank: the spans it is in, and since when."""
    ended: Mapping[int, Ended] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    """Ranks from which nothing at all comes."""

    @property
    def text(self) -> str:
        if self.kind == "run":
            words = "no rank has made progress"
        else:
            words = f"{ranks_in_words(self.ranks)} made no progress"
        words += f" since {to_the_second(self.since_ns)} (limit {self.limit_ns / 1e9:.0f} s"
        if self.usual_ns is not None:
            words += f", a step usually takes {seconds_in_words(self.usual_ns)}"
        return words + ")" + self._others()

    def _others(self) -> str:
        """What is known of ranks that ended or fell silent."""
        bad = [
            f"; rank {rank} {end.words}" for rank, end in sorted(self.ended.items()) if not end.ok
        ]
        words = "".join(bad[:3])
        words += f"; {len(bad) - 3} more ended badly" if len(bad) > 3 else ""
        if self.silent:
            words += f"; nothing is heard of {ranks_in_words(self.silent)}"
        return words

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "ranks": list(self.ranks),
            "since_ns": self.since_ns,
            "limit_seconds": self.limit_ns / 1e9,
            "usual_seconds": None if self.usual_ns is None else self.usual_ns / 1e9,
            "last_steps": {str(rank): step for rank, step in sorted(self.last_steps.items())},
            "silent": list(self.silent),
            "text": self.text,
        }


def ranks_in_words(ranks: Iterable[int]) -> str:
    """`rank 7`, `ranks 0–6, 9`."""
    ordered = sorted(set(ranks))
    stretches: list[list[int]] = []
    for rank in ordered:
        if stretches and stretches[-1][-1] == rank - 1:
            stretches[-1].append(rank)
        else:
            stretches.append([rank])
    words = []
    for each in stretches:
        words += [str(rank) for rank in each] if len(each) < 3 else [f"{each[0]}–{each[-1]}"]
    return ("rank " if len(ordered) == 1 else "ranks ") + ", ".join(words)


def seconds_in_words(nanoseconds: int) -> str:
    seconds = nanoseconds / 1e9
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


@dataclass(slots=True)
class _Open:
    name: str
    since_ns: int
    in_step: bool
    holds_steps: bool = False
    """A step was completed inside it: so it is no reason for a step to take long."""

    @property
    def excuses(self) -> bool:
        """Whether its time does not count as time of the step, from which limits are learned."""
        beside = not self.in_step and self.name != DATA_LOADING
        return not self.holds_steps and (beside or self.name in LONG_SPANS)


@dataclass(slots=True)
class _Rank:
    since_ns: int
    """Its last progress."""
    heard_ns: int
    """Its last sign of life."""
    beats: bool = False
    """Its agent reports that it is alive: then silence means something."""
    steps: int = 0
    last_step: int | None = None
    last_end_ns: int | None = None
    begun_ns: int | None = None
    """When the step that it is in began."""
    excused_ns: int = 0
    """The part of the time since its last step that spans with limits of their own took."""
    open: dict[Any, _Open] = field(default_factory=dict)
    ended: Ended | None = None
    spoke_ns: int = 0
    """When the program last recorded a value or a text."""

    def reached(self, time_ns: int) -> None:
        self.since_ns = max(self.since_ns, time_ns)
        self.heard_ns = max(self.heard_ns, time_ns)


class Progress:
    """How one run gets on.  All times are of one clock: the caller corrects those of each host."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._attempt = 0
        self._ranks: dict[int, _Rank] = {}
        self._steps = Usual()
        self._spans: dict[str, Usual] = {}

    # ── what is seen ──────────────────────────────────────────────────────────────────────────

    def saw_start(self, rank: int, time_ns: int, attempt: int = 0) -> None:
        """A process began.  A newer attempt takes the place of the one before it."""
        if attempt > self._attempt:
            self._attempt = attempt
            self._ranks.clear()
        if attempt == self._attempt:
            self._ranks[rank] = _Rank(time_ns, time_ns)

    def saw(self, rank: int, time_ns: int, *, heartbeat: bool = False) -> None:
        """Any sign of life, of the process or of the agent that sees it."""
        state = self._rank(rank, time_ns)
        state.heard_ns = max(state.heard_ns, time_ns)
        state.beats = state.beats or heartbeat

    def saw_word(self, rank: int, time_ns: int) -> None:
        """The program recorded a value or a text: no progress, but it is at work."""
        state = self._rank(rank, time_ns)
        state.spoke_ns = max(state.spoke_ns, time_ns)
        self.saw(rank, time_ns)

    def saw_step_begin(self, rank: int, time_ns: int) -> None:
        state = self._rank(rank, time_ns)
        state.begun_ns = time_ns
        state.reached(time_ns)

    def saw_step(self, rank: int, step: int | None, begin_ns: int, end_ns: int) -> None:
        """A completed step; one without a number is the next after the last."""
        state = self._rank(rank, begin_ns)
        number = step if step is not None else (state.last_step or 0) + 1
        if state.last_end_ns is not None:
            took_ns = end_ns - state.last_end_ns - state.excused_ns
        else:
            took_ns = end_ns - begin_ns - state.excused_ns
        state.steps += 1
        if state.steps > FEW:  # the first ones compile, allocate, fill caches: not usual
            self._steps.add((self._attempt, number), max(took_ns, 0))
        state.last_step, state.last_end_ns = number, end_ns
        state.excused_ns = 0
        if state.begun_ns is not None and state.begun_ns <= begin_ns:
            state.begun_ns = None  # else the next has begun at the same instant
        for span in state.open.values():
            span.holds_steps = span.holds_steps or span.since_ns <= begin_ns
        state.reached(end_ns)

    def saw_gap(self, rank: int) -> None:
        """Steps of a rank were left out: when its last one ended is not known."""
        state = self._ranks.get(rank)
        if state is not None:
            state.last_end_ns = None

    def saw_span(self, rank: int, name: str, edge: int, time_ns: int, span: Any = None) -> None:
        """The begin or end of any other span; `span` tells two of the same name apart."""
        state = self._rank(rank, time_ns)
        if name.endswith(BACKGROUND):  # beside the steps: nobody waits for it
            state.heard_ns = max(state.heard_ns, time_ns)
            return
        name = name.removesuffix(USEFUL)
        key = name if span is None else span
        if edge == BEGIN:
            state.open[key] = _Open(name, time_ns, state.begun_ns is not None)
        elif (opened := state.open.pop(key, None)) is not None:
            self._learn(state, opened, time_ns)
        state.reached(time_ns)

    def saw_elapsed(self, rank: int, name: str, end_ns: int, took_ns: int) -> None:
        """A stretch of time that was recorded only at its end."""
        state = self._rank(rank, end_ns)
        if name.endswith(BACKGROUND):
            return
        if name in LONG_SPANS:
            state.excused_ns += took_ns
        state.reached(end_ns)

    def saw_end(self, rank: int, ended: Ended) -> None:
        state = self._rank(rank, ended.time_ns)
        if state.ended is None or (state.ended.ok and not ended.ok):
            state.ended = ended
        state.heard_ns = max(state.heard_ns, ended.time_ns)

    # ── what it means ─────────────────────────────────────────────────────────────────────────

    def usual_ns(self) -> int | None:
        return self._steps.ns() if len(self._steps) else None

    def limit_ns(self) -> int:
        """How long a rank may take from one progress to the next, with no span open."""
        if len(self._steps) < 1:
            return nanoseconds(self.limits.start_seconds)
        return stall_ns(self._steps.ns(), self._steps.longest_pause_ns(), self.limits)

    def verdict(self, now_ns: int) -> Stall | None:
        """Whether the run, or a rank of it, stands still; None if not.

        `now_ns` is the time up to which all records are known to have arrived here.
        """
        silent = {rank for rank, state in self._alive() if self._is_silent(state, now_ns)}
        heard = {rank: state for rank, state in self._alive() if rank not in silent}
        ordinary_ns = self.limit_ns()
        late = {
            rank: state
            for rank, state in heard.items()
            if now_ns > self._deadline_ns(state, ordinary_ns)
        }
        if not late:
            return None
        if self._is_run_late(heard, late, now_ns):
            return self._stall("run", late, silent, ordinary_ns)
        behind = {rank: state for rank, state in late.items() if self._is_behind(state, heard)}
        return self._stall("rank", behind, silent, ordinary_ns) if behind else None

    def _is_run_late(
        self, heard: Mapping[int, _Rank], late: Mapping[int, _Rank], now_ns: int
    ) -> bool:
        """Whether every rank that takes steps is late.

        Where others took steps, a rank that took none is not on time, unless a span excuses it.
        """
        if len(late) == len(heard):
            return True
        if not any(state.steps >= FEW for state in heard.values()):
            return False
        on_time = (state for rank, state in heard.items() if rank not in late)
        return all(not state.steps and not self._is_excused(state, now_ns) for state in on_time)

    def _is_behind(self, state: _Rank, heard: Mapping[int, _Rank]) -> bool:
        if state.steps < FEW or state.last_step is None:
            return False
        ahead = (o.last_step for o in heard.values() if (o.last_end_ns or 0) > state.since_ns)
        return any(step is not None and step >= state.last_step + FEW for step in ahead)

    def _deadline_ns(self, state: _Rank, ordinary_ns: int) -> int:
        limit_ns = ordinary_ns if state.steps >= FEW else nanoseconds(self.limits.start_seconds)
        return max(
            state.since_ns + limit_ns,
            *(self._span_deadline_ns(span, state) for span in state.open.values()),
            0,
        )

    def _span_deadline_ns(self, span: _Open, state: _Rank) -> int:
        if span.holds_steps or span.name == DATA_LOADING:
            return 0
        limits, known = self.limits, self._spans.get(span.name)
        limit_ns = nanoseconds(limits.span_floor_seconds)
        if known is not None and len(known) >= FEW:
            learned = max(limits.factor * known.ns(), PAUSE_MARGIN * known.longest_pause_ns())
            floor = limit_ns if span.name in LONG_SPANS else nanoseconds(limits.floor_seconds)
            limit_ns = int(max(floor, learned))
        # What happens inside a long span is its progress, too.
        begin_ns = max(span.since_ns, state.since_ns) if span.name in LONG_SPANS else span.since_ns
        return begin_ns + limit_ns

    def _is_excused(self, state: _Rank, now_ns: int) -> bool:
        return any(now_ns <= self._span_deadline_ns(s, state) for s in state.open.values())

    def _is_silent(self, state: _Rank, now_ns: int) -> bool:
        return state.beats and now_ns - state.heard_ns > nanoseconds(self.limits.silence_seconds)

    def _stall(
        self, kind: Literal["run", "rank"], who: Mapping[int, _Rank], silent: set[int], limit: int
    ) -> Stall:
        if not any(state.steps >= FEW for state in who.values()):
            limit = nanoseconds(self.limits.start_seconds)
        return Stall(
            kind=kind,
            ranks=tuple(sorted(who)),
            since_ns=max(state.since_ns for state in who.values()),
            limit_ns=limit,
            usual_ns=self.usual_ns(),
            last_steps={r: s.last_step for r, s in self._ranks.items() if s.last_step is not None},
            open_spans={rank: self.open_spans(rank) for rank in who},
            ended={rank: s.ended for rank, s in self._ranks.items() if s.ended is not None},
            silent=tuple(sorted(silent)),
        )

    # ── who is where ──────────────────────────────────────────────────────────────────────────

    def ranks(self) -> list[int]:
        return sorted(self._ranks)

    def last_step(self, rank: int) -> int | None:
        return self._ranks[rank].last_step

    def since_ns(self, rank: int) -> int:
        return self._ranks[rank].since_ns

    def open_spans(self, rank: int) -> dict[str, int]:
        """The spans that a rank is in, and since when; `step` among them."""
        state = self._ranks[rank]
        spans = {span.name: span.since_ns for span in state.open.values()}
        return spans if state.begun_ns is None else {STEP: state.begun_ns, **spans}

    def ended(self, rank: int) -> Ended | None:
        return self._ranks[rank].ended

    def speaks(self, rank: int, now_ns: int) -> bool:
        """Whether it recorded values or texts well after its last progress, and not long ago.

        What is recorded right after a step belongs to that step, and does not count.
        """
        state, limits = self._ranks[rank], self.limits
        well_after_ns = nanoseconds(limits.floor_seconds) // 2
        lately = now_ns - state.spoke_ns <= nanoseconds(limits.doubt_seconds)
        return lately and state.spoke_ns - state.since_ns > well_after_ns

    def _alive(self) -> list[tuple[int, _Rank]]:
        return [(rank, state) for rank, state in self._ranks.items() if state.ended is None]

    def _rank(self, rank: int, time_ns: int) -> _Rank:
        state = self._ranks.get(rank)
        if state is None:
            state = self._ranks[rank] = _Rank(time_ns, time_ns)
        return state

    def _learn(self, state: _Rank, span: _Open, end_ns: int) -> None:
        took_ns = max(end_ns - span.since_ns, 0)
        if span.excuses and not any(outer.excuses for outer in state.open.values()):
            state.excused_ns += took_ns
        if span.name not in self._spans and len(self._spans) >= MOST_NAMES:
            return
        self._spans.setdefault(span.name, Usual()).add(end_ns, took_ns)
