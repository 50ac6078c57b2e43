"""A connection to a Google service, through its own client library.

Made when it is first needed, and anew after a failure: credentials may have been renewed, and a
connection may be half open.  Every request has a deadline, which grows while answers come too late
and shrinks again when they come early.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from runwatch.clock import Clock, system_clock
from runwatch.head.cloud import failures
from runwatch.head.cloud.failures import LOGGING, Service
from runwatch.head.forward.forwarder import Trouble

T = TypeVar("T")
MOST_PATIENCE: Final = 8
"""The deadline is never longer than so many times the one that was set."""
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a service is."""

    service: Service
    project: str = ""
    """Empty: the credentials' own."""
    endpoint: str = ""
    """Empty: Google's."""
    insecure: bool = False
    timeout_seconds: float = 30.0


class Connection:
    """For one thread; `interrupt` is for any."""

    def __init__(self, place: Place, *, clock: Clock = system_clock) -> None:
        self._place = place
        self._clock = clock
        self._client: Any = None
        self._project = ""
        self._patience = 1
        self._lock = threading.Lock()
        self._over = False

    @property
    def project(self) -> str:
        """Known once `ready` was called: the credentials may say which it is."""
        return self._project

    def ready(self) -> None:
        """Make a connection if there is none.  Raises `Trouble` for what is missing here."""
        self._connected()

    def call(self, send: Callable[[Any, float], T]) -> T:
        """`send` gets the client and the deadline in seconds.  Raises `Trouble` or `Refused`."""
        from google.api_core.exceptions import DeadlineExceeded, GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError

        client = self._connected()
        seconds = self._place.timeout_seconds * self._patience
        begun_ns = self._clock.mono_ns()
        try:
            answer = send(client, seconds)
        except GoogleAPICallError as error:
            if isinstance(error, DeadlineExceeded):
                self._patience = min(self._patience * 2, MOST_PATIENCE)
            service = self._place.service
            raise failures.of_call(error, service, self._project, seconds) from error
        except GoogleAuthError as error:
            raise failures.of_credentials(error) from error
        except ValueError as error:  # the channel was closed
            raise Trouble(failures.words(error)) from error
        if (self._clock.mono_ns() - begun_ns) / 1e9 < seconds / 4:
            self._patience = max(self._patience // 2, 1)
        return answer

    def let_go(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.transport.close()

    def interrupt(self) -> None:
        """End the request that is under way, and make no other."""
        self._over = True
        self.let_go()

    def _connected(self) -> Any:
        if self._client is None:
            client, project = self._connect()
            if not project:
                client.transport.close()
                raise failures.no_project(self._place.service)
            self._project = project
            with self._lock:
                self._client = client
        if self._over:
            self.let_go()
            raise Trouble("the head ends")
        return self._client

    def _connect(self) -> tuple[Any, str]:
        place = self._place
        try:
            import google.auth
            from google.auth.exceptions import GoogleAuthError

            client, transport = _library(place.service)
        except ImportError as error:
            raise failures.missing(place.service) from error
        if place.insecure:
            import grpc

            project = place.project or os.environ.get("GOOGLE_CLOUD_PROJECT", "")
            channel = grpc.insecure_channel(place.endpoint)
            return client(transport=transport(channel=channel)), project
        try:
            credentials, own = google.auth.default(scopes=[SCOPE])
        except (GoogleAuthError, OSError) as error:
            raise failures.of_credentials(error) from error
        options = {"api_endpoint": place.endpoint} if place.endpoint else None
        made = client(credentials=credentials, client_options=options)
        return made, place.project or own or ""


def _library(service: Service) -> tuple[Any, Any]:
    """The client's class, and that of its transport."""
    if service is LOGGING:
        from google.cloud.logging_v2.services.logging_service_v2 import (
            LoggingServiceV2Client,
            transports,
        )

        return LoggingServiceV2Client, transports.LoggingServiceV2GrpcTransport
    from google.cloud.monitoring_v3.services.metric_service import MetricServiceClient
    from google.cloud.monitoring_v3.services.metric_service.transports import (
        MetricServiceGrpcTransport,
    )

    return MetricServiceClient, MetricServiceGrpcTransport
