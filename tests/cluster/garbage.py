"""Deletion: finalizers, what follows an owner, and what follows a namespace.

A real cluster collects whatever has no living owner.  Here an owner counts as dead when it was
deleted in this cluster: a test may write owners down that it never made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.cluster.kinds import Kind, Kinds
from tests.cluster.storage import Resource, Storage, Stored

Thing = dict[str, Any]

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Garbage:
    def __init__(self, storage: Storage, kinds: Kinds, now: Callable[[], str]) -> None:
        self._storage = storage
        self._kinds = kinds
        self._now = now

    def delete(self, kind: Kind, stored: Stored, propagation: str) -> tuple[Stored, bool]:
        """What is left of it, and whether it is gone."""
        finalizers = list(stored.thing["metadata"].get("finalizers") or ())
        if propagation == "Foreground" and FOREGROUND not in finalizers:
            finalizers.append(FOREGROUND)
        if propagation == "Orphan" and ORPHAN not in finalizers:
            finalizers.append(ORPHAN)
        is_namespace = kind.key == ("", "namespaces")
        if not finalizers and not is_namespace and kind.kind != "CustomResourceDefinition":
            return self.bury(kind.key, stored), True
        if not stored.thing["metadata"].get("deletionTimestamp"):
            stored = self._marked(kind, stored, finalizers)
        self._later(self._sweep, kind.key, stored)
        return stored, False

    def bury(self, resource: Resource, stored: Stored) -> Stored:
        """It is gone.  What it owned follows."""
        gone = self._storage.remove(resource, stored.place)
        if gone.thing.get("kind") == "CustomResourceDefinition":
            self._kinds.forget(gone.thing)
        self._later(self._collect)
        return gone

    def look_at(self, stored: Stored) -> None:
        """It is new: perhaps its owner is dead by now."""
        if stored.thing["metadata"].get("ownerReferences"):
            self._later(self._collect)

    def _later(self, deed: Callable[..., None], *arguments: object) -> None:
        """As a controller does it, after the request."""
        asyncio.get_running_loop().call_soon(deed, *arguments)

    def _marked(self, kind: Kind, stored: Stored, finalizers: list[str]) -> Stored:
        thing = stored.copy()
        meta = thing["metadata"]
        meta["deletionTimestamp"] = self._now()
        meta["deletionGracePeriodSeconds"] = 0
        if finalizers:
            meta["finalizers"] = finalizers
        if "generation" in meta:
            meta["generation"] += 1
        if kind.key == ("", "namespaces"):
            thing["status"] = {"phase": "Terminating"}
        return self._storage.put(kind.key, thing)

    def _collect(self) -> None:
        """Whose owners are all dead goes, too; who waited for that goes on."""
        buried = self._storage.buried
        for resource, stored in list(self._storage.everything()):
            owners = stored.thing["metadata"].get("ownerReferences") or ()
            if owners and all(owner.get("uid") in buried for owner in owners):
                self._delete(resource, stored)
            elif stored.thing["metadata"].get("deletionTimestamp"):
                self._sweep(resource, stored)

    def _delete(self, resource: Resource, stored: Stored) -> None:
        kind = self._kind(resource, stored)
        current = self._storage.get(resource, *stored.place)
        if current is not None and not current.thing["metadata"].get("deletionTimestamp"):
            self.delete(kind, current, "")

    def _kind(self, resource: Resource, stored: Stored) -> Kind:
        for kind in self._kinds:
            if kind.key == resource:
                return kind
        group, _, version = stored.thing["apiVersion"].rpartition("/")
        return Kind(group, version, stored.thing["kind"], resource[1])

    def _sweep(self, resource: Resource, stored: Stored) -> None:
        """One that is being deleted: what it waits for may be done now."""
        current = self._storage.get(resource, *stored.place)
        if current is None:
            return
        meta = current.thing["metadata"]
        finalizers = list(meta.get("finalizers") or ())
        uid = meta["uid"]
        if ORPHAN in finalizers:
            for other, dependant in self._dependants(uid):
                self._disowned(other, dependant, uid)
            finalizers.remove(ORPHAN)
        if FOREGROUND in finalizers:
            left = list(self._dependants(uid))
            for other, dependant in left:
                self._delete(other, dependant)
            if not [each for each in left if _blocks(each[1], uid)]:
                finalizers.remove(FOREGROUND)
        if self._content_left(resource, current):
            return
        if not finalizers:
            self.bury(resource, current)
        elif finalizers != meta.get("finalizers"):
            thing = current.copy()
            thing["metadata"]["finalizers"] = finalizers
            self._storage.put(resource, thing)

    def _content_left(self, resource: Resource, stored: Stored) -> bool:
        """A namespace and a definition take with them what is in them."""
        name = stored.thing["metadata"]["name"]
        content: list[tuple[Resource, Stored]] = []
        if resource == ("", "namespaces"):
            everything = self._storage.everything()
            content = [each for each in everything if each[1].place[0] == name]
        elif resource[1] == "customresourcedefinitions":
            spec = stored.thing["spec"]
            of_it = (spec["group"], spec["names"]["plural"])
            content = [(of_it, each) for each in self._storage.items(of_it)]
        for other, each in content:
            self._delete(other, each)
        return bool(content) and any(self._storage.get(r, *each.place) for r, each in content)

    def _dependants(self, uid: str) -> list[tuple[Resource, Stored]]:
        return [
            (resource, stored)
            for resource, stored in self._storage.everything()
            if any(
                owner.get("uid") == uid
                for owner in stored.thing["metadata"].get("ownerReferences") or ()
            )
        ]

    def _disowned(self, resource: Resource, stored: Stored, uid: str) -> None:
        thing = stored.copy()
        owners = thing["metadata"]["ownerReferences"]
        thing["metadata"]["ownerReferences"] = [each for each in owners if each.get("uid") != uid]
        self._storage.put(resource, thing)


def _blocks(stored: Stored, uid: str) -> bool:
    owners = stored.thing["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == uid and each.get("blockOwnerDeletion") for each in owners)
