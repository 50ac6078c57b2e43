"""The operator's process: it asks for the lease, works while it has it, and gives it back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.k8s.api import Access, Api
from runwatch.k8s.operator.head import Head
from runwatch.k8s.operator.health import Lines, answering
from runwatch.k8s.operator.lease import Lease, LeaseLost
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.telling import Telling
from runwatch.k8s.operator.term import Term

logger = logging.getLogger("runwatch.operator")
RELEASE_SECONDS: Final = 5.0


def run(settings: OperatorSettings, access: Access) -> int:
    """Until SIGTERM or SIGINT."""
    # kopf tells of each of its own tries; what it does not get over it raises.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    asyncio.run(_run(settings, access))
    return 0


async def _run(settings: OperatorSettings, access: Access) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    working = asyncio.create_task(serve(settings, access))
    asking = asyncio.create_task(told.wait())
    try:
        await asyncio.wait((working, asking), return_when=asyncio.FIRST_COMPLETED)
    finally:
        asking.cancel()
        working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    logger.info("ended")


async def serve(settings: OperatorSettings, access: Access, *, clock: Clock = system_clock) -> None:
    """Until it is cancelled."""
    identity = settings.identity or f"{socket.gethostname()}-{os.getpid()}"
    async with (
        Api(access, seconds=settings.answer_seconds, clock=clock) as api,
        Head(settings) as head,
    ):
        lease = Lease(
            api, identity, namespace=access.namespace, seconds=settings.lease_seconds, clock=clock
        )
        lines: Lines = {}
        async with answering(settings.bind, settings.port, lease, lambda: lines) as port:
            logger.info("%s listens at %s:%d", identity, settings.bind, port)
            while True:
                await lease.acquire()
                logger.info("%s has the lease, and works", identity)
                try:
                    async with Telling(api, head, settings, clock=clock) as telling:
                        term = Term(api, head, settings, telling, identity, clock=clock)
                        lines = term.lines
                        await _hold(lease, term)
                finally:
                    # Nothing of ours works any more: only now may another one.
                    await _release(lease)


async def _hold(lease: Lease, term: Term) -> None:
    """Until the lease is lost."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(lease.hold())
            group.create_task(term.run())
    except* LeaseLost as lost:
        logger.warning("%s: another operator may work; this one asks again", lost.exceptions[0])


async def _release(lease: Lease) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RELEASE_SECONDS):
            await lease.release()
