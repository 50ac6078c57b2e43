"""The forwarders to Google Cloud that the settings ask for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.head.cloud.clients import Connection, Place
from runwatch.head.cloud.failures import LOGGING, MONITORING
from runwatch.head.cloud.figures import FigureSource
from runwatch.head.cloud.logs import LogSource, wanted
from runwatch.head.cloud.settings import GcpSettings
from runwatch.head.forward.cursor import CursorFile
from runwatch.head.forward.forwarder import Forwarder, Pauses
from runwatch.head.forward.report import Report
from runwatch.head.forward.trail import Trail
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.record import Batch
from runwatch.rows import ProcessRow
from runwatch.store.store import Store
from runwatch.views.runs import RunSummary

FOLDER: Final = "cloud"
LOOK_SECONDS: Final = 1.0


class CloudExporters:
    """Everything that it needs to know is in the head's store; `root` has the cursors."""

    def __init__(
        self,
        settings: GcpSettings,
        root: Path,
        store: Store,
        accounts: Accounts,
        summaries: Callable[[], Sequence[RunSummary]],
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._settings = settings
        self._folder = root / FOLDER
        self._clock = clock
        self._trail: Trail | None = None
        self._forwarders: list[Forwarder] = []
        if settings.logs:
            self._forwarders.append(self._logging(store))
        if settings.monitors:
            self._forwarders.append(self._monitoring(accounts, summaries))

    def _logging(self, store: Store) -> Forwarder:
        settings = self._settings
        self._trail = Trail(
            store,
            CursorFile(self._folder / "logging.json"),
            wanted(settings),
            self._takes,
            backfill_seconds=settings.backfill_hours * 3600,
            clock=self._clock,
        )
        place = Place(
            LOGGING,
            settings.logging_project,
            settings.logging_endpoint,
            settings.insecure,
            settings.timeout_seconds,
        )
        source = LogSource(settings, self._trail, Connection(place, clock=self._clock))
        return self._forwarder(source)

    def _monitoring(
        self, accounts: Accounts, summaries: Callable[[], Sequence[RunSummary]]
    ) -> Forwarder:
        settings = self._settings
        place = Place(
            MONITORING,
            settings.monitoring_project,
            settings.monitoring_endpoint,
            settings.insecure,
            settings.timeout_seconds,
        )
        source = FigureSource(
            settings,
            accounts,
            summaries,
            Connection(place, clock=self._clock),
            CursorFile(self._folder / "monitoring.json"),
            clock=self._clock,
        )
        return self._forwarder(source)

    def _forwarder(self, source: LogSource | FigureSource) -> Forwarder:
        return Forwarder(
            source,
            idle_seconds=LOOK_SECONDS,
            pauses=Pauses(self._settings.retry_seconds),
            clock=self._clock,
        )

    def _takes(self, row: ProcessRow) -> bool:
        return self._settings.takes(row.run, row.run_name)

    def start(self) -> None:
        for forwarder in self._forwarders:
            forwarder.start()

    def stored(self, batches: Sequence[Batch]) -> None:
        """Called by the one writer, after the store has them."""
        if self._trail is not None:
            self._trail.stored(batches)

    def reports(self) -> list[Report]:
        """From memory: any thread may ask."""
        return [forwarder.report() for forwarder in self._forwarders]

    def close(self) -> None:
        """At the same time: each may have a request under way that takes a while to end."""
        closing = [threading.Thread(target=forwarder.close) for forwarder in self._forwarders]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
