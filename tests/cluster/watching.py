"""Watches: every change after a version, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from tests.cluster.answers import Cause, Refusal, invalid, too_old
from tests.cluster.faults import Faults
from tests.cluster.kinds import Kind
from tests.cluster.storage import Change, Storage, Stored
from tests.cluster.verbs import Ask

Thing = dict[str, Any]
Render = Callable[[Stored], bytes]

LONGEST_SECONDS: Final = 1800.0
_LAST_BOOKMARK_SECONDS: Final = 2.0


def refuse_lists(ask: Ask) -> None:
    """As servers without the feature WatchList answer."""
    if ask.query.get("sendInitialEvents"):
        options = Kind("meta.k8s.io", "v1", "ListOptions", "")
        message = (
            "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate "
            "is enabled"
        )
        raise invalid(options, "", [Cause("FieldValueForbidden", message, "sendInitialEvents")])


def from_revision(ask: Ask, storage: Storage, faults: Faults) -> int | Refusal:
    """Where it begins, or the error that its stream begins with."""
    asked = ask.query.get("resourceVersion", "")
    if asked in ("", "0"):
        return 0
    if not asked.isdigit():
        cause = Cause("FieldValueInvalid", f'Invalid value: "{asked}"', "resourceVersion")
        raise invalid(ask.kind, "", [cause])
    if int(asked) < storage.compacted:
        error = too_old(int(asked), storage.compacted)
        if faults.gone_as_status:
            raise error
        return error
    return int(asked)


async def events(
    ask: Ask,
    storage: Storage,
    faults: Faults,
    began: int | Refusal,
    render: Render,
    ending: asyncio.Event,
) -> AsyncGenerator[bytes, None]:
    """Lines, until the time that was asked for is over or `ending` is set."""
    if isinstance(began, Refusal):
        yield _line("ERROR", json.dumps(began.status()).encode())
        return
    test, kind = ask.test(), ask.kind
    loop = asyncio.get_running_loop()
    until = loop.time() + float(ask.query.get("timeoutSeconds") or LONGEST_SECONDS)
    told = began
    if not told:
        told = storage.revision
        for stored in storage.items(kind.key, ask.namespace):
            if test(stored.thing):
                yield _line("ADDED", render(stored))
    marks = ask.query.get("allowWatchBookmarks") in ("true", "1")
    next_mark = loop.time() + faults.bookmark_seconds
    changed = storage.begin_waiting()
    try:
        while not ending.is_set():
            changed.clear()
            for change in storage.since(kind.key, told):
                told = change.revision
                seen = _seen(change, ask.namespace, test)
                if seen == "DELETED" and change.what != "DELETED":
                    yield _line(seen, render(_as_it_was(change)))
                elif seen:
                    yield _line(seen, render(change.now))
            now = loop.time()
            if marks and now >= next_mark:
                next_mark = now + faults.bookmark_seconds
                told = max(told, storage.revision)
                yield _bookmark(kind, told)
            if now >= until:
                break
            wait = min(until, next_mark) if marks else until
            await _wait(changed, wait - now)
        if marks and not ending.is_set():
            yield _bookmark(kind, max(told, storage.revision))
    finally:
        storage.end_waiting(changed)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        pass


def _seen(change: Change, namespace: str, test: Callable[[Thing], bool]) -> str:
    """What a watch with a selector sees of a change; nothing if it is none of its own."""
    thing = change.now.thing
    if namespace and thing["metadata"].get("namespace", "") != namespace:
        return ""
    before = change.before is not None and test(change.before.thing)
    if change.what == "DELETED":
        return "DELETED" if before else ""
    if test(thing):
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


def _as_it_was(change: Change) -> Stored:
    """What a selector no longer finds is shown as it was, with the version of its change."""
    assert change.before is not None
    thing = change.before.copy()
    thing["metadata"]["resourceVersion"] = str(change.revision)
    return Stored(change.revision, thing, json.dumps(thing).encode())


def _line(what: str, raw: bytes) -> bytes:
    return b'{"type":"' + what.encode() + b'","object":' + raw + b"}\n"


def _bookmark(kind: Kind, revision: int) -> bytes:
    thing = {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {"resourceVersion": str(revision), "creationTimestamp": None},
    }
    return _line("BOOKMARK", json.dumps(thing).encode())
