"""The API server, asked with a service account.  The one file here that makes requests to it.

The kubelet renews the account's token, so it is read again now and then, and when the server takes
the old one no longer.  Every request has a deadline.  What the server refuses is an `ApiError` with
its status; what does not arrive is one with status 0.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError, UsageError
from runwatch.k8s.names import FIELD_MANAGER

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_SECONDS: Final = 10.0
TOKEN_SECONDS: Final = 60.0
"""How long a token is used before its file is read again."""
MERGE: Final = "application/merge-patch+json"
STEPS: Final = "application/json-patch+json"


class ApiError(RunwatchError):
    """The API server did not do what it was asked.  `status` 0: there is no answer."""

    def __init__(self, what: str, status: int = 0, reason: str = "") -> None:
        super().__init__(what)
        self.status = status
        self.reason = reason
        """The server's one word: NotFound, AlreadyExists, Conflict, Invalid …"""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, and as whom it is asked."""

    server: str
    account: Path
    """Holds `token`, `ca.crt` and `namespace`, as the kubelet lays them into a pod."""

    @classmethod
    def in_cluster(
        cls, *, account: Path = ACCOUNT, environment: Mapping[str, str] = os.environ
    ) -> Self:
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
        if not host or not (account / "token").exists():
            raise UsageError(
                "this is no pod with a service account: KUBERNETES_SERVICE_HOST is "
                f"{host or 'not set'}, {account / 'token'} "
                f"{'is there' if (account / 'token').exists() else 'does not exist'}"
            )
        shown = f"[{host}]" if ":" in host else host
        return cls(f"https://{shown}:{port}", account)

    @property
    def token(self) -> str:
        return (self.account / "token").read_text().strip()

    @property
    def ca(self) -> Path:
        return self.account / "ca.crt"

    @property
    def namespace(self) -> str:
        return (self.account / "namespace").read_text().strip()

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))


class Api:
    """`async with Api(access) as api: pod = await api.get(path)`."""

    def __init__(
        self, access: Access, *, seconds: float = ANSWER_SECONDS, clock: Clock = system_clock
    ) -> None:
        self.access = access
        self._seconds = seconds
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._read_ns: int | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self.access.server,
            connector=aiohttp.TCPConnector(ssl=self.access.trust(), limit=32),
            timeout=aiohttp.ClientTimeout(total=self._seconds),
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

    async def get(self, path: str, **parameters: str) -> dict[str, Any]:
        return await self._ask("GET", path, parameters)

    async def create(self, path: str, thing: Mapping[str, Any]) -> dict[str, Any]:
        return await self._ask("POST", path, {"fieldManager": FIELD_MANAGER}, thing)

    async def replace(self, path: str, thing: Mapping[str, Any]) -> dict[str, Any]:
        """With the `resourceVersion` that it has, or 409."""
        return await self._ask("PUT", path, {"fieldManager": FIELD_MANAGER}, thing)

    async def patch(self, path: str, change: object, *, form: str = MERGE) -> dict[str, Any]:
        return await self._ask("PATCH", path, {"fieldManager": FIELD_MANAGER}, change, form)

    async def delete(self, path: str, *, uid: str = "") -> dict[str, Any]:
        """`uid`: only the object that has it, or 409."""
        only = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        return await self._ask("DELETE", path, {}, only if uid else None)

    async def _ask(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        body: object = None,
        form: str = "application/json",
    ) -> dict[str, Any]:
        token = self._current_token()
        try:
            return await self._ask_with(token, method, path, parameters, body, form)
        except ApiError as error:
            if error.status != 401:
                raise
            self._read_ns = None
            if self._current_token() == token:
                raise
        return await self._ask_with(self._token, method, path, parameters, body, form)

    async def _ask_with(
        self,
        token: str,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        body: object,
        form: str,
    ) -> dict[str, Any]:
        assert self._session is not None, "the API is asked inside `async with`"
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        data = None
        if body is not None:
            headers["Content-Type"], data = form, json.dumps(body)
        try:
            async with self._session.request(
                method, path, params=parameters, headers=headers, data=data
            ) as answer:
                told = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            why = str(error) or type(error).__name__
            raise ApiError(f"{method} {path}: {why}") from error
        thing = _object(told)
        if status >= 400:
            said = str(thing.get("message") or told[:200].decode(errors="replace"))
            reason = str(thing.get("reason") or "")
            raise ApiError(f"{method} {path}: {status} {said}", status, reason)
        return thing

    def _current_token(self) -> str:
        now_ns = self._clock.mono_ns()
        if self._read_ns is None or now_ns - self._read_ns > TOKEN_SECONDS * 1e9:
            try:
                self._token, self._read_ns = self.access.token, now_ns
            except OSError as error:
                raise ApiError(
                    f"cannot read our token in {self.access.account}: {error}"
                ) from error
        return self._token


def _object(told: bytes) -> dict[str, Any]:
    try:
        thing = json.loads(told or b"{}")
    except ValueError:
        return {}
    return thing if isinstance(thing, dict) else {}
