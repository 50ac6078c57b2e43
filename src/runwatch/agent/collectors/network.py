"""Bytes and errors that network interfaces receive and send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runwatch.agent.collectors.base import Rates, Sample
from runwatch.clock import Clock, system_clock
from runwatch.journal.liveness import PROC

# veth, the host's ends of containers' interfaces: hundreds come and go, and eth0 counts the same.
_LEFT_OUT: Final = ("lo", "veth", "ifb", "dummy")
_COLUMNS: Final = (("rx", 0, 2), ("tx", 8, 10))


class NetworkCollector:
    name = "network"

    def __init__(self, *, proc: Path = PROC, clock: Clock = system_clock) -> None:
        self._proc = proc
        self._rates = Rates(clock)

    def collect(self) -> Iterator[Sample]:
        self._rates.begin()
        try:
            lines = (self._proc / "net/dev").read_text().splitlines()[2:]
        except OSError:
            return
        for line in lines:
            interface, _, rest = line.partition(":")
            interface = interface.strip()
            if not interface.startswith(_LEFT_OUT):
                yield from self._interface(interface, [int(field) for field in rest.split()])

    def _interface(self, interface: str, counters: list[int]) -> Iterator[Sample]:
        for direction, octets, errors in _COLUMNS:
            rate = self._rates.per_second((interface, direction), counters[octets])
            if rate is not None:
                metric = f"host_network_{direction}_bytes_per_second"
                yield Sample(metric, rate, "B/s", interface)
            metric = f"host_network_{direction}_errors_total"
            yield Sample(metric, counters[errors], "", interface)
