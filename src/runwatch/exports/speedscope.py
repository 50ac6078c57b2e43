"""Stacks in speedscope's format: one profile per rank, and one of all ranks together.

A weight is how often a stack was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from runwatch._version import __version__
from runwatch.exports.collapsed import Path, samples
from runwatch.record.stacks import Stacks

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def speedscope(stacks: Iterable[Stacks], name: str) -> dict[str, Any]:
    counts = Counter(samples(stacks))
    table = _Table()
    ranks = sorted({rank for rank, _ in counts})
    profiles = [
        _profile(f"rank {rank}", {p: n for (r, p), n in counts.items() if r == rank}, table)
        for rank in ranks
    ]
    if len(ranks) > 1:
        everyone: Counter[Path] = Counter()
        for (_, path), count in counts.items():
            everyone[path] += count
        profiles.insert(0, _profile("all ranks", everyone, table))
    return {
        "$schema": SCHEMA,
        "exporter": f"runwatch {__version__}",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": table.frames},
        "profiles": profiles,
    }


class _Table:
    """The frames, each listed once."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._known: dict[tuple[str, str, int], int] = {}

    def number(self, name: str, file: str = "", line: int = 0) -> int:
        key = name, file, line
        if key not in self._known:
            self._known[key] = len(self.frames)
            plain: dict[str, Any] = {"name": name}
            if file:
                plain["file"] = file
            if line:
                plain["line"] = line
            self.frames.append(plain)
        return self._known[key]


def _profile(name: str, seen: Mapping[Path, int], table: _Table) -> dict[str, Any]:
    ordered = sorted(seen.items(), key=lambda item: (item[0][0] != "MainThread", -item[1]))
    stacks = [
        [table.number(thread), *(table.number(f.function, f.file, f.line) for f in frames)]
        for (thread, frames), _ in ordered
    ]
    weights = [count for _, count in ordered]
    return {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": stacks,
        "weights": weights,
    }
