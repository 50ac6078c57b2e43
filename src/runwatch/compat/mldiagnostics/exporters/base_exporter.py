"""What an exporter is, and what it is given.  A program may bring its own."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runwatch.sdk.guard import guarded

logger = logging.getLogger("google_cloud_mldiagnostics.exporters.base_exporter")


@dataclass(frozen=True)
class MetricPoint:
    name: str
    value: float | int
    step: int | None = None
    labels: Mapping[str, str] | None = None
    timestamp: datetime | None = None


@dataclass(frozen=True)
class LogEntry:
    body: str | Mapping[str, Any]
    severity: str = "INFO"
    step: int | None = None
    labels: Mapping[str, str] | None = None
    timestamp: datetime | None = None


class BaseMetricsExporter(ABC):
    def __init__(self, resource_attributes: Mapping[str, Any]) -> None:
        self.resource_attributes = resource_attributes

    @abstractmethod
    def export(self, batch: Sequence[MetricPoint]) -> None: ...

    def shutdown(self) -> None:  # noqa: B027  (an exporter need not have anything to end)
        """Nothing to end."""


class BaseLogsExporter(ABC):
    def __init__(self, resource_attributes: Mapping[str, Any]) -> None:
        self.resource_attributes = resource_attributes

    @abstractmethod
    def export(self, batch: Sequence[LogEntry]) -> None: ...

    def shutdown(self) -> None:  # noqa: B027
        """Nothing to end."""

    def force_flush(self) -> None:  # noqa: B027
        """Nothing is held back."""


class CompositeMetricsExporter(BaseMetricsExporter):
    """One that fails does not keep the batch from the others."""

    def __init__(
        self, exporters: Sequence[BaseMetricsExporter], resource_attributes: Mapping[str, Any]
    ) -> None:
        super().__init__(resource_attributes)
        self._exporters = exporters

    def export(self, batch: Sequence[MetricPoint]) -> None:
        for exporter in self._exporters:
            _call(exporter, "export", batch)

    def shutdown(self) -> None:
        for exporter in self._exporters:
            _call(exporter, "shutdown")


class CompositeLogsExporter(BaseLogsExporter):
    """One that fails does not keep the batch from the others."""

    def __init__(
        self, exporters: Sequence[BaseLogsExporter], resource_attributes: Mapping[str, Any]
    ) -> None:
        super().__init__(resource_attributes)
        self._exporters = exporters

    def export(self, batch: Sequence[LogEntry]) -> None:
        for exporter in self._exporters:
            _call(exporter, "export", batch)

    def shutdown(self) -> None:
        for exporter in self._exporters:
            _call(exporter, "shutdown")

    def force_flush(self) -> None:
        for exporter in self._exporters:
            _call(exporter, "force_flush")


@guarded("call an exporter")
def _call(exporter: object, method: str, *given: object) -> None:
    getattr(exporter, method)(*given)
