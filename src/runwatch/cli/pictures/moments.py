"""Times, durations and sizes as text, without the slow import of the table library."""

from __future__ import annotations

import re
import time as clock
from datetime import UTC, datetime
from typing import Final

_UTC: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def time(ns: int | None) -> str:
    """Local time (`zone`), with the date unless it is today's."""
    if ns is None:
        return ""
    moment = datetime.fromtimestamp(ns / 1e9, UTC).astimezone()
    today = datetime.now(UTC).astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M:%S")


def zone() -> str:
    """This terminal's time zone: UTC, or CET/CEST where clocks are moved."""
    names = clock.tzname if clock.daylight else clock.tzname[:1]
    return "/".join(dict.fromkeys(names))


def local_times(sentence: str) -> str:
    """A head writes times into its sentences as UTC; here they are as `time` writes them."""
    return _UTC.sub(lambda found: _local(found[0]), sentence)


def _local(text: str) -> str:
    try:
        return time(round(datetime.fromisoformat(text).timestamp()) * 10**9)
    except (ValueError, OverflowError):
        return text


def duration(ns: int) -> str:
    seconds = ns / 1e9
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def fine_duration(ns: int) -> str:
    """For what takes less than a second."""
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= factor:
            value = ns / factor
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"
    return f"{ns} ns"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
