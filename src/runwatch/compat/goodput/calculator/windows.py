"""What a job did within a window of time, by the original's rules.

The rules are applied to the entries of the window alone, and shares are of the time from the
first of them to the last: a window in which a job hung looks as good as what it did before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.quiet import Quiet
from runwatch.compat.goodput.calculator.rules import Fold, accounted, checked, shares
from runwatch.compat.goodput.goodput_utils import UnproductiveTimeDict


@dataclass(frozen=True, slots=True)
class Window(Quiet):
    max_productive_step: int
    disruptions: int

    @property
    def badput_percent(self) -> UnproductiveTimeDict:
        return shares(self.badput, self.total)


def look(
    history: History, start: datetime, end: datetime, fold: Callable[[History], Fold] = Fold
) -> Window:
    """The entries after `start` and up to `end`.

    ValueError if they do not have at least two different times.
    """
    after, until = bounds(start, end)
    part = history.between(after, until)
    if not part:
        raise ValueError(
            f"nothing was recorded between {start} and {end}: choose a window in which the job ran"
        )
    total = part.item(len(part) - 1).time - part.item(0).time
    if total <= 0:
        raise ValueError(
            f"everything recorded between {start} and {end} has the same time, so there is nothing "
            "to divide: choose a longer window"
        )
    folded = fold(part)
    folded.advance()
    figures = folded.figures()
    productive = checked(figures.productive, total)
    return Window(
        productive,
        accounted(productive, figures.badput, total),
        total,
        figures.max_productive_step,
        figures.disruptions,
    )


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def bounds(start: datetime, end: datetime) -> tuple[float, float]:
    """A window in seconds since the epoch."""
    after, until = moment(start, "the window's start"), moment(end, "the window's end")
    if after >= until:
        raise ValueError(f"a window from {start} to {end} is empty: its end must come later")
    return after, until


def nanoseconds_of(time: datetime) -> int:
    """Exact: a datetime holds whole microseconds."""
    moment(time, "a moment of the account")
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000


class NoTimeZoneError(ValueError, TypeError):
    """The original raises TypeError for such a time; for us a wrong argument is a ValueError."""


def moment(time: datetime, what: str) -> float:
    """In seconds since the epoch.  A time without a zone could mean several moments."""
    if not isinstance(time, datetime):
        raise ValueError(f"{what} is {time!r}: pass a datetime with a time zone")
    if time.tzinfo is None or time.utcoffset() is None:
        raise NoTimeZoneError(
            f"{what}, {time}, has no time zone: pass one, as in "
            f"datetime({time.year}, {time.month}, {time.day}, tzinfo=timezone.utc), "
            "or .astimezone() for local time"
        )
    return time.timestamp()
