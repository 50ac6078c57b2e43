"""Which events name a journal: an index to find what agents recorded about one process.

An agent records every process that ends on its node, under no run, for years.  A question about one
run needs a few of those rows.  So for each kind that was ever asked for (`about`), the times of its
events are kept in memory, by the journal that they name: the engine then opens only the files of
those times.  The first question for a kind reads all its events once; the writer adds later ones.
The index may hold too much (rows that are gone), but never too little.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from runwatch.store.crowds import Fullest
from runwatch.store.duck import pieces
from runwatch.store.duck.blocks import Block
from runwatch.store.duck.pieces import Row

NAMED: Final = f"CASE WHEN {pieces.IS_WHOLE} THEN try(json_extract_string(body, '$.journal')) END"
"""The journal that an event's body names, as SQL.  A lone surrogate is JSON to Python but not to
the engine: such a body names no journal."""
COLUMNS: Final = f"{NAMED} AS named, kind, run, journal, time_ns, strlen(body) AS size"


class Mention(NamedTuple):
    kind: str
    run: int
    journal: int
    """The journal that the event is in."""
    time_ns: int
    size: int
    """The size of the body."""

    def may_be_in(self, block: Block) -> bool:
        return (
            block.key_min <= self.run <= block.key_max
            and block.time_min <= self.time_ns <= block.time_max
        )


class Named:
    """The writer's thread calls `took`, after its commit; any thread calls the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_journal: dict[str, dict[str, set[Mention]]] = {}
        """Kind -> journal -> events that name it."""
        self._whole: set[str] = set()
        """Kinds of which all stored events are indexed."""

    def took(self, events: Iterable[Row]) -> None:
        if not self._by_journal:
            return
        with self._lock:
            for run, journal, _, time_ns, _, kind, body, _ in events:
                mentions = self._by_journal.get(kind)
                if mentions is None or not body.startswith("{"):
                    continue
                name = json.loads(body).get("journal")
                if name is not None:  # the engine turns a number into its digits
                    name = name if isinstance(name, str) else json.dumps(name)
                    mentions[name].add(Mention(kind, run, journal, time_ns, len(body)))

    def begin(self, kinds: Sequence[str]) -> list[str]:
        """Which of these kinds are still to be read.  Events stored from now on are added."""
        with self._lock:
            missing = [kind for kind in kinds if kind not in self._whole]
            for kind in missing:
                self._by_journal.setdefault(kind, defaultdict(set))
        return missing

    def read(self, kinds: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Add all rows (COLUMNS) of these kinds that were stored when `begin` was called."""
        mentions = [(name, Mention(*row)) for name, *row in rows if name is not None]
        with self._lock:
            for name, mention in mentions:
                self._by_journal[mention.kind][name].add(mention)
            self._whole.update(kinds)

    def about(self, kinds: Sequence[str], journals: Iterable[str]) -> list[Mention] | None:
        """All events that name one of these journals; None if the index is not complete."""
        with self._lock:
            if not self._whole.issuperset(kinds):
                return None
            names = set(journals)
            return [
                mention
                for kind in set(kinds)
                for name in names & self._by_journal[kind].keys()
                for mention in self._by_journal[kind][name]
            ]


def fullest(mentions: Iterable[Mention]) -> Fullest:
    """The largest amounts that any journal has of one kind among these."""
    events, sizes = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for mention in mentions:
        events[mention.journal, mention.kind] += 1
        sizes[mention.journal, mention.kind] += mention.size
    return Fullest(max(events.values(), default=0), max(sizes.values(), default=0), sizes.total())
