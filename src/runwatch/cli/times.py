"""Times that people write on a command line."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import Final

from runwatch.errors import UsageError

_UNITS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}
RELATIVE: Final = re.compile(r"([+-]?)((?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+)")
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def moment(text: str, start_ns: int, end_ns: int) -> int:
    """Nanoseconds since the epoch, for a run from `start_ns` to `end_ns`."""
    relative = RELATIVE.fullmatch(text)
    if relative is not None:
        ns = length(relative[2])
        return end_ns - ns if relative[1] == "-" else start_ns + ns
    if _NUMBER.fullmatch(text):
        return _since_epoch(text)
    if _CLOCK.fullmatch(text):
        return _time_of_day(text, end_ns)
    try:
        date = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"not a time: {text!r} (try 2026-01-31T12:00:00Z, 14:02:10, seconds since the epoch, "
            "-2h for before the end, 90m for after the start)"
        ) from error
    whole = int(date.replace(microsecond=0).timestamp())
    return whole * 10**9 + date.microsecond * 1000


def _time_of_day(text: str, end_ns: int) -> int:
    """The last such local time before the run's end."""
    last = datetime.fromtimestamp(end_ns / 1e9).astimezone()
    try:
        clock = datetime.strptime(text if text.count(":") > 1 else f"{text}:00", "%H:%M:%S")
    except ValueError as error:
        raise UsageError(f"not a time of day: {text!r} (try 14:02:10)") from error
    latest = last.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
    if latest > last:
        latest -= timedelta(days=1)
    return int(latest.timestamp()) * 10**9


def length(text: str) -> int:
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    return sum(round(float(count) * _UNITS[unit]) for count, unit in parts)


def milliseconds(text: str) -> int:
    """The milliseconds of a length such as `500`, `500ms` or `2s`; a type for argparse."""
    if text.isdigit():
        return int(text)
    if RELATIVE.fullmatch(text) is None or text[0] in "+-":
        raise ArgumentTypeError(f"{text!r} is no length of time (try 500, 500ms or 2s)")
    return length(text) // 10**6


def _since_epoch(text: str) -> int:
    """Seconds; a number too large for seconds counts as milli-, micro- or nanoseconds."""
    whole, _, fraction = text.partition(".")
    digits = max(0, len(whole) - 10) // 3 * 3
    scale = int(10 ** (9 - min(digits, 9)))
    return int(whole) * scale + int((fraction + "0" * 9)[:9]) * scale // 10**9
