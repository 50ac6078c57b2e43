"""The webhook's certificate: from files, or our own, kept in a Secret; renewed while we serve.

`look` is called now and then, and gives what the server is to serve from now on.  Files are read
again (cert-manager renews them, the kubelet brings them).  Our own (`generations.py`) are in a
Secret that all replicas share: who writes first is right, by the version of the object.  Their
authorities go into the MutatingWebhookConfiguration, where the API server reads whom to trust.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from cryptography import x509

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.k8s import generations
from runwatch.k8s.api import STEPS, Api, ApiError
from runwatch.k8s.generations import Generation
from runwatch.kube import Thing, part, parts, path_of, text

KEY: Final = "generations.json"
TRIES: Final = 5
CONFIGURATIONS: Final = "admissionregistration.k8s.io/v1"
logger = logging.getLogger("runwatch.webhook")


class Pair(NamedTuple):
    """A certificate with its key, as PEM."""

    certificate: bytes
    key: bytes


class Certificates(Protocol):
    async def look(self) -> Pair:
        """What to serve now.  Raises RunwatchError if that cannot be found out."""
        ...


@dataclass(frozen=True, slots=True)
class FromFiles:
    certificate: Path
    key: Path

    async def look(self) -> Pair:
        try:
            return Pair(self.certificate.read_bytes(), self.key.read_bytes())
        except OSError as error:
            raise RunwatchError(f"cannot read the webhook's certificate: {error}") from error


@dataclass(slots=True)
class OfOurOwn:
    api: Api
    namespace: str
    secret: str
    configuration: str
    names: Sequence[str]
    """For which the certificate is: those of the service."""
    clock: Clock = system_clock
    kept: Sequence[Generation] = field(default_factory=list)

    async def look(self) -> Pair:
        self.kept = await self._keep()
        await self._trust()
        now = generations.served(self.kept, self.clock.wall_ns())
        return Pair(now.certificate.encode(), now.key.encode())

    async def _keep(self) -> list[Generation]:
        """What the Secret has, renewed if it is time."""
        for _ in range(TRIES):
            secret = await self._read()
            kept = _kept_in(secret) if secret is not None else []
            wanted = generations.renewed(kept, self.names, self.clock.wall_ns())
            if wanted == kept:
                return wanted
            try:
                await self._write(secret, wanted)
            except ApiError as error:
                if error.status != 409:
                    raise
                continue  # another replica was first: what it wrote is right
            logger.info("the webhook has a new certificate in the secret %r", self.secret)
            return wanted
        raise ApiError(f"the secret {self.secret!r} changes again and again", 409, "Conflict")

    async def _read(self) -> Thing | None:
        try:
            return await self.api.get(path_of("v1", "secrets", self.namespace, self.secret))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, secret: Thing | None, wanted: Sequence[Generation]) -> None:
        content = base64.b64encode(generations.written(wanted).encode()).decode()
        if secret is None:
            about = {"name": self.secret, "namespace": self.namespace}
            made: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": about}
            made |= {"type": "Opaque", "data": {KEY: content}}
            await self.api.create(path_of("v1", "secrets", self.namespace), made)
            return
        # The version is of what we read: if it has changed since, this is refused.
        version = text(part(secret, "metadata"), "resourceVersion")
        change = {"metadata": {"resourceVersion": version}, "data": {KEY: content}}
        await self.api.patch(path_of("v1", "secrets", self.namespace, self.secret), change)

    async def _trust(self) -> None:
        """Have the API server trust every authority that we keep."""
        path = path_of(CONFIGURATIONS, "mutatingwebhookconfigurations", "", self.configuration)
        for _ in range(TRIES):
            found = await self.api.get(path)
            bundle = base64.b64encode(generations.bundle(self.kept).encode()).decode()
            changes = list(_changes(found, bundle))
            if not changes:
                return
            version = text(part(found, "metadata"), "resourceVersion")
            same = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            try:
                await self.api.patch(path, [same, *changes], form=STEPS)
            except ApiError as error:
                if error.status not in (409, 422):
                    raise
                continue
            return
        raise ApiError(f"{self.configuration!r} changes again and again", 409, "Conflict")


def _kept_in(secret: Thing) -> list[Generation]:
    try:
        content = base64.b64decode(text(part(secret, "data"), KEY))
        return generations.read(content.decode())
    except ValueError:
        return []


def _changes(configuration: Thing, bundle: str) -> Iterator[dict[str, Any]]:
    for at, webhook in enumerate(parts(configuration.get("webhooks"))):
        if text(part(webhook, "clientConfig"), "caBundle") != bundle:
            yield {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": bundle}


class Served:
    """What the server shows to those who connect.  Connections that are there stay as they are."""

    def __init__(self) -> None:
        self.context = _new_context()
        self.context.sni_callback = self._show
        self._now: Pair | None = None
        self._current = self.context
        self.until: float | None = None
        """When the certificate expires: seconds since the epoch."""

    @property
    def is_ready(self) -> bool:
        return self._now is not None

    def take(self, pair: Pair) -> bool:
        """Whether it is another than before.  A pair that does not fit (its two files are read
        while they change) leaves all as it was, and is a RunwatchError."""
        if pair == self._now:
            return False
        # A new context each time: one that is used again keeps old ones of another sort of key.
        fresh = _new_context()
        try:
            until = x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc
            with _file(pair.certificate) as certificate, _file(pair.key) as key:
                fresh.load_cert_chain(certificate, key, password="")  # nobody is asked for one
        except (ssl.SSLError, ValueError) as error:
            raise RunwatchError(f"the webhook's certificate cannot be used: {error}") from error
        self._now, self._current, self.until = pair, fresh, until.timestamp()
        return True

    def _show(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        """Before the server shows a certificate, also to those who name no host."""
        connection.context = self._current


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """OpenSSL reads files only; this one is in memory, and the key is on no disk."""
    number = os.memfd_create("runwatch-certificate")
    with os.fdopen(number, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{number}"
