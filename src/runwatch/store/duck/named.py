"""Which events name a journal: where to look for what agents said of one process.

An agent tells of every process that ends on its node, under no run, for years.  Who asks about one
run wants a few of those rows.  So for each kind that was ever asked for (`about`), the times of its
events are kept in memory by the journal that they name: the engine then opens the files of those
times only.  The first question of a kind reads all of them once; what is stored later is added
by the writer.  What the index holds may be too much (of rows that are gone), and never too little.
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
"""The journal that an event's body names, as SQL.  Half a character is JSON to Python and not to
the engine: such a body names nobody."""
COLUMNS: Final = f"{NAMED} AS named, kind, run, journal, time_ns, strlen(body) AS size"


class Mention(NamedTuple):
    kind: str
    run: int
    journal: int
    """Whose event it is."""
    time_ns: int
    size: int
    """Of the body."""

    def may_be_in(self, block: Block) -> bool:
        return (
            block.key_min <= self.run <= block.key_max
            and block.time_min <= self.time_ns <= block.time_max
        )


class Named:
    """`took` is called by the writer's thread, after its commit; the rest by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_journal: dict[str, dict[str, set[Mention]]] = {}
        """Kind -> journal -> events that name it."""
        self._whole: set[str] = set()
        """Kinds of which everything that was stored is known."""

    def took(self, events: Iterable[Row]) -> None:
        if not self._by_journal:
            return
        with self._lock:
            for run, journal, _, time_ns, _, kind, body, _ in events:
                known = self._by_journal.get(kind)
                if known is None or not body.startswith("{"):
                    continue
                name = json.loads(body).get("journal")
                if name is not None:  # the engine takes a number for its digits
                    name = name if isinstance(name, str) else json.dumps(name)
                    known[name].add(Mention(kind, run, journal, time_ns, len(body)))

    def begin(self, kinds: Sequence[str]) -> list[str]:
        """Which of these are to be read.  What is stored from now on is added to them."""
        with self._lock:
            missing = [kind for kind in kinds if kind not in self._whole]
            for kind in missing:
                self._by_journal.setdefault(kind, defaultdict(set))
        return missing

    def read(self, kinds: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """All rows of these kinds that were stored when they `begin`, as COLUMNS."""
        found = [(name, Mention(*row)) for name, *row in rows if name is not None]
        with self._lock:
            for name, mention in found:
                self._by_journal[mention.kind][name].add(mention)
            self._whole.update(kinds)

    def about(self, kinds: Sequence[str], journals: Iterable[str]) -> list[Mention] | None:
        """Everything that names one of these; None if not all of it is known."""
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
    """What one journal says of one kind at most, of these."""
    events, sizes = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for mention in mentions:
        events[mention.journal, mention.kind] += 1
        sizes[mention.journal, mention.kind] += mention.size
    return Fullest(max(events.values(), default=0), max(sizes.values(), default=0), sizes.total())
