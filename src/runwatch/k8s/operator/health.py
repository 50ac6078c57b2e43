"""What the kubelet and Prometheus ask the operator: /healthz, /readyz and /metrics."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web

from runwatch.k8s.counted import TYPE
from runwatch.k8s.operator.lease import Lease
from runwatch.k8s.operator.work import Work

Lines = Mapping[str, Work[Any]]
_NUMBERS: Final = (
    ("waiting", "gauge", "Keys in a line of work, waiting or handled at this moment."),
    ("handled_total", "counter", "Keys that were handled."),
    ("failed_total", "counter", "Keys that failed, and come again."),
)


@contextlib.asynccontextmanager
async def answering(
    bind: str, port: int, lease: Lease, lines: Callable[[], Lines]
) -> AsyncIterator[int]:
    """The port."""

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        # One that waits for its turn is ready as well: it can take over.
        if not lease.holder:
            return web.Response(status=503, text="the lease was not read yet\n")
        return web.Response(text=f"{lease.holder} works\n")

    async def metrics(_: web.Request) -> web.Response:
        text = "\n".join((*_metrics(lease, lines()), ""))
        return web.Response(text=text, headers={"Content-Type": TYPE})

    app = web.Application()
    app.router.add_get("/healthz", healthy)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, bind, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _metrics(lease: Lease, lines: Lines) -> Iterator[str]:
    name = "runwatch_operator_is_leader"
    yield f"# HELP {name} Whether this operator works (1) or waits for its turn (0)."
    yield f"# TYPE {name} gauge"
    yield f"{name} {int(lease.is_held)}"
    for what, kind, meaning in _NUMBERS:
        name = f"runwatch_operator_{what}"
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} {kind}"
        for line, work in lines.items():
            number = {"waiting": len(work), "handled_total": work.handled}.get(what, work.failed)
            yield f'{name}{{line="{line}"}} {number}'
