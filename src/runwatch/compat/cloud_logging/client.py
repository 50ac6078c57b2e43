"""The part of `google.cloud.logging` that programs for the originals use, without the package."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from runwatch.compat.cloud_logging.lines import attach, say, told

DEFAULT_LOGGER_NAME: Final = "python"
ASCENDING: Final = "timestamp asc"
DESCENDING: Final = "timestamp desc"


class Resource(NamedTuple):
    type: str
    labels: Mapping[str, str]


class Logger:
    """Entries with a name.  None can be read back: `runwatch logs` shows them."""

    def __init__(
        self, name: str, client: Client, *, labels: Mapping[str, str] | None = None, **_: Any
    ) -> None:
        self.name = name
        self.client = client
        self.labels = labels

    def log(self, message: object = None, *, severity: str | None = None, **_: Any) -> None:
        say((severity or "DEFAULT").upper(), self.name, "" if message is None else message)

    def log_text(self, text: str, *, severity: str | None = None, **_: Any) -> None:
        self.log(text, severity=severity)

    def log_struct(self, info: Mapping[str, Any], *, severity: str | None = None, **_: Any) -> None:
        self.log(info, severity=severity or info.get("severity"))

    def log_empty(self, *, severity: str | None = None, **_: Any) -> None:
        self.log(severity=severity)

    def batch(self, **_: Any) -> Batch:
        return Batch(self)

    def list_entries(self, **_: Any) -> Iterator[Any]:
        return iter(())

    def delete(self, **_: Any) -> None:
        """There is nothing elsewhere that could be deleted."""


class Batch(Logger):
    """Entries are written as they come; there is no request to save."""

    def __init__(self, logger: Logger) -> None:
        super().__init__(logger.name, logger.client, labels=logger.labels)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.commit()

    def commit(self, **_: Any) -> None:
        """They are written."""


class CloudLoggingHandler(logging.Handler):
    def __init__(self, client: object, *, name: str = DEFAULT_LOGGER_NAME, **_: Any) -> None:
        super().__init__()
        self.client = client
        self.name = name

    def emit(self, record: logging.LogRecord) -> None:
        payload = record.msg if isinstance(record.msg, Mapping) else self.format(record)
        say(record.levelname, record.name, payload)


class Client:
    """Needs no account, and has none."""

    def __init__(self, *, project: str | None = None, **_: Any) -> None:
        self.project = project
        told("google-cloud-logging is not installed")

    def logger(
        self, name: str, *, labels: Mapping[str, str] | None = None, resource: Any = None
    ) -> Logger:
        return Logger(name, self, labels=labels)

    def get_default_handler(self, **options: Any) -> CloudLoggingHandler:
        return CloudLoggingHandler(self, **options)

    def setup_logging(
        self, *, log_level: int = logging.INFO, excluded_loggers: Any = (), **options: Any
    ) -> None:
        attach(self.get_default_handler(**options), log_level)

    def list_entries(self, **_: Any) -> Iterator[Any]:
        return iter(())

    def flush_handlers(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""


def setup_logging(
    handler: logging.Handler, *, excluded_loggers: Any = (), log_level: int = logging.INFO
) -> None:
    attach(handler, log_level)
