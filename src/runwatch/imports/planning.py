"""What each log becomes: a new run, or the one that it was imported as before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runwatch.errors import UsageError
from runwatch.imports.growing import identity
from runwatch.imports.items import Source
from runwatch.imports.ledger import FOLDER, Ledger, Shelf
from runwatch.record import RunId
from runwatch.sdk.identity import display_name, slug

_GENERATION: Final = re.compile(r"([0-9a-f]+)(?:\.(\d+))?")
_SHORT: Final = 6


@dataclass(slots=True)
class Plan:
    source: Source
    shelf: Shelf
    ledger: Ledger
    is_new: bool
    """It was not imported before."""

    @property
    def run(self) -> RunId:
        return RunId(self.ledger.run)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asks for."""

    root: Path
    """The Runwatch directory, which has the ledgers."""
    head: str = ""
    """The head that gets the runs; empty: the directory itself."""
    run: str = ""
    group: str = ""
    again: bool = False


def plan(sources: Sequence[Source], wish: Wish) -> list[Plan]:
    names = _names(sources, wish.run)
    return [_plan(source, name, wish) for source, name in zip(sources, names, strict=True)]


def _names(sources: Sequence[Source], wanted: str) -> list[str]:
    """A name for each: its own, or the one that the user wants, or that one as a folder.  Logs that
    other tools call the same are told apart."""
    names = [source.name for source in sources]
    if wanted:
        names = [wanted] if len(sources) == 1 else [f"{wanted}/{name}" for name in names]
    pairs = {(slug(n), s.identity) for s, n in zip(sources, names, strict=True)}
    times = Counter(run for run, _ in pairs)
    return [
        f"{name}-{source.identity[:_SHORT]}" if times[slug(name)] > 1 else name
        for source, name in zip(sources, names, strict=True)
    ]


def _plan(source: Source, name: str, wish: Wish) -> Plan:
    key = identity(source.identity, wish.head) if wish.head else source.identity
    run = slug(name)
    shelf, ledger = _newest(wish.root, key)
    if ledger is not None and wish.run and ledger.run != run:
        # It was imported under another name: the user wants it under this one, too.
        key = identity(key, run)
        shelf, ledger = _newest(wish.root, key)
    if ledger is not None and wish.again:
        shelf, ledger = Shelf(wish.root, f"{key}.{_generation(shelf) + 1}"), None
    if ledger is not None:
        return Plan(source, shelf, ledger, is_new=False)
    group = wish.group or source.group
    fresh = Ledger(source.kind, str(source.path), run, display_name(name), group)
    return Plan(source, shelf, fresh, is_new=True)


def _newest(root: Path, key: str) -> tuple[Shelf, Ledger | None]:
    """The log's last import that was not made anew."""
    names = [
        path.name for path in (root / FOLDER).glob(f"{key}*") if _GENERATION.fullmatch(path.name)
    ]
    shelves = [Shelf(root, name) for name in (*names, key) if name.partition(".")[0] == key]
    shelf = max(shelves, key=_generation)
    return shelf, shelf.read()


def _generation(shelf: Shelf) -> int:
    return int(shelf.folder.name.partition(".")[2] or 0)


def check(plans: Iterable[Plan], known: Mapping[str, Any], where: str) -> None:
    """Two things never become one run silently.  `known` are the runs that are there, by id."""
    taken = [plan for plan in plans if plan.is_new and plan.run in known]
    if not taken:
        return
    first = taken[0]
    more = f" (and {len(taken) - 1} more)" if len(taken) > 1 else ""
    raise UsageError(
        f"there is a run {first.ledger.name!r} in {where} already, which was not imported from "
        f"{first.source.path}{more}: nothing was imported. Choose a name with --run NAME"
    )
