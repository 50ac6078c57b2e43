"""Google's own client where there are no credentials: all of it works, and what it would send is
recorded in the run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from types import ModuleType
from typing import Any, Final

from runwatch.compat.cloud_logging.account import may_have_account
from runwatch.compat.cloud_logging.lines import attach, say, told

PROJECT: Final = "runwatch"
_PAYLOADS: Final = ("textPayload", "jsonPayload", "protoPayload")
_OWN_ENTRY: Final = "logging.googleapis.com/diagnostic"
"""In which the library tells Google its version."""
_SEVERITIES: Final[dict[object, str]] = {
    100: "DEBUG", 200: "INFO", 300: "NOTICE", 400: "WARNING", 500: "ERROR", 600: "CRITICAL",
    700: "ALERT", 800: "EMERGENCY",
}  # fmt: skip


def adapt(module: ModuleType) -> None:
    """`module` is google.cloud.logging_v2.client.  A client that is given credentials, or may find
    some, is made as ever."""
    client: Any = module.Client
    if hasattr(client.__init__, "of_runwatch"):
        return
    make = client.__init__
    without_account = _without_account(client)

    @wraps(make)
    def init(self: Any, *args: Any, **given: Any) -> None:
        chosen = any(given.get(name) for name in ("credentials", "_http", "client_options"))
        if args or chosen or may_have_account():
            make(self, *args, **given)
        else:
            _begin(make, self, given)
            if type(self) is client:
                self.__class__ = without_account

    init.of_runwatch = True  # type: ignore[attr-defined]
    client.__init__ = init


def _begin(make: Callable[..., None], client: Any, given: Mapping[str, Any]) -> None:
    from google.auth.credentials import AnonymousCredentials

    told("google.cloud.logging finds no credentials")
    project = given.get("project") or os.environ.get("GOOGLE_CLOUD_PROJECT") or PROJECT
    nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
    make(client, **{**given, "project": project, "credentials": nobody})
    client._logging_api = RunApi()


def _without_account(client: Any) -> Any:
    """The client's class, but that it asks no metadata service where it is, and writes at once: a
    thread of its own would end after the run."""

    class Client(client):  # type: ignore[misc]
        def logger(self, name: str, *, labels: Any = None, resource: Any = None) -> Any:
            return super().logger(name, labels=labels, resource=resource or _nowhere())

        def get_default_handler(self, **options: Any) -> logging.Handler:
            from google.cloud.logging_v2.handlers import CloudLoggingHandler
            from google.cloud.logging_v2.handlers.transports import SyncTransport

            chosen = {"resource": _nowhere(), "transport": SyncTransport, **options}
            handler: logging.Handler = CloudLoggingHandler(self, **chosen)
            return handler

        def setup_logging(
            self, *, log_level: int = logging.INFO, excluded_loggers: Any = (), **options: Any
        ) -> None:
            attach(self.get_default_handler(**options), log_level)

    Client.__qualname__ = client.__qualname__
    Client.__module__ = client.__module__
    return Client


def _nowhere() -> Any:
    from google.cloud.logging_v2.resource import Resource

    return Resource(type="global", labels={})


class RunApi:
    """What the client sends its entries by."""

    def write_entries(
        self, entries: Iterable[Mapping[str, Any]], *, logger_name: str | None = None, **_: Any
    ) -> None:
        for entry in entries:
            payload = next((entry[key] for key in _PAYLOADS if key in entry), "")
            if isinstance(payload, Mapping) and _OWN_ENTRY in payload:
                continue
            log = str(entry.get("logName") or logger_name or "").rpartition("/")[2]
            logger = (entry.get("labels") or {}).get("python_logger", log)
            severity = entry.get("severity") or "DEFAULT"
            say(_SEVERITIES.get(severity, str(severity)), logger, payload)

    def list_entries(self, *_: Any, **__: Any) -> Iterator[Any]:
        """None: `runwatch logs` shows them."""
        return iter(())

    def logger_delete(self, *_: Any, **__: Any) -> None:
        """There is nothing elsewhere that could be deleted."""
