"""The injection webhook's server: the API server asks it about each pod that is made.

It answers over TLS, with what `judge.py` says.  A body is bounded, and so is how many reviews are
worked on at once; the others wait for their turn, and start unwatched if it does not come in time.

Who is told to end is still asked for some seconds, until every API server knows: a pod that nobody
answers for is not watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError, UsageError
from runwatch.k8s.api import Access, Api
from runwatch.k8s.certificates import Certificates, FromFiles, OfOurOwn, Served
from runwatch.k8s.counted import TYPE, Counted
from runwatch.k8s.judge import Judge, Verdict
from runwatch.k8s.reviews import BadReview, Question, answer, question_in
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.workloads import Workloads

MOST_BYTES: Final = 8 << 20
"""A pod has at most 3 MiB on its way, and JSON in JSON is longer."""
AT_ONCE: Final = 64
MOST_WAITING: Final = 4096
LOOK_SECONDS: Final = 30.0
END_SECONDS: Final = 5.0
logger = logging.getLogger("runwatch.webhook")


class Webhook:
    def __init__(
        self, judge: Judge, certificates: Certificates, *, clock: Clock = system_clock
    ) -> None:
        self.counted = Counted()
        self.served = Served()
        self._judge, self._certificates, self._clock = judge, certificates, clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._is_leaving = False

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post("/mutate", self._mutate)
        app.router.add_get("/healthz", self._healthy)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def renew(self) -> None:
        """Serve what is to be served now.  Raises RunwatchError; what was served still is."""
        if self.served.take(await self._certificates.look()):
            logger.info("a certificate is served that was not before")

    async def keep_renewing(self, seconds: float = LOOK_SECONDS) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.renew()
            except RunwatchError as error:
                logger.warning("the certificate stays as it is: %s", error)

    def leave(self) -> None:
        """No longer ready, and no connection is kept: who asks finds another one."""
        self._is_leaving = True

    # ── what is asked ─────────────────────────────────────────────────────────────────────────

    async def _mutate(self, request: web.Request) -> web.Response:
        began_ns = self._clock.mono_ns()
        try:
            question = question_in(await request.read())
        except BadReview as error:
            self._count("bad", began_ns)
            return web.Response(status=400, text=f"{error}\n")
        verdict = await self._in_turn(question)
        self._count(verdict.outcome, began_ns)
        response = web.json_response(verdict.review)
        if self._is_leaving:
            response.force_close()
        return response

    async def _in_turn(self, question: Question) -> Verdict:
        """The wait for a turn and the work have one deadline."""
        if self._waiting >= MOST_WAITING:
            return _crowded(question)
        until = asyncio.get_running_loop().time() + self._judge.settings.seconds
        self._waiting += 1
        try:
            async with asyncio.timeout_at(until):
                await self._turns.acquire()
        except TimeoutError:
            return _crowded(question)
        finally:
            self._waiting -= 1
        try:
            return await self._judge.judge(question, until)
        finally:
            self._turns.release()

    def _count(self, outcome: str, began_ns: int) -> None:
        self.counted.add(outcome, (self._clock.mono_ns() - began_ns) / 1e9)

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        if self._is_leaving:
            return web.Response(status=503, text="it was told to end\n")
        if not self.served.is_ready:
            return web.Response(status=503, text="there is no certificate yet\n")
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        text = self.counted.text(certificate_until=self.served.until)
        return web.Response(text=text, headers={"Content-Type": TYPE})


def _crowded(question: Question) -> Verdict:
    why = "this pod is not watched: too many pods are made at this moment"
    return Verdict("late", answer(question.uid, warnings=[why]))


@contextlib.asynccontextmanager
async def serving(
    settings: WebhookSettings,
    access: Access,
    *,
    clock: Clock = system_clock,
    look_seconds: float = LOOK_SECONDS,
) -> AsyncIterator[tuple[Webhook, int]]:
    """The webhook while it serves, and its port."""
    async with Api(access, seconds=settings.seconds, clock=clock) as api:
        workloads = Workloads(api, clock=clock)
        webhook = Webhook(
            Judge(workloads, settings, access.namespace, clock),
            _certificates(settings, api, access.namespace, clock),
            clock=clock,
        )
        renewing = asyncio.create_task(_begin(webhook, look_seconds))
        runner = web.AppRunner(webhook.app(), access_log=None, shutdown_timeout=END_SECONDS)
        await runner.setup()
        try:
            site = web.TCPSite(
                runner,
                settings.bind,
                settings.port,
                ssl_context=webhook.served.context,
                backlog=1024,
            )
            try:
                await site.start()
            except OSError as error:
                raise UsageError(
                    f"cannot listen on {settings.bind} port {settings.port}: "
                    f"{os.strerror(error.errno or 0)}; choose another with --port"
                ) from error
            yield webhook, runner.addresses[0][1]
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await runner.cleanup()
            await workloads.close()


async def _begin(webhook: Webhook, look_seconds: float) -> None:
    """Until there is a first certificate the server is not ready, and pods start unwatched."""
    wait_seconds = min(1.0, look_seconds)
    while not webhook.served.is_ready:
        try:
            await webhook.renew()
        except RunwatchError as error:
            logger.warning("there is no certificate yet: %s", error)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, look_seconds)
    await webhook.keep_renewing(look_seconds)


def _certificates(
    settings: WebhookSettings, api: Api, namespace: str, clock: Clock
) -> Certificates:
    if settings.certificate is not None and settings.key is not None:
        return FromFiles(settings.certificate, settings.key)
    service = f"{settings.service}.{namespace}.svc"
    names = (service, f"{service}.cluster.local", f"{settings.service}.{namespace}")
    return OfOurOwn(
        api, namespace, settings.certificate_secret, settings.configuration, names, clock
    )


async def run(settings: WebhookSettings, access: Access) -> None:
    """Until SIGTERM or SIGINT; a second one ends it at once."""
    told: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.put_nowait, number)
    async with serving(settings, access) as (webhook, port):
        logger.info("listening at %s:%d", settings.bind, port)
        if await told.get() == signal.SIGTERM:
            webhook.leave()
            logger.info("told to end: pods are answered for another %g s", settings.leave_seconds)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.get(), settings.leave_seconds)
    logger.info("ended")
