"""One process's records, in their order, as steps and the time around them.

A track knows which spans are open.  The span begun last claims the time, except that an elastic
re-initialisation claims all of its own.  Rules for programs that record wrongly:

* a step that begins while another is open ends that one, because some recorders only record
  begins; a second begin of the open step is ignored;
* a span of a known kind that is still open when a step begins ended there; a span with a name of
  the user's own encloses steps;
* an end without a begin is ignored; a time before the last recorded one counts as that one;
* a step number that is not higher than the one before goes back: a new lap begins there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from runwatch.views.goodput.classes import Spent, is_custom, is_elastic

if TYPE_CHECKING:
    from runwatch.views.goodput.steps.strides import Strides

Piece = tuple[int, int, int]
"""From, until, class."""


RUN_STEPS: Final = 256
LATE_STEPS: Final = 4
"""A save is recorded when it is over, and a wait for data at the step's end.  So this many
completed steps are kept back, for what is still to be recorded about them."""


class Stale(Exception):
    """The fold cannot take this record any more: fold everything again, in order of time."""


class Stride(NamedTuple):
    """A completed step, and the time since the one before it."""

    lap: int
    step: int
    since_ns: int
    begin_ns: int
    end_ns: int
    gap: list[Piece]
    """The pieces that claim [since, begin)."""
    inside: list[Piece]
    """The pieces that claim [begin, end)."""


class _Open:
    """A span that has not ended yet."""

    __slots__ = ("key", "since_ns", "spent", "stretched_ns")

    def __init__(self, spent: int, key: object, since_ns: int, stretched_ns: int = -1) -> None:
        self.spent = spent
        self.key = key
        self.since_ns = since_ns
        self.stretched_ns = stretched_ns
        """The time that the span had since a step began in it; -1 before that."""

    def state(self) -> list[Any]:
        return [self.spent, self.key, self.since_ns, self.stretched_ns]


class OpenState(NamedTuple):
    """The state of a track after its last completed step."""

    since_ns: int
    begin_ns: int | None
    """When the open step began, if one is open."""
    gap: list[Piece]
    inside: list[Piece]


def insert(pieces: list[Piece], start: int, end: int, spent: int) -> None:
    """Claims the parts of [start, end) that no piece has; keeps the list in order."""
    if start >= end:
        return
    if not pieces or pieces[-1][1] <= start:
        pieces.append((start, end, spent))
        return
    for a, b, _ in list(pieces):
        if b <= start:
            continue
        if a >= end:
            break
        if start < a:
            pieces.append((start, a, spent))
        start = max(start, b)
    if start < end:
        pieces.append((start, end, spent))
    pieces.sort()


class Track:
    __slots__ = (
        "ended", "handed", "has_gpu", "host", "inferred_ns", "key", "lap", "now_ns", "own_ns",
        "rank", "since_ns", "start_ns", "step", "steps", "synchronous", "_begin", "_closed",
        "_done", "_floor", "_gap", "_inside", "_last", "_on_run", "_on_stride", "_on_strides",
        "_open", "_turned",
    )  # fmt: skip

    def __init__(
        self,
        key: str,
        rank: int,
        start_ns: int,
        on_stride: Callable[[Track, Stride], None],
        on_run: Callable[[int, array[int]], int] | None = None,
        on_strides: Callable[[Track, Strides], None] | None = None,
    ) -> None:
        self.key = key
        self.rank = rank
        self.host = ""
        self.synchronous = False
        self.has_gpu = False
        """Whether the process's machine has a GPU."""
        self.start_ns = self.since_ns = self.now_ns = start_ns
        """End of the last completed step; at first, when the process began."""
        self.lap = 0
        self.step: int | None = None
        """The open step."""
        self.ended = False
        self.handed: tuple[int, int] | None = None
        """Lap and number of the last step that was handed on."""
        self.steps = self.own_ns = 0
        """Completed steps, and the time in them that no span claimed."""
        self.inferred_ns = 0
        """Time claimed by spans whose end is not known."""
        self._last: int | None = None
        self._begin = 0
        self._gap: list[Piece] = []
        self._inside: list[Piece] = []
        self._open: list[_Open] = []
        self._floor = 0
        """How many of the open spans were open when the step began: they claim no time in it."""
        self._turned = start_ns
        self._done: list[Stride] = []
        self._closed = False
        self._on_stride = on_stride
        self._on_run = on_run
        self._on_strides = on_strides

    # ── what is recorded ──────────────────────────────────────────────────────────────────────

    def begin(self, time_ns: int, step: int) -> None:
        if step == self.step:
            return
        now = self.now_ns = time_ns if time_ns > self.now_ns else self.now_ns
        if self.step is not None:
            self.end(now)
        if self._open:
            self._turn(now)
            self._cut(now)
        if self._last is not None and step <= self._last:
            self.lap += 1
        self._last = self.step = step
        self._closed = False
        self._begin = self._turned = now
        self._floor = len(self._open)

    def begins(self, times: array[int], numbers: array[int]) -> None:
        """The same as many `begin`s, quickly where only plain steps follow one another."""
        at, count = 0, len(times)
        while at < count:
            if self._gap or self._inside:  # ends the open step; the following steps may be plain
                self.begin(times[at], numbers[at])
                at += 1
                continue
            until = min(at + RUN_STEPS, count)
            whole = until - LATE_STEPS
            booked = self._run(times[at:whole], numbers[at:whole]) if whole > at else 0
            if not booked:
                booked = until - at
                for time_ns, number in zip(times[at:until], numbers[at:until], strict=True):
                    self.begin(time_ns, number)
            at += booked

    def _run(self, times: array[int], numbers: array[int]) -> int:
        """Books these steps at once, each ending the one before; returns how many."""
        step, first = self.step, self._begin
        if self._on_run is None or step is None or self._open or self._gap or self._inside:
            return 0
        if numbers.tolist() != list(range(step + 1, step + 1 + len(times))):
            return 0
        if self._done:
            self.flush()
        times.insert(0, first)
        booked = self._on_run(step, times)
        if booked:
            self.handed = self.lap, step + booked - 1
            self._last = self.step = step + booked
            self._begin = self._turned = self.since_ns = self.now_ns = times[booked]
            self.steps += booked
            self.own_ns += times[booked] - first
        return booked

    @property
    def is_between(self) -> bool:
        """Whether no step or span is open, and none was since the last step."""
        return self.step is None and not (self._open or self._gap)

    def lap_of(self, step: int) -> int:
        """The lap of a step that begins now."""
        return self.lap + (self._last is not None and step <= self._last)

    def strides(self, steps: Strides) -> None:
        """Takes many steps that begin and end, while it `is_between`: more than are kept back."""
        self.lap, self._last, self._closed, self._floor = steps.lap, steps.last, False, 0
        self._begin = int(steps.begins[-1])
        self.since_ns = self.now_ns = self._turned = int(steps.ends[-1])
        self.steps += len(steps)
        self.own_ns += int((steps.ends - steps.begins).sum())
        whole = steps.behind(self._done)
        if whole is None:
            self.flush()
            whole = steps
        kept = len(whole) - LATE_STEPS
        self._done = list(whole.between(kept, len(whole)).each())
        whole = whole.between(0, kept)
        if self._on_strides is not None:
            self.handed = whole.lap, whole.last
            self._on_strides(self, whole)
        else:
            for stride in whole.each():
                self._hand_on(stride)

    @property
    def is_blank(self) -> bool:
        """Whether nothing was recorded yet."""
        return self.now_ns == self.start_ns and self._last is None and not self._open

    @property
    def next_step(self) -> int:
        """The number for a step that was recorded without one."""
        return 0 if self._last is None else self._last + 1

    def end(self, time_ns: int, number: int | None = None) -> None:
        """Ends the open step.  The end of any other step is ignored."""
        step = self.step
        if step is None or (number is not None and number != step):
            return
        now = self.now_ns = time_ns if time_ns > self.now_ns else self.now_ns
        if self._open:
            self._turn(now)
        inside, self._inside = self._inside, []
        gap, self._gap = self._gap, []
        self.steps += 1
        self.own_ns += now - self._begin
        for start, end, _ in inside:
            self.own_ns -= end - start
        self._done.append(Stride(self.lap, step, self.since_ns, self._begin, now, gap, inside))
        if len(self._done) > LATE_STEPS:
            self._hand_on(self._done.pop(0))
        self.step = None
        self.since_ns = self._turned = now
        self._floor = 0

    def waited(self, step: int, wait_ns: int) -> None:
        """The step that was just completed waited for its data until it began."""
        for done in reversed(self._done):
            if done.step == step:
                start = max(done.begin_ns - wait_ns, done.since_ns)
                insert(done.gap, start, done.begin_ns, Spent.DATA_LOADING)
                return
        if self._closed and self.handed == (self.lap, step):
            raise Stale(f"rank {self.rank} told of step {step} after it was handed on")

    def open(self, time_ns: int, spent: int, key: object) -> None:
        now = self.now_ns = time_ns if time_ns > self.now_ns else self.now_ns
        self._turn(now)
        if isinstance(key, str):  # named rather than numbered: one of a kind at a time
            self._forget(key, now)
        self._open.append(_Open(spent, key, now))

    def close(self, time_ns: int, key: object) -> None:
        now = self.now_ns = time_ns if time_ns > self.now_ns else self.now_ns
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at].key == key:
                self._turn(now)
                del self._open[at]
                self._floor -= at < self._floor
                return

    def elapsed(self, time_ns: int, nanoseconds: int, spent: int) -> None:
        """A stretch recorded when it is over.  It claims the time that no ended span has."""
        start = time_ns - max(nanoseconds, 0)
        if self._closed and start < self.since_ns:
            raise Stale(f"rank {self.rank} told of a step after it was handed on")
        if any(is_elastic(span.spent) for span in self._open):
            return
        if time_ns > self._turned:
            self._turn(max(start, self._turned))
            self._turned = time_ns
        self.now_ns = max(self.now_ns, time_ns)
        for done in self._done:
            self._claim(done.gap, start, time_ns, spent, done[2:4])
            self._claim(done.inside, start, time_ns, spent, done[3:5])
        begin = self._begin if self.step is not None else self.now_ns
        self._claim(self._gap, start, time_ns, spent, (self.since_ns, begin))
        self._claim(self._inside, start, time_ns, spent, (begin, self.now_ns))

    def _claim(
        self, pieces: list[Piece], start: int, end: int, spent: int, within: tuple[int, ...]
    ) -> None:
        insert(pieces, max(start, within[0]), min(end, within[1]), spent)

    def close_step(self) -> None:
        """The same as `flush`, though more may be recorded about the step: that is then `Stale`."""
        self._closed = self._closed or bool(self._done)
        self.flush()

    def flush(self) -> None:
        """Hands all completed steps on; until then more may be recorded about them."""
        done, self._done = self._done, []
        for stride in done:
            self._hand_on(stride)

    def _hand_on(self, stride: Stride) -> None:
        self.handed = stride.lap, stride.step
        self._on_stride(self, stride)

    @property
    def pending(self) -> Sequence[Stride]:
        """Steps that are completed and not handed on yet."""
        return self._done

    def opened(self, until_ns: int) -> OpenState:
        """What happened after the last completed step, as of `until_ns`."""
        gap, inside = list(self._gap), list(self._inside)
        span = self._claimant()
        if span is not None and until_ns > self._turned:
            (gap if self.step is None else inside).append((self._turned, until_ns, span.spent))
        return OpenState(self.since_ns, None if self.step is None else self._begin, gap, inside)

    def unended_ns(self, until_ns: int) -> int:
        """How much time open spans may claim too much, if they ended before `until_ns`.

        A span that is open when its process ends was cut short there.  But the end of a span that
        the program named, or that steps were done in, may just not have been recorded.
        """
        unended = 0
        for span in self._open:
            if span.stretched_ns >= 0:
                unended += until_ns - max(span.since_ns, self._turned) + span.stretched_ns
            elif isinstance(span.key, str):
                unended += until_ns - span.since_ns
        return unended

    @property
    def is_busy(self) -> bool:
        """Whether an open span claims the time now."""
        return self._claimant() is not None

    @property
    def begin_ns(self) -> int | None:
        """When the open step began."""
        return None if self.step is None else self._begin

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _claimant(self) -> _Open | None:
        """The span that claims the time now."""
        open_spans = self._open
        if len(open_spans) <= (self._floor if self.step is not None else 0):
            return None
        for span in open_spans:
            if is_elastic(span.spent):
                return span
        return open_spans[-1]

    def _turn(self, now: int) -> None:
        if now > self._turned:
            span = self._claimant()
            if span is not None:
                pieces = self._gap if self.step is None else self._inside
                pieces.append((self._turned, now, span.spent))
                if span.stretched_ns >= 0:
                    span.stretched_ns += now - self._turned
            self._turned = now

    def _cut(self, now: int) -> None:
        """A step begins: open spans of known kinds were never ended; other spans enclose the
        step."""
        enclosing = []
        for span in self._open:
            if is_custom(span.spent) or span.spent == Spent.PRODUCTIVE:
                span.stretched_ns = max(span.stretched_ns, 0)
                enclosing.append(span)
            else:
                self.inferred_ns += now - span.since_ns
        self._open = enclosing

    def _forget(self, key: str, now: int) -> None:
        for at, span in enumerate(self._open):
            if span.key == key:
                self.inferred_ns += now - span.since_ns
                del self._open[at]
                self._floor -= at < self._floor
                return

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    _PLAIN = (
        "ended", "handed", "has_gpu", "host", "inferred_ns", "key", "lap", "now_ns", "own_ns",
        "rank", "since_ns", "start_ns", "step", "steps", "synchronous", "_begin", "_closed",
        "_floor", "_gap", "_inside", "_last", "_turned",
    )  # fmt: skip

    def state(self) -> dict[str, Any]:
        open_spans = [span.state() for span in self._open]
        plain = {name: getattr(self, name) for name in self._PLAIN}
        return plain | {"_done": self._done, "_open": open_spans}

    @classmethod
    def of_state(
        cls,
        state: dict[str, Any],
        on_stride: Callable[[Track, Stride], None],
        on_run: Callable[[int, array[int]], int] | None = None,
        on_strides: Callable[[Track, Strides], None] | None = None,
    ) -> Track:
        track = cls(state["key"], state["rank"], 0, on_stride, on_run, on_strides)
        for name in cls._PLAIN:
            setattr(track, name, state[name])
        if track.handed is not None:
            track.handed = (track.handed[0], track.handed[1])
        for name in ("_gap", "_inside"):
            setattr(track, name, [tuple(item) for item in state[name]])
        track._open = [_Open(*span) for span in state["_open"]]
        for lap, step, since, begin, end, *pieces in state["_done"]:
            gap, inside = ([tuple(piece) for piece in some] for some in pieces)
            track._done.append(Stride(lap, step, since, begin, end, gap, inside))
        return track
