"""What `runwatch status` reports: facts for `--json`, sentences for people, and problems."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

VERSION: Final = 1
"""Version of the `--json` output.  New fields keep it; a changed or removed field makes it 2."""
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs attention, and what to do about it."""

    what: str
    todo: str


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    facts: Mapping[str, Any]
    lines: Sequence[str]
    problems: Sequence[Problem] = ()
    is_unread: bool = False
    """Some of it nobody was allowed to look at."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A head's answer.  `state`: well, token, refused, silent, name, tls, other, unreachable"""

    state: str
    why: str = ""
    health: Mapping[str, Any] | None = None


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def whose(uid: int) -> str:
    return "you" if uid == os.geteuid() else user_name(uid)


def size(count: float) -> str:
    """Decimal units: 1 kB is 1000 bytes."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {_UNITS[unit]}"


def many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"
