"""Objects and their history under one version that only grows.

What is stored is never changed: who wants to change it takes a copy and stores that.  Everything
happens in the server's thread.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Thing = dict[str, Any]
Resource = tuple[str, str]
"""Group and plural."""
Place = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Stored:
    revision: int
    thing: Thing
    raw: bytes

    def copy(self) -> Thing:
        copied: Thing = json.loads(self.raw)
        return copied

    @property
    def place(self) -> Place:
        return place_of(self.thing)


@dataclass(frozen=True, slots=True)
class Change:
    revision: int
    what: Literal["ADDED", "MODIFIED", "DELETED"]
    now: Stored
    before: Stored | None


def place_of(thing: Thing) -> Place:
    meta = thing["metadata"]
    return meta.get("namespace", ""), meta["name"]


class Storage:
    def __init__(self) -> None:
        self.revision = 0
        self.compacted = 0
        """Changes before this are forgotten."""
        self.buried: set[str] = set()
        """The uids of what was deleted."""
        self._kept: dict[Resource, dict[Place, Stored]] = {}
        self._history: dict[Resource, list[Change]] = {}
        self._waiting: set[asyncio.Event] = set()

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def get(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        return self._kept.get(resource, {}).get((namespace, name))

    def items(
        self, resource: Resource, namespace: str = "", revision: int | None = None
    ) -> list[Stored]:
        """In one namespace or all, in the order of their names; as it is now, or was."""
        kept = self._kept.get(resource, {})
        if revision is not None:
            kept = self._as_it_was(resource, revision)
        places = sorted(place for place in kept if not namespace or place[0] == namespace)
        return [kept[place] for place in places]

    def _as_it_was(self, resource: Resource, revision: int) -> dict[Place, Stored]:
        kept = dict(self._kept.get(resource, {}))
        for change in reversed(self.since(resource, revision)):
            if change.before is None:
                del kept[change.now.place]
            else:
                kept[change.before.place] = change.before
        return kept

    def everything(self) -> Iterator[tuple[Resource, Stored]]:
        for resource, kept in list(self._kept.items()):
            for stored in list(kept.values()):
                yield resource, stored

    def since(self, resource: Resource, revision: int) -> Sequence[Change]:
        history = self._history.get(resource, [])
        return history[bisect_right(history, revision, key=lambda change: change.revision) :]

    # ── writing ───────────────────────────────────────────────────────────────────────────────

    def put(self, resource: Resource, thing: Thing) -> Stored:
        """`thing` is the storage's from now on."""
        kept = self._kept.setdefault(resource, {})
        before = kept.get(place_of(thing))
        stored = self._next(thing)
        kept[stored.place] = stored
        self._tell(
            resource, Change(stored.revision, "MODIFIED" if before else "ADDED", stored, before)
        )
        return stored

    def remove(self, resource: Resource, place: Place) -> Stored:
        before = self._kept[resource].pop(place)
        self.buried.add(before.thing["metadata"]["uid"])
        stored = self._next(before.copy())
        self._tell(resource, Change(stored.revision, "DELETED", stored, before))
        return stored

    def _next(self, thing: Thing) -> Stored:
        self.revision += 1
        thing["metadata"]["resourceVersion"] = str(self.revision)
        return Stored(self.revision, thing, json.dumps(thing, separators=(",", ":")).encode())

    def _tell(self, resource: Resource, change: Change) -> None:
        self._history.setdefault(resource, []).append(change)
        self.wake()

    def compact(self) -> None:
        """Who begins to watch from before now must list anew.  Watches that run go on."""
        self.compacted = self.revision

    # ── waiting ───────────────────────────────────────────────────────────────────────────────

    def wake(self) -> None:
        for event in self._waiting:
            event.set()

    def begin_waiting(self) -> asyncio.Event:
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def end_waiting(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)
