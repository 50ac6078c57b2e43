"""The head's HTTP API, as the operator uses it.  Every question has a deadline."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from runwatch.address import http_address
from runwatch.errors import RunwatchError
from runwatch.k8s.operator.settings import OperatorSettings

CONNECTIONS: Final = 16
RUNS_AT_ONCE: Final = 200
EVENTS_AT_ONCE: Final = 10_000
FILE_SECONDS: Final = 600.0
_PIECE: Final = 1 << 20


class HeadError(RunwatchError):
    """The head did not do what it was asked.  `status` 0: there is no answer."""

    def __init__(self, what: str, status: int = 0, code: str = "") -> None:
        super().__init__(what)
        self.status = status
        self.code = code
        """The head's own word: active, not_found …"""


class Head:
    """`async with Head(settings) as head: runs = await head.runs(workload)`."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._base = http_address(settings.head).rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        ca = self._settings.ca_bytes()
        trust = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, limit=CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=self._settings.answer_seconds),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    # ── runs ──────────────────────────────────────────────────────────────────────────────────

    async def runs(self, workload: str) -> list[Mapping[str, Any]]:
        """Of the workload with this uid, the newest first."""
        told = await self._ask("GET", "/runs", workload=workload, limit=str(RUNS_AT_ONCE))
        # An older head does not know the question, and answers with all runs.
        runs = [run for run in _objects(told, "runs") if run.get("workload_uid") == workload]
        return sorted(runs, key=lambda run: -int(run.get("started_ns") or 0))

    async def processes(self, run: str) -> list[Mapping[str, Any]]:
        return _objects(await self._ask("GET", f"/runs/{_safe(run)}/processes"), "processes")

    async def goodput(self, run: str) -> float | None:
        """A share of 1; None: it cannot be told."""
        share = (await self._ask("GET", f"/runs/{_safe(run)}/goodput")).get("goodput")
        return float(share) if isinstance(share, int | float) else None

    async def incidents(self, run: str) -> list[Mapping[str, Any]]:
        """The newest first."""
        return _objects(await self._ask("GET", f"/runs/{_safe(run)}/incidents"), "incidents")

    async def events(self, run: str, kind: str) -> list[Mapping[str, Any]]:
        """The newest first, as many as the head tells at once."""
        path, most = f"/runs/{_safe(run)}/events", str(EVENTS_AT_ONCE)
        told = await self._ask("GET", path, kind=kind, limit=most, newest_first="true")
        return _objects(told, "events")

    # ── captures and profiles ─────────────────────────────────────────────────────────────────

    async def begin_capture(self, run: str, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._ask("POST", f"/runs/{_safe(run)}/captures", wanted)

    async def capture(self, run: str, session: str) -> Mapping[str, Any]:
        return await self._ask("GET", f"/runs/{_safe(run)}/captures/{_safe(session)}")

    async def profile(self, run: str, session: str) -> Mapping[str, Any]:
        return await self._ask("GET", f"/profiles/{_safe(run)}/{_safe(session)}")

    async def file(self, run: str, session: str, name: str, to: Path) -> int:
        """Its bytes go into the file `to`; how many."""
        path = f"/profiles/{_safe(run)}/{_safe(session)}/files/{_safe(name)}"
        size, limits = 0, aiohttp.ClientTimeout(
            total=FILE_SECONDS, sock_read=self._settings.answer_seconds
        )  # fmt: skip
        try:
            async with self._opened("GET", path, timeout=limits) as answer:
                if answer.status != 200:
                    raise _refused(f"GET {path}", answer.status, await answer.read())
                with to.open("wb") as file:
                    async for piece in answer.content.iter_chunked(_PIECE):
                        size += file.write(piece)
        except (aiohttp.ClientError, OSError) as error:
            raise _silent(f"GET {path}", error) from error
        return size

    # ── asking ────────────────────────────────────────────────────────────────────────────────

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **parameters: str
    ) -> Mapping[str, Any]:
        what = f"{method} {path}"
        try:
            async with self._opened(method, path, params=parameters, json=body) as answer:
                status, told = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise _silent(what, error) from error
        if status >= 300:
            raise _refused(what, status, told)
        try:
            found = json.loads(told)
        except ValueError as error:
            raise HeadError(f"{what}: what answers there is no head") from error
        return found if isinstance(found, dict) else {}

    def _opened(self, method: str, path: str, **more: Any) -> aiohttp.client._RequestContextManager:
        assert self._session is not None, "the head is asked inside `async with`"
        token = self._token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{self._base}/api/v1{path}"
        # Names of runs in the path are encoded already.
        return self._session.request(
            method, URL(url, encoded=True), headers=headers, allow_redirects=False, **more
        )

    def _token(self) -> str:
        try:
            return self._settings.operate_token()
        except (RunwatchError, OSError) as error:
            # A Secret that is not there yet: no object is to blame for it.
            raise HeadError(str(error), 401) from error


def _safe(name: str) -> str:
    return quote(name, safe="")


def _objects(told: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = told.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _silent(what: str, error: Exception) -> HeadError:
    return HeadError(f"the head does not answer {what}: {str(error) or type(error).__name__}")


def _refused(what: str, status: int, told: bytes) -> HeadError:
    try:
        error = json.loads(told)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, LookupError, TypeError):
        code, message = "", told[:200].decode(errors="replace")
    return HeadError(message or f"{what}: the head says {status}", status, code)
