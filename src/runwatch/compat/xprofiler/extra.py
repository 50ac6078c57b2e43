"""Flags that are not ours: they go to the command underneath."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

Flags = dict[str, str | None]


def parse(words: Sequence[str]) -> Flags:
    """`--flag`, `--flag value`, `--flag=value`, `--flag one two`, each also with one dash."""
    flags: Flags = {}
    last: str | None = None
    for word in words:
        if word.startswith("-") and word not in ("-", "--"):
            last, separator, value = word.partition("=")
            flags[last] = value if separator else None
            if separator:
                last = None
        elif last is None:
            print(f"xprofiler: {word!r} belongs to no flag and is ignored", file=sys.stderr)
        else:
            before = flags[last]
            flags[last] = word if before is None else f"{before} {word}"
    return flags


def words(flags: Mapping[str, str | None]) -> list[str]:
    return [flag if value is None else f"{flag}={value}" for flag, value in flags.items()]
