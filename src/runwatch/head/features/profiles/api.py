"""Everything about profiles in one head: their API, and the viewers' pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from runwatch.errors import UsageError
from runwatch.head.context import Context, Feature
from runwatch.head.features.profiles.answers import ProfileDesk
from runwatch.head.features.profiles.pages import missing, page
from runwatch.head.features.profiles.perfetto import Perfetto, assets
from runwatch.head.features.profiles.summary import Summaries
from runwatch.head.features.profiles.viewer_process import Viewer
from runwatch.head.features.profiles.viewer_proxy import XprofProxy
from runwatch.head.http.answering import routed
from runwatch.head.http.openapi import Operation
from runwatch.head.http.parameters import Parameter, parse
from runwatch.record import Batch
from runwatch.record.captures import STARTED, ProfileEvent

_TRACE: Final = tuple(
    Parameter(name, "string", words, shortest=1, required=True)
    for name, words in (("run", "a run"), ("session", "a session of it"), ("file", "a trace in it"))
)


class ProfilesApi(Feature):
    """Profiles, their summaries, and the viewers' pages."""

    def __init__(self, context: Context) -> None:
        self.profiles = context.profiles
        settings = context.serving.viewer
        self.desk = ProfileDesk(self.profiles, Summaries(self.profiles.all))
        self.viewer = Viewer(
            self.profiles.all,
            memory_bytes=settings.memory_bytes,
            idle_seconds=settings.idle_seconds,
        )
        self._eager = settings.summarises_at_once
        perfetto = assets()
        self._perfetto = Perfetto(perfetto)
        self._xprof = XprofProxy(self.viewer)
        self._list = page("profiles.html")
        self._trace = missing("Perfetto") if perfetto is None else page("trace.html")

    def operations(self) -> list[Operation]:
        return self.desk.operations()

    def routes(self) -> list[Route]:
        return [
            Route("/viewers", routed("/viewers", _to_list), methods=["GET"]),
            Route("/viewers/", routed("/viewers/", self._list_page), methods=["GET"]),
            Route("/viewers/trace", routed("/viewers/trace", self._trace_page), methods=["GET"]),
            *self._xprof.routes(),
            *self._perfetto.routes(),
        ]

    def stored(self, batches: Sequence[Batch]) -> None:
        if self._eager and any(
            event.kind == ProfileEvent.KIND and ProfileEvent.of(event.body).state != STARTED
            for batch in batches
            for event in batch.events
        ):
            self.desk.summaries.look()

    def kept(self, path: Path) -> None:
        """An agent has brought a file of a profile."""
        if self._eager:
            self.desk.summaries.look()

    def close(self) -> None:
        self.viewer.close()
        self.desk.close()

    async def _list_page(self, request: Request) -> Response:
        return self._list

    async def _trace_page(self, request: Request) -> Response:
        given = parse(_TRACE, request.scope["query_string"], {})
        words = given["run"], given["session"], given["file"]
        why = await run_in_threadpool(self.desk.trace, *words)
        if why:
            raise UsageError(why)
        return self._trace


async def _to_list(request: Request) -> Response:
    return RedirectResponse("viewers/", 307)
