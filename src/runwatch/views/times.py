"""Nanoseconds as text for people and their tools."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(time_ns: int) -> str:
    """`2026-03-01T12:03:04.000000005Z`: UTC, always nine digits, so that text sorts like time."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    return f"{_seconds(seconds)}.{nanoseconds:09d}Z"


def to_the_second(time_ns: int) -> str:
    return _seconds(time_ns // 1_000_000_000) + "Z"


# An export asks for the same second thousands of times in a row.
@lru_cache(maxsize=256)
def _seconds(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
