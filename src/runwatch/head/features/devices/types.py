"""Devices as the HTTP API answers with them."""

from __future__ import annotations

from runwatch.head.http.types import Answer
from runwatch.views.devices import Hurt
from runwatch.views.devices import State as DeviceState


class TroubleInfo(Answer):
    hurt: Hurt
    words: str
    since_ns: int | None


class XidInfo(Answer):
    xid: int
    time_ns: int
    meaning: str


class DeviceInfo(Answer):
    """One accelerator now; a number without a recent sample is null."""

    host: str
    device: str
    index: str
    name: str
    uuid: str
    run: str
    """The run that uses it; empty: no run does, or several do."""
    run_name: str
    rank: int | None
    state: DeviceState
    time_ns: int | None
    """The time of its newest sample."""
    age_seconds: float | None
    utilization_percent: float | None
    tensor_percent: float | None
    sm_activity_percent: float | None
    memory_percent: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    dram_bytes_per_second: float | None
    power_watts: float | None
    power_limit_watts: float | None
    temperature_celsius: float | None
    memory_temperature_celsius: float | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    throttle_reasons: list[str]
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    """Both counts are over the board's whole life."""
    xid: XidInfo | None
    """The last Xid error in the time asked for."""
    troubles: list[TroubleInfo]
    """Worst first."""


class DeviceTotals(Answer):
    """Totals over all devices that match the request, listed or not.  Sums and means are over the
    devices that report."""

    devices: int
    reporting: int
    hosts: int
    hurting: dict[str, int]
    """Trouble → how many devices have it as their worst."""
    utilization_percent: float | None
    tensor_percent: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    power_watts: float | None


class DeviceList(Answer):
    devices: list[DeviceInfo]
    totals: DeviceTotals
    time_ns: int
    next_offset: int | None


class DeviceMetricInfo(Answer):
    """One metric that agents sample on accelerators."""

    name: str
    unit: str
    words: str
    meaning: str


class DeviceMetricList(Answer):
    metrics: list[DeviceMetricInfo]
