"""What each log becomes: a new run, or the one that it was imported as before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
    names = [source.name.strip() or "run" for source in sources]
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


@dataclass(frozen=True, slots=True)
class Known:
    """The ids of the runs that are there already, and of those that were deleted."""

    there: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()


def check(plans: Sequence[Plan], known: Known, where: str) -> None:
    """Two things never become one run silently, and nothing is imported that would be dropped."""
    taken = [plan for plan in plans if plan.is_new and plan.run in known.there]
    if taken:
        first = taken[0]
        raise UsageError(
            f"there is a run {first.ledger.name!r} in {where} already, which was not imported from "
            f"{first.source.path}{_more(taken)}: nothing was imported. Choose a name with "
            "--run NAME"
        )
    buried = [plan for plan in plans if plan.run in known.deleted - known.there]
    if buried:
        raise UsageError(
            f"run {buried[0].ledger.name!r}{_more(buried)} was deleted in {where}: nothing was "
            "imported. `runwatch restore` brings it back; or choose a name with --run NAME"
        )


def missing(plan: Plan, known: Known) -> str:
    """What to say of a run that was imported and is not there."""
    if plan.is_new or plan.run in known.there:
        return ""
    return (
        f"run {plan.ledger.name!r} was imported before and is not there now; --again imports it "
        "from the beginning"
    )


def _more(plans: Sequence[Plan]) -> str:
    return f" (and {len(plans) - 1} more)" if len(plans) > 1 else ""
