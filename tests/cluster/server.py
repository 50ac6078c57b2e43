"""`Cluster`: an API server in a thread of its own, on a port of its own, over TLS."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import trustme
from aiohttp import web

from tests.cluster import accounts
from tests.cluster.accounts import Accounts
from tests.cluster.admission import Admission, Called
from tests.cluster.faults import Asked, Faults
from tests.cluster.front import Front, cut
from tests.cluster.garbage import Garbage
from tests.cluster.hands import Hands
from tests.cluster.kinds import Kinds
from tests.cluster.storage import Storage
from tests.cluster.subresources import Subresources
from tests.cluster.verbs import Verbs

Thing = dict[str, Any]
HOST: Final = "127.0.0.1"
_NAMES: Final = ("localhost", "kubernetes.default.svc", "kubernetes.default", "kubernetes")
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class Answer(NamedTuple):
    status: int
    thing: Thing
    headers: Mapping[str, str]


class Cluster(Hands):
    """`with Cluster(tmp_path) as cluster: …`.  `directory` gets kubeconfigs and accounts' files."""

    def __init__(
        self,
        directory: Path,
        *,
        enforced: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self.faults = Faults()
        self.services: dict[tuple[str, str], tuple[str, int]] = {}
        """Where a webhook's Service (namespace, name) is: host and port."""
        self.ports: dict[tuple[str, str], dict[int, tuple[str, int]]] = {}
        """Where ports of a pod (namespace, name) are, for `kubectl port-forward`.  Else: here."""
        self._authority = trustme.CA()
        self._enforced = enforced
        self._clock = clock
        self._sockets: list[socket.socket] = []
        self._server: asyncio.Server | None = None
        self._http: web.Server | None = None
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._failed: BaseException | None = None

    # ── as whom it is asked ───────────────────────────────────────────────────────────────────

    @property
    def port(self) -> int:
        port: int = self._sockets[0].getsockname()[1]
        return port

    @property
    def server(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def ca(self) -> bytes:
        return self._authority.cert_pem.bytes()

    @property
    def environment(self) -> dict[str, str]:
        """As every pod has it."""
        return {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(self.port)}

    @property
    def kubeconfig(self) -> Path:
        """An admin's."""
        return self._config(self.directory / "admin.kubeconfig", self.admin_token, "default")

    def account(self, namespace: str, name: str) -> Path:
        """The folder that the kubelet lays into a pod of this service account: `token`, `ca.crt`,
        `namespace`.  The account is made if it is not there.  Asked again, the token is a new one
        and the old is still good."""
        self.namespace(namespace)
        place = {"name": name, "namespace": namespace}
        self.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place}])
        uid = self.get("ServiceAccount", name, namespace)["metadata"]["uid"]
        token = self._now(lambda: self.accounts.issue(namespace, name, uid))
        folder = self.directory / "accounts" / namespace / name
        accounts.lay(folder, token, self.ca, namespace)
        return folder

    def withdraw(self, namespace: str, name: str) -> None:
        """No token of the account is good any more."""
        self._now(lambda: self.accounts.withdraw(namespace, name))

    def kubeconfig_of(self, namespace: str, name: str) -> Path:
        """A service account's."""
        token = (self.account(namespace, name) / "token").read_text()
        return self._config(self.directory / f"{namespace}.{name}.kubeconfig", token, namespace)

    def _config(self, path: Path, token: str, namespace: str) -> Path:
        ca_file = self.directory / "ca.crt"
        ca_file.write_bytes(self.ca)
        accounts.kubeconfig(path, self.server, ca_file, token, namespace)
        return path

    # ── what was asked ────────────────────────────────────────────────────────────────────────

    @property
    def asked(self) -> list[Asked]:
        """Every request that was done, watches when they ended."""
        return list(self._front.asked)

    @property
    def reviews(self) -> list[Called]:
        """Every call of a webhook."""
        return list(self._admission.calls)

    def watching(self) -> int:
        """So many watches are running."""
        return len(self._front.watches)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One real request over HTTP, by default as an admin."""
        said = {"Accept": "application/json", "Content-Type": "application/json"}
        said |= {"Authorization": f"Bearer {self.admin_token if token is None else token}"}
        said |= headers or {}
        trust = ssl.create_default_context(cadata=self.ca.decode())
        connection = HTTPSConnection(HOST, self.port, context=trust, timeout=60)
        try:
            data = body if isinstance(body, str | bytes | None) else json.dumps(body)
            connection.request(method, path, data, said)
            response = connection.getresponse()
            told = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            thing = json.loads(told) if is_json else {"text": told.decode()}
            return Answer(response.status, thing, dict(response.headers))
        finally:
            connection.close()

    # ── its life ──────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._sockets = [_bound(0)]
        self.thread = threading.Thread(target=self._run, name="tests-cluster")
        self.thread.start()
        self._ready.wait()
        if self._failed is not None:
            self.__exit__(None, None, None)
            raise self._failed
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
        self.thread.join()
        for each in self._sockets:
            each.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  the test's thread raises it
            self._failed = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._build()
        for name in _NAMESPACES:
            await self._created(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, ""
            )
        await self._up()
        self._ready.set()
        await self._stop.wait()
        await self._down()
        await self._admission.close()

    def _build(self) -> None:
        self.storage = Storage()
        self.kinds = Kinds()
        self.accounts = Accounts()
        self.admin_token = self.accounts.admin()
        self._admission = Admission(self.storage, self.services)
        garbage = Garbage(self.storage, self.kinds, self._written_now)
        self.verbs = Verbs(
            self.storage, self.kinds, self._admission, garbage, self._written_now, self.ca.decode()
        )
        self._front = Front(
            self.storage,
            self.kinds,
            self.verbs,
            Subresources(self.storage, self.verbs, self.accounts),
            self.accounts,
            self.faults,
            self._clock,
            self._enforced,
            self.ports,
        )
        self.faults.drop_watches = lambda: self._now(self._drop_watches)
        self.faults.end_watches = lambda: self._now(self._end_watches)
        self.faults.compact = lambda: self._now(self.storage.compact)
        self.faults.down = lambda: self._later(self._down())
        self.faults.up = lambda: self._later(self._up())

    def _written_now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _drop_watches(self) -> None:
        for watch in list(self._front.watches):
            if watch.transport is not None:
                watch.transport.abort()

    def _end_watches(self) -> None:
        for watch in list(self._front.watches):
            watch.ending.set()
        self.storage.wake()

    async def _up(self) -> None:
        if self._server is not None:
            return
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(HOST, *_NAMES).configure_cert(trust)
        self._http = http = web.Server(
            lambda request: self._handled(request, http), handler_cancellation=True, access_log=None
        )
        self._server = await self.loop.create_server(
            self._http, sock=_bound(self.port), ssl=trust, backlog=1024
        )

    async def _handled(self, request: web.BaseRequest, http: web.Server) -> web.StreamResponse:
        # A TLS handshake may end after its server went down.
        return await self._front.handle(request) if http is self._http else cut(request)

    async def _down(self) -> None:
        if self._server is None or self._http is None:
            return
        for listening in self._server.sockets:
            self.loop.remove_reader(listening)
        # A connection that was accepted gets its transport now.  A closed server would leave it
        # open and unread, and its client would wait for the handshake.
        await asyncio.sleep(0)
        self._server.close()
        for connection in self._http.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._http.shutdown(0)
        await self._server.wait_closed()
        self._server = self._http = None


def _bound(port: int) -> socket.socket:
    """The first one only keeps the port for us while nobody listens."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((HOST, port))
    return made
