"""kopf watches, and says which objects may be otherwise.

It runs in a thread with a loop of its own.  Its handlers write nothing, neither annotations nor
finalizers: they hand each object over to our loop.  What kopf does not get over (rights that are
missing, a server that fails for long) ends it, and it is begun again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import kopf

from runwatch.k8s.api import Access
from runwatch.k8s.operator.objects import Kind
from runwatch.kube import Thing

logger = logging.getLogger("runwatch.operator")
BACKOFFS: Final = (1.0, 2.0, 4.0, 8.0)
"""Pauses between kopf's own tries of one request."""
AGAIN_SECONDS: Final = 3.0
"""Before kopf is begun again."""


@dataclass(frozen=True, slots=True)
class Watch:
    """`tell` is called in the loop of `watch_all`: whether it is gone, and its last state."""

    kind: Kind
    tell: Callable[[bool, Thing], None]
    labels: str = ""
    fields: str = ""
    """Selectors, which the API server applies."""
    is_wide: bool = False
    """It has no namespace."""


async def watch_all(
    access: Access, watches: Sequence[Watch], namespaces: Sequence[str], connect_seconds: float
) -> None:
    """Until it is cancelled.  `namespaces`: only these; none: all."""
    loop = asyncio.get_running_loop()
    while True:
        stop, ended = threading.Event(), asyncio.Event()

        def run(stop: threading.Event = stop, ended: asyncio.Event = ended) -> None:
            try:
                _run_kopf(access, watches, namespaces, connect_seconds, loop, stop)
            finally:  # what kopf did not get over is in the log
                _call(loop, ended.set)

        threading.Thread(target=run, name="runwatch-watches", daemon=True).start()
        try:
            await ended.wait()
        finally:
            stop.set()
        logger.warning("the watches ended; they begin again in %g s", AGAIN_SECONDS)
        await asyncio.sleep(AGAIN_SECONDS)


def _run_kopf(
    access: Access,
    watches: Sequence[Watch],
    namespaces: Sequence[str],
    connect_seconds: float,
    loop: asyncio.AbstractEventLoop,
    stop: threading.Event,
) -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=access.server, ca_path=str(access.ca), scheme="Bearer", token=access.token
        )

    for watch in watches:
        _hand_over(registry, watch, loop, stop)
    kopf.run(
        registry=registry,
        settings=_settings(watches, connect_seconds),
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        standalone=True,
        stop_flag=stop,
    )


def _hand_over(
    registry: kopf.OperatorRegistry,
    watch: Watch,
    loop: asyncio.AbstractEventLoop,
    stop: threading.Event,
) -> None:
    group, _, version = watch.kind.api_version.rpartition("/")

    @kopf.on.event(
        group=group, version=version, plural=watch.kind.plural, registry=registry, id="seen"
    )
    async def seen(event: Any, **_: Any) -> None:
        if not stop.is_set():
            _call(loop, lambda: watch.tell(event["type"] == "DELETED", event["object"]))


def _call(loop: asyncio.AbstractEventLoop, deed: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # our loop has ended
        loop.call_soon_threadsafe(deed)


def _settings(watches: Sequence[Watch], connect_seconds: float) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None  # it would kill us, whom it is a part of
    settings.networking.error_backoffs = BACKOFFS
    settings.networking.request_timeout = settings.networking.connect_timeout = connect_seconds
    settings.watching.connect_timeout = connect_seconds
    settings.queueing.exit_timeout = 0.0
    for watch in watches:
        group, _, version = watch.kind.api_version.rpartition("/")
        key = group, version, watch.kind.plural
        if watch.labels:
            settings.watching.label_selectors[key] = watch.labels
        if watch.fields:
            settings.watching.field_selectors[key] = watch.fields
    return settings
