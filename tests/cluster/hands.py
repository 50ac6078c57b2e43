"""What a test does with a cluster's objects: at once, as an admin, past every fault.

Defaults, admission and checks are those of requests.  What is refused is raised as a `Refusal`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.cluster.answers import Refusal
from tests.cluster.kinds import Kind, Kinds
from tests.cluster.patching import MERGE
from tests.cluster.rbac import ADMIN
from tests.cluster.rendering import presented
from tests.cluster.storage import Storage
from tests.cluster.verbs import Ask, Verbs

Thing = dict[str, Any]
T = TypeVar("T")

# Before everything else of what is applied together, in this order.
_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount")


class Hands:
    """Objects are given and taken as copies.  `kind` is a kind, a plural or a short name."""

    kinds: Kinds
    storage: Storage
    verbs: Verbs
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def get(self, kind: str, name: str, namespace: str = "default") -> Thing:
        def read() -> Thing:
            ask = self._ask(self.kinds.named(kind), name, namespace)
            return presented(ask.kind, self.verbs.get(ask).copy())

        return self._now(read)

    def find(self, kind: str, name: str, namespace: str = "default") -> Thing | None:
        """None: there is none."""
        try:
            return self.get(kind, name, namespace)
        except Refusal as refusal:
            if refusal.code != 404:
                raise
            return None

    def list(self, kind: str, namespace: str = "", labels: str = "") -> Sequence[Thing]:
        """Of one namespace or all."""

        def read() -> Sequence[Thing]:
            found = self.kinds.named(kind)
            ask = Ask(ADMIN, found, namespace, query={"labelSelector": labels})
            return [presented(found, stored.copy()) for stored in self.verbs.list(ask)[0]]

        return self._now(read)

    # ── writing ───────────────────────────────────────────────────────────────────────────────

    def create(self, thing: Mapping[str, Any], namespace: str = "") -> Thing:
        """In `namespace`, if the object names none: else in `default`."""
        return self._later(self._created(_copy(thing), namespace))

    def apply(self, things: Iterable[Mapping[str, Any]] | Path, namespace: str = "") -> None:
        """Objects, or a file of YAML.  What is there already is patched."""
        if isinstance(things, Path):
            things = [thing for thing in yaml.safe_load_all(things.read_text()) if thing]
        self._later(self._applied([_copy(thing) for thing in things], namespace))

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make it, or give it these labels, too."""
        meta = {"name": name, "labels": labels or {}}
        self.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": meta}])

    def patch(
        self,
        kind: str,
        name: str,
        change: Mapping[str, Any],
        namespace: str = "default",
        *,
        subresource: str = "",
    ) -> Thing:
        """A merge patch: None takes away."""

        async def patched() -> Thing:
            ask = self._ask(self.kinds.named(kind), name, namespace, subresource)
            body = yaml.safe_dump(_copy(change)).encode()
            return presented(ask.kind, (await self.verbs.patch(ask, MERGE, body)).copy())

        return self._later(patched())

    def edit(
        self,
        kind: str,
        name: str,
        change: Callable[[Thing], None],
        namespace: str = "default",
        *,
        subresource: str = "",
    ) -> Thing:
        """`change` is given the object as it is now; nobody comes between."""

        def edited() -> Thing:
            ask = self._ask(self.kinds.named(kind), name, namespace, subresource)
            thing = presented(ask.kind, self.verbs.get(ask).copy())
            change(thing)
            return presented(ask.kind, self.verbs.update(ask, thing).copy())

        return self._now(edited)

    def status(
        self, kind: str, name: str, status: Mapping[str, Any], namespace: str = "default"
    ) -> Thing:
        """Put this in place of its status."""

        def change(thing: Thing) -> None:
            thing["status"] = _copy(status)

        return self.edit(kind, name, change, namespace, subresource="status")

    def delete(
        self, kind: str, name: str, namespace: str = "default", **options: str | int
    ) -> None:
        """`options` are those of DeleteOptions."""

        def deleted() -> None:
            self.verbs.delete(self._ask(self.kinds.named(kind), name, namespace), options)

        self._now(deleted)

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    async def _created(self, thing: Thing, namespace: str) -> Thing:
        kind = self.kinds.of(thing)
        meta = thing.get("metadata") or {}
        place = meta.get("namespace") or namespace or "default"
        ask = self._ask(kind, "", place)
        return presented(kind, (await self.verbs.create(ask, thing)).copy())

    async def _applied(self, things: Iterable[Thing], namespace: str) -> None:
        for thing in sorted(things, key=_order):
            kind = self.kinds.of(thing)
            place = thing["metadata"].get("namespace") or namespace or "default"
            ask = self._ask(kind, thing["metadata"]["name"], place)
            if self.storage.get(kind.key, ask.namespace, ask.name) is None:
                await self._created(thing, namespace)
            else:
                await self.verbs.patch(ask, MERGE, yaml.safe_dump(thing).encode())

    def _ask(self, kind: Kind, name: str, namespace: str, subresource: str = "") -> Ask:
        return Ask(ADMIN, kind, namespace if kind.namespaced else "", name, subresource)

    def _now(self, deed: Callable[[], T]) -> T:
        """In the server's thread."""
        if threading.current_thread() is self.thread:
            return deed()
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(deed())
            except BaseException as error:  # noqa: BLE001  it rises where it was asked for
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(60)

    def _later(self, deed: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self.thread:
            deed.close()
            raise RuntimeError("the server's thread cannot wait for itself: it may read and edit")
        return asyncio.run_coroutine_threadsafe(deed, self.loop).result(60)


def _order(thing: Thing) -> int:
    kind = thing.get("kind")
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value
