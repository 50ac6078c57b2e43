"""Makes steps of what hooks see: optimizers that step, batches that come, trainers that count.

One source leads, the one that knows most: a trainer knows its steps better than the optimizer that
it drives.  The program itself knows best: once it takes steps (`run.steps`, `run.step`), hooks tell
none.

With a data loader, steps are as those of `run.steps`: a step begins when its batch has come, and
ends when the next is asked for after an optimizer has stepped, or when the program evaluates or
saves.  So gradients of several batches, several optimizers, and several updates by one batch are
one step each.  Without a loader, a step lasts from one step of the first optimizer to its next.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Final
from weakref import ref

from runwatch.clock import tick_of
from runwatch.journal.segment import STEP_BEGIN_HEAD, STEP_END_HEAD
from runwatch.journal.undivided import undivided
from runwatch.journal.writer import ONE_THREAD_AT_A_TIME
from runwatch.record import NO_STEP
from runwatch.sdk.guard import guarded
from runwatch.sdk.kinds import DATA_LOADING
from runwatch.sdk.quick import place_begin, place_end, place_span, put_turn
from runwatch.sdk.step import DATA_WAIT_SECONDS, STEP, STEP_SECONDS

if TYPE_CHECKING:
    from runwatch.journal.writer import JournalWriter
    from runwatch.sdk.run import Run

OPTIMIZERS: Final = "torch.optim"
NUMBERED: Final = "numbered calls"
_PRECEDENCE: Final = {
    NUMBERED: 0, OPTIMIZERS: 1, "transformers": 3, "lightning": 3, "keras": 3
}  # fmt: skip
_OTHERS: Final = 2
"""Of what is between an optimizer and a trainer: Accelerate, DeepSpeed, annotated loops."""

MANY: Final = 16
"""After this many updates without a batch asked for, the program has its batches from elsewhere."""
_LARGE: Final = 1 << 62
WAIT_NS: Final = 1_000_000
"""Waits inside steps are told once they sum up to this."""
SHARE: Final = 8
"""At the end of a step also if they are more than one part in so many of it; else they are told
with those of later steps."""
LEAST_WAIT_NS: Final = 50_000
"""Where no step follows, from here on."""


class Inside:
    """What is asked and told for every batch and every update, in one place in memory."""

    __slots__ = (
        "is_over", "iterator", "loop", "quick", "run", "since", "thread", "until", "updates",
        "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.run: Run | None = None
        self.loop: Loop | None = None
        self.forget()

    def forget(self) -> None:
        self.iterator = 0
        """The id of the loader's iterator that brings the batches of the open step, and of the next
        one; 0: there is no such, or something else may have begun since."""
        self.waits = self.until = 0
        """How long was waited for batches that nobody has told yet, and until when; in ticks."""
        self.quick = False
        """An update of an optimizer ends the open step's work, and means nothing else."""
        self.is_over = False
        """The open step's work is done; it ends when something else begins."""
        self.since = 0
        """When; or where the next step begins if nothing is seen of it but its end."""
        self.updates = 0
        """Of the optimizers that count, in all."""
        self.thread = 0
        """The thread whose optimizers count."""

    def serve(self, run: Run, loop: Loop) -> None:
        self.forget()
        self.run, self.loop = run, loop

    def leave(self) -> None:
        self.forget()
        self.run = self.loop = None


class Loop:
    """The steps of one run, as hooks tell them.  Times are ticks (`clock.tick_of`).

    `sdk/quick.py` says what a call costs between two steps: the places in memory that it touches.
    So what is nearly always the case is decided first, in few lines that cannot fail, and whatever
    else there is has a function of its own, with a guard.
    """

    __slots__ = (  # those first that every call uses
        "_begin", "_asked", "_expected", "_journal", "by_batch", "inside", "is_open", "number",
        "run", "now", "leader", "_updates_by_batch", "explicit", "_batch", "_offset", "_first",
        "_updates", "_most_updates", "_is_late", "__weakref__",
    )  # fmt: skip

    def __init__(
        self, run: Run, batch: tuple[int, int] = (0, 0), inside: Inside | None = None
    ) -> None:
        self.run = run
        self.inside = inside or Inside()
        self.inside.serve(run, self)
        self.now: Final = tick_of(run._clock)
        self.leader = ""
        self.explicit = False
        """The program takes its steps itself."""
        self.number = NO_STEP
        """Of the open step, else of the last one."""
        self.is_open = False
        self.by_batch = False
        """The open step began with a batch."""
        self._is_late = False
        """When the open step began was known only later."""
        self._begin = self._asked = 0
        self._batch = batch
        """When a batch was asked for, and came, that no step is known of yet."""
        self._offset = 0
        """Steps of earlier loops."""
        self._journal: JournalWriter | None = None
        self._expected = run._step
        self._first: ref[object] = ref(_Nobody())
        """The optimizer that steps began with.  One that is gone was there for an inner loop."""
        self._updates_by_batch = 0
        """Those of `quick` do not count here: each is the first."""
        self._updates = self._most_updates = 0
        """Since the first optimizer stepped, and the most that there were; without a loader."""

    @property
    def is_over(self) -> bool:
        return self.inside.is_over

    @property
    def updates(self) -> int:
        return self.inside.updates

    # ── who tells ─────────────────────────────────────────────────────────────────────────────

    def leads(self, source: str) -> bool:
        """Whether this source tells the steps, from now on."""
        if self.run._step != self._expected:
            self.silence()
        if self.explicit:
            return False
        if source == self.leader:
            return True
        if self.leader and _precedence(source) <= _precedence(self.leader):
            return False
        self.leader, self.inside.quick = source, False
        return True

    def silence(self) -> None:
        """The program tells its steps itself."""
        self.explicit = True
        self._shut()

    def begins(self, source: str, after: int) -> bool:
        """Its loop begins, after this many steps; whether it tells the steps.

        A new loop after another one goes on counting: otherwise it would seem to repeat its steps.
        """
        if not self.leads(source):
            return False
        if self.is_open and self.is_over:
            self._close(self.now())
        self._offset = 0
        if not after and self.number != NO_STEP:
            self._offset = self.number
        elif not self.is_open:
            self.number = after
        return True

    def rests(self, source: str) -> None:
        """Its loop is over: others may tell steps."""
        if source == self.leader and self.leads(source):
            if self.is_over:
                self._close(self.now())
            self.leader, self.inside.quick = "", False

    # ── what a trainer says ───────────────────────────────────────────────────────────────────

    def began(self, source: str, number: int | None = None) -> None:
        if not self.leads(source):
            return
        at = self.now()
        if self.is_open and self.is_over:
            self._close(at)
        if not self.is_open:
            self._open_with_batch(number, at)
        elif number is not None:
            self._rename(number + self._offset)

    def ended(self, source: str, number: int | None = None) -> None:
        """A step's work is done; what is called after it may still be part of it."""
        if not self.leads(source):
            return
        at = self.now()
        if self.is_open and self.is_over:  # it was not seen to begin
            self._close(self.inside.since)
        if not self.is_open:
            self._open_with_batch(number, self.inside.since or at, is_late=True)
        elif number is not None:
            self._rename(number + self._offset)
        self._done(at)
        if not self.by_batch:
            self._close(at)

    # ── what an optimizer does ────────────────────────────────────────────────────────────────

    def begins_at(self, at: int) -> None:
        """An optimizer steps for the first time; nothing else is known of its step."""
        self.inside.since = self.inside.since or at

    @guarded("note that an optimizer has stepped", quiet=True)
    def updated(self, optimizer: object) -> None:
        """It has stepped."""
        inside, me = self.inside, get_ident()
        inside.thread = inside.thread or me
        if me != inside.thread or not self.leads(OPTIMIZERS):
            return
        at = self.now()
        inside.updates += 1
        if not self.is_open and self._batch[1]:
            self._open_with_batch(None, at, is_late=True)
        if self.is_open and self.by_batch:
            self._updated_by_batch(at)
        else:
            self._updated_alone(optimizer, at)

    def _updated_by_batch(self, at: int) -> None:
        self._updates_by_batch = max(self._updates_by_batch, int(self.is_over)) + 1
        self._done(at)
        self.inside.quick = True
        if self._updates_by_batch >= MANY:
            self._close(at)

    def _updated_alone(self, optimizer: object, at: int) -> None:
        first = self._first()
        if first is None:
            self._first = ref(optimizer)
            first = optimizer
        if first is optimizer:
            if self._updates:
                self._most_updates = max(self._most_updates, self._updates)
            if self.is_open:
                self._close(self.inside.since)
            self._open(self._next(), self.inside.since or at, 0, is_late=True)
            self._updates = 1
        else:
            self._updates += 1
            if not self.is_open:  # more updates than ever: the last step ended too early
                self._most_updates = self._updates
                return
        self._done(at)
        if self._updates >= self._most_updates > 0:
            self._close(at)

    def _done(self, at: int) -> None:
        """So is the open step's work, as far as is known."""
        self.inside.since, self.inside.is_over = at, True

    # ── what a loader does, in the thread that takes the steps ────────────────────────────────

    @undivided
    def batch(self, asked: int, came: int) -> None:
        """It was asked for, and came."""
        run, journal, inside = self.run, self._journal, self.inside
        if (  # nearly always
            inside.is_over
            and self.by_batch
            and journal is not None
            and journal is run._writer
            and run._at_step is None
            and run._step == self._expected
        ):
            number, begin = self.number, self._begin
            if inside.waits > (asked - begin) // SHARE:
                self.tell_waits()
            offset = journal._offset  # from here to `put_turn` there is no call, so it is one step
            end = offset + 64
            if ONE_THREAD_AT_A_TIME and end <= journal._plain_room:
                journal._offset = end
                journal._placed += 1
                put_turn(
                    journal._map, offset,
                    STEP_END_HEAD, number, begin, self._asked, asked,
                    STEP_BEGIN_HEAD, number + 1, came,
                )  # fmt: skip
            else:
                place_end(run, journal, number, begin, self._asked, asked)
                place_begin(run, journal, number + 1, came)
            self.number = self._expected = run._step = number + 1
            self._begin, self._asked = came, asked
            inside.is_over = False
            self._updates_by_batch = 0
        else:
            self._came(asked, came)

    @guarded("note a batch", quiet=True)
    def _came(self, asked: int, came: int) -> None:
        if self.is_over:
            self._close(asked)
        if self.is_open or self._batch[1]:
            self.waited(asked, came)
        elif self.leader and self.leads(self.leader):
            self._open(self._next(), came, asked)
        else:
            self._batch = (asked, came)

    @guarded("note that a loader has no more", quiet=True)
    def no_batch(self, asked: int) -> None:
        """It was asked for, and there is none."""
        at = self.now()
        if self.is_over:
            self._close(asked)
        self.waited(asked, at)
        if not self.is_open:
            self.inside.since, self._batch = at, (0, 0)

    def waited(self, asked: int, at: int) -> None:
        """For a batch, inside a step or where there is none.  Short waits are told together, also
        those of several steps."""
        inside = self.inside
        inside.waits += at - asked
        inside.until = at
        if inside.waits >= WAIT_NS:
            self.tell_waits()

    @guarded("tell waits for data", quiet=True)
    def tell_waits(self) -> None:
        waits, at, self.inside.waits = self.inside.waits, self.inside.until, 0
        journal = self._ready()
        if waits >= LEAST_WAIT_NS and journal is not None and not self.explicit:
            run = self.run
            place_span(run, journal, run._span_id(DATA_LOADING), at - waits, at, run._step)

    def pauses(self, at: int | None = None) -> None:
        """Something else begins than the next step: an evaluation, a save."""
        if self.is_open and self.is_over and self._begin <= (at or self.inside.since):
            self._close(max(at or self.now(), self.inside.since))

    # ── telling ───────────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """The run ends: so does a step whose work is done."""
        if self.inside.waits:
            self.tell_waits()
        if self.is_open and self.is_over and not self.explicit:
            self._close(self.now() if self.by_batch else self.inside.since)

    def _open_with_batch(self, number: int | None, at: int, is_late: bool = False) -> None:
        asked, came = self._batch
        number = self._next() if number is None else number + self._offset
        self._open(number, came or at, asked, is_late)

    def _open(self, number: int, begin: int, asked: int, is_late: bool = False) -> None:
        """`is_late`: it began some time ago, which is known only now."""
        self.is_open, self.by_batch, self._is_late = True, bool(asked), is_late
        self.inside.is_over = False
        self._begin, self._asked, self._batch, self._updates_by_batch = begin, asked, (0, 0), 0
        self._rename(number)
        run = self.run
        if run._at_step is not None and not is_late:
            run._at_step(self.number, True)
        journal = self._ready()
        if journal is not None:
            place_begin(run, journal, self.number, begin)

    def _close(self, at: int) -> None:
        run = self.run
        if run._step != self._expected:  # the program has begun to take its steps itself
            self.silence()
            return
        if self.inside.waits > (at - self._begin) // SHARE:
            self.tell_waits()
        self._shut()
        self.inside.since = at
        journal = self._ready()
        if journal is not None:
            place_end(run, journal, self.number, self._begin, self._asked, at)
        if run._at_step is not None:
            run._at_step(self.number, False)
        # The next one's begin will be known late, too.
        if run._at_step is not None and self._is_late and not self.by_batch:
            run._at_step(self._next(), True)

    def _shut(self) -> None:
        inside = self.inside
        self.is_open = inside.is_over = inside.quick = False
        inside.iterator = 0

    def _rename(self, number: int) -> None:
        if not -_LARGE < number < _LARGE:
            number = NO_STEP
        self.number = self._expected = self.run._step = number

    def _next(self) -> int:
        return 0 if self.number == NO_STEP else self.number + 1

    def _ready(self) -> JournalWriter | None:
        """The journal, once it knows the names that step records stand for."""
        run, journal = self.run, self.run._writer
        if journal is not None and journal is not self._journal:
            names = (STEP_SECONDS, DATA_WAIT_SECONDS)
            journal.stands_for(run._span_id(STEP), *(run._own_series(name) for name in names))
            self._journal = journal
        return journal


class _Nobody:
    """Gone at once."""


def _precedence(source: str) -> int:
    return _PRECEDENCE.get(source, _OTHERS)
