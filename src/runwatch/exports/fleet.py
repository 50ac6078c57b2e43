"""The accelerators and hosts, and the series of each.

A device is one board.  A new agent on its host, or another run that uses it, starts new series of
the same device.  Its id is `host:index:name`.  If two devices claim one id (containers that share a
hostname), the later one's host is written `host#2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from runwatch.record import JournalId
from runwatch.rows import SeriesRow
from runwatch.store.store import Store

UNHEALTHY_SECONDS: Final = 30.0
"""A sender that is silent for longer is called unhealthy."""

DEVICE_METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "util": ("gpu_utilization_percent", "tpu_duty_cycle_percent"),
    "memory_used": ("gpu_memory_used_bytes", "tpu_hbm_used_bytes"),
    "memory_percent": ("gpu_memory_used_percent",),
    "memory_total": ("gpu_memory_total_bytes", "tpu_hbm_total_bytes"),
    "pcie_rx": ("gpu_pcie_rx_bytes_per_second",),
    "pcie_tx": ("gpu_pcie_tx_bytes_per_second",),
    "nvlink_rx": ("gpu_nvlink_rx_bytes_per_second",),
    "nvlink_tx": ("gpu_nvlink_tx_bytes_per_second",),
    "dram": ("gpu_dram_bytes_per_second",),
    "power": ("gpu_power_watts",),
}
HOST_METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "memory_used": ("host_memory_used_bytes",),
    "memory_limit": ("host_memory_limit_bytes",),
    "memory_percent": ("host_memory_used_percent",),
    "disk_free": ("host_disk_free_bytes",),
    "disk_size": ("host_disk_size_bytes",),
    "disk_percent": ("host_disk_used_percent",),
}

Columns = dict[str, list[int]]
"""Column -> the series that hold it, oldest first."""


@dataclass(slots=True)
class Device:
    id: str
    host: str
    """The host's own name."""
    label: str
    """The name among all hosts: `host`, or `host#2`."""
    index: int
    name: str
    series: Columns = field(default_factory=dict)
    journals: set[JournalId] = field(default_factory=set)


@dataclass(slots=True)
class Host:
    name: str
    label: str
    series: Columns = field(default_factory=dict)
    journals: set[JournalId] = field(default_factory=set)


@dataclass(slots=True)
class Fleet:
    devices: list[Device]
    hosts: list[Host]


def survey(store: Store) -> Fleet:
    """All devices and hosts that agents and gswarm clients ever reported."""
    agents = {row.journal for row in store.processes() if row.role == "agent"}
    devices, hosts = _Devices(), _Hosts()
    for column, metrics in DEVICE_METRICS.items():
        for row in _rows(store, metrics, agents):
            if row.device:
                devices.add(column, row)
    for column, metrics in HOST_METRICS.items():
        for row in _rows(store, metrics, agents):
            if row.device in ("", "/"):
                hosts.add(column, row)
    return Fleet(
        sorted(devices.by_identity.values(), key=lambda d: (d.label, d.index, d.id)),
        sorted(hosts.by_label.values(), key=lambda host: host.label),
    )


def _rows(store: Store, metrics: Iterable[str], agents: set[JournalId]) -> Iterable[SeriesRow]:
    for metric in metrics:
        for row in store.series(metric=metric):
            if row.journal in agents:
                yield row


class _Devices:
    def __init__(self) -> None:
        self.by_identity: dict[tuple[str, ...], Device] = {}
        self._taken: dict[str, tuple[str, ...]] = {}

    def add(self, column: str, row: SeriesRow) -> None:
        uuid, slot = row.labels.get("uuid", ""), row.labels.get("client", "")
        own = (uuid,) if uuid else (slot, row.device)
        identity = (row.host, *own, row.labels.get("mig", ""))
        device = self.by_identity.get(identity)
        if device is None:
            device = self.by_identity[identity] = self._new(identity, row)
        device.series.setdefault(column, []).append(row.series)
        device.journals.add(row.journal)

    def _new(self, identity: tuple[str, ...], row: SeriesRow) -> Device:
        index = _number(row.labels.get("index", ""), row.device)
        name = row.labels.get("name", "") or row.device
        if mig := row.labels.get("mig", ""):
            name = f"{name} MIG {mig}"
        number = 1
        while True:
            label = row.host if number == 1 else f"{row.host}#{number}"
            id = f"{label}:{index}:{name}"
            if self._taken.setdefault(id, identity) == identity:
                return Device(id, row.host, label, index, name)
            number += 1


class _Hosts:
    def __init__(self) -> None:
        self.by_label: dict[tuple[str, str], Host] = {}

    def add(self, column: str, row: SeriesRow) -> None:
        slot = row.labels.get("client", "")
        label = row.host if slot in ("", "1") else f"{row.host}#{slot}"
        host = self.by_label.setdefault((row.host, label), Host(row.host, label))
        host.series.setdefault(column, []).append(row.series)
        host.journals.add(row.journal)


def _number(text: str, device: str) -> int:
    digits = text or "".join(c for c in device if c.isdigit())
    return int(digits[:9]) if digits.isascii() and digits.isdigit() else 0
