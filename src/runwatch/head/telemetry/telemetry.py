"""All receivers of a head: what it starts, tells of new records, and ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from runwatch.clock import Clock, system_clock
from runwatch.exports.prometheus import RunGoodput
from runwatch.head.forward.cursor import CursorFile
from runwatch.head.forward.forwarder import Forwarder, Pauses
from runwatch.head.forward.report import Report
from runwatch.head.state.board import RunBoard
from runwatch.head.telemetry.backlog import Backlog
from runwatch.head.telemetry.outlet import Outlet, Receiver
from runwatch.head.telemetry.pulse import Kept, Pulse
from runwatch.head.telemetry.settings import TelemetrySettings, headers_of
from runwatch.record import Batch, RunId
from runwatch.store.store import Store


class Telemetry:
    def __init__(
        self,
        settings: TelemetrySettings,
        root: Path,
        store: Store,
        board: RunBoard,
        goodput: Callable[[], Sequence[RunGoodput]],
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._pulse = Pulse(board, goodput, settings.interval_seconds, clock=clock)
        self._pulse.on_ended = self._ended
        self._outlets: list[Outlet] = []
        self._forwarders: list[Forwarder] = []
        for receiver, address in _receivers(settings):
            kept = Kept()
            self._pulse.receivers.append(kept)
            # Beside the store: its numbers of series mean nothing to another one.
            file = CursorFile(root / "store" / "forward" / f"{receiver.to}-{_short(address)}.json")
            backlog = Backlog(
                store, file, backlog_seconds=settings.backlog_hours * 3600, clock=clock
            )
            outlet = Outlet(receiver, backlog, kept, clock=clock)
            self._outlets.append(outlet)
            self._forwarders.append(
                Forwarder(
                    outlet,
                    idle_seconds=settings.interval_seconds,
                    pauses=Pauses(settings.retry_seconds),
                    clock=clock,
                )
            )

    def start(self) -> None:
        self._pulse.start()
        for forwarder in self._forwarders:
            forwarder.start()

    def stored(self, batches: Sequence[Batch]) -> None:
        for outlet in self._outlets:
            outlet.stored(batches)

    def reports(self) -> list[Report]:
        return [forwarder.report() for forwarder in self._forwarders]

    def close(self) -> None:
        self._pulse.close()
        for forwarder in self._forwarders:
            forwarder.close()

    def _ended(self, run: RunId) -> None:
        for outlet in self._outlets:
            outlet.ended(run)


def _receivers(settings: TelemetrySettings) -> Iterator[tuple[Receiver, str]]:
    timeout = settings.timeout_seconds
    if settings.remote_write:
        from runwatch.head.telemetry.remote_write import RemoteWrite

        headers = headers_of(settings.remote_write_headers)
        yield RemoteWrite(settings.remote_write, headers, timeout), settings.remote_write
    if settings.otlp_export:
        from runwatch.head.telemetry.otlp import OtlpGrpc, OtlpHttp

        headers = headers_of(settings.otlp_headers)
        kind = OtlpGrpc if settings.otlp_export.startswith("grpc") else OtlpHttp
        yield kind(settings.otlp_export, headers, timeout), settings.otlp_export


def _short(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()[:12]
