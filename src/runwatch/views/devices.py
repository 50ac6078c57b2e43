"""The state of every accelerator now, and its troubles.

A device's newest samples and recent notices tell its state.  A device keeps its identity (the
board's own, where it has one) when its owner changes, its agent restarts or it gets another number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import isfinite
from typing import Any, Final, Literal, NamedTuple

from runwatch.record import RunId
from runwatch.record.node import (
    AgentEnd,
    CollectorResumed,
    CollectorStuck,
    DeviceAdded,
    DeviceLost,
    DeviceNotice,
    DeviceUnreadable,
    GpuXid,
)
from runwatch.rows import EventRow, Latest, SeriesRow

State = Literal["reporting", "silent", "ended", "lost"]
"""Silent: it should report and does not.  Ended: its agent said goodbye."""

Hurt = Literal[
    "lost", "unreadable", "silent", "xid", "thermal", "hardware", "memory_errors", "power",
    "memory_full", "idle",
]  # fmt: skip
HURTS: Final[tuple[Hurt, ...]] = (
    "lost", "unreadable", "silent", "xid", "thermal", "hardware", "memory_errors", "power",
    "memory_full", "idle",
)  # fmt: skip
"""The worst first."""

NOTICES: Final = (
    DeviceLost.KIND, DeviceAdded.KIND, DeviceUnreadable.KIND, GpuXid.KIND, CollectorStuck.KIND,
    CollectorResumed.KIND, AgentEnd.KIND,
)  # fmt: skip
"""The events that say something about devices."""

SILENT_SECONDS: Final = 30.0
FRESH_SECONDS: Final = 60.0
"""A number is out of date when it is this much older than its device's newest: its writer has
stopped.  Some numbers are read only every 30 s."""
XID_SECONDS: Final = 3600.0
"""An error counts as a trouble for this long.  Later it is only shown."""
FULL_PERCENT: Final = 95.0
IDLE_PERCENT: Final = 5.0
_SAME_MOMENT_NS: Final = 5 * 10**9

# NVML's bits, in words.
REASONS: Final = (
    (0x1, "idle"),
    (0x2, "clocks set by hand"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal limit"),
    (0x40, "hardware thermal limit"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
)
_THERMAL: Final = 0x20 | 0x40
_HARDWARE: Final = 0x8
_POWER: Final = 0x4 | 0x80

_NUMBERS: Final = {
    "gpu_utilization_percent": "utilization_percent",
    "tpu_duty_cycle_percent": "utilization_percent",
    "gpu_tensor_activity_percent": "tensor_percent",
    "tpu_tensorcore_utilization_percent": "tensor_percent",
    "gpu_sm_activity_percent": "sm_activity_percent",
    "gpu_memory_used_bytes": "memory_used_bytes",
    "tpu_hbm_used_bytes": "memory_used_bytes",
    "gpu_memory_used_percent": "memory_percent",
    "gpu_memory_total_bytes": "memory_total_bytes",
    "tpu_hbm_total_bytes": "memory_total_bytes",
    "gpu_dram_bytes_per_second": "dram_bytes_per_second",
    "gpu_power_watts": "power_watts",
    "gpu_power_limit_watts": "power_limit_watts",
    "gpu_temperature_celsius": "temperature_celsius",
    "gpu_memory_temperature_celsius": "memory_temperature_celsius",
    "gpu_sm_clock_hz": "sm_clock_hz",
    "gpu_memory_clock_hz": "memory_clock_hz",
}
_LASTING: Final = ("memory_total_bytes", "power_limit_watts")
_FLAGS: Final = {
    "gpu_throttle_reasons": "reasons",
    "gpu_throttled_thermal": "thermal",
    "gpu_throttled_hardware": "hardware",
    "gpu_throttled_power": "power",
    "gpu_remapping_pending": "remapping_pending",
    "gpu_remapping_failed": "remapping_failed",
}
_ECC: Final = "gpu_ecc_errors_total"
METRICS: Final = (*_NUMBERS, *_FLAGS, _ECC)
"""All metrics that a device's state is read from."""
_METRICS: Final = frozenset(METRICS)
TELLING: Final = tuple(
    metric
    for metric, name in _NUMBERS.items()
    if name.startswith(("sm_", "dram_", "power_limit", "temperature", "memory_temp", "memory_clo"))
)
"""Metrics that are only shown."""
JUDGING: Final = tuple(metric for metric in METRICS if metric not in TELLING)
"""Metrics that tell troubles or go into totals."""


class Trouble(NamedTuple):
    hurt: Hurt
    words: str
    since_ns: int | None = None


class Xid(NamedTuple):
    number: int
    time_ns: int
    meaning: str


@dataclass(slots=True)  # not frozen: thousands are made, and a frozen one takes three times as long
class Device:
    """One accelerator.  A number is None when it was not read recently: absent is not zero."""

    host: str
    device: str
    index: str
    name: str
    uuid: str
    run: RunId
    """The run that holds it; empty when no run does, or several do."""
    run_name: str
    rank: int | None
    state: State
    time_ns: int | None
    """Of its newest sample."""
    age_seconds: float | None
    heard_ns: int
    """When a sample or a notice of it last came."""
    utilization_percent: float | None = None
    tensor_percent: float | None = None
    sm_activity_percent: float | None = None
    memory_percent: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    dram_bytes_per_second: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    """Since the board was made."""
    xid: Xid | None = None
    """The last one."""
    troubles: tuple[Trouble, ...] = ()
    """The worst first."""


# ── finding them ───────────────────────────────────────────────────────────────────────────────

Key = tuple[str, str]
"""The host, and a name that no other device of the host has."""


def key_of(row: SeriesRow) -> Key:
    """The board's own identity; else its name, which two clients of one host may both use."""
    labels = row.labels
    return row.host, labels.get("uuid") or labels.get("client", "") + row.device


def count_devices(series: Iterable[SeriesRow]) -> int:
    """How many devices these series describe."""
    return len({key_of(row) for row in series if row.device and row.metric in _METRICS})


@dataclass(slots=True)
class _Heard:
    """All that was heard of one device."""

    row: SeriesRow | None = None
    newest_ns: int = -1
    numbers: dict[str, float] = field(default_factory=dict)
    flags: dict[str, float] = field(default_factory=dict)
    times_ns: dict[str, int] = field(default_factory=dict)
    """Of numbers and flags."""
    notices: dict[str, EventRow] = field(default_factory=dict)
    """Kind -> the newest notice of it."""


class _Host(NamedTuple):
    ended_ns: int = 0
    """When its agent last said goodbye; 0: never."""
    stuck: str = ""
    """The collector that hangs in its driver."""


class Board:
    """Add samples (of METRICS), then notices (of NOTICES); then ask for devices."""

    def __init__(self) -> None:
        self._heard: dict[Key, _Heard] = {}
        self._hosts: dict[str, _Host] = {}

    def add(self, samples: Iterable[tuple[SeriesRow, Latest]]) -> None:
        for metric, of_metric in groupby(samples, lambda sample: sample[0].metric):
            self.add_metric(metric, of_metric)

    def add_metric(self, metric: str, samples: Iterable[tuple[SeriesRow, Latest]]) -> None:
        """One long loop, because a cluster has tens of thousands of samples."""
        heard_of, is_number = self._heard, metric in _NUMBERS
        known = _NUMBERS.get(metric) or _FLAGS.get(metric)
        for row, (_, time_ns, _, value) in samples:
            labels = row.labels
            key = (row.host, labels.get("uuid") or labels.get("client", "") + row.device)
            heard = heard_of.get(key)
            if heard is None:
                heard = heard_of[key] = _Heard()
            if time_ns > heard.newest_ns:
                heard.newest_ns, heard.row = time_ns, row
            name = known or labels.get("errors", "")
            times_ns = heard.times_ns
            if (name not in times_ns or time_ns > times_ns[name]) and isfinite(value):
                times_ns[name] = time_ns
                (heard.numbers if is_number else heard.flags)[name] = value

    def add_notices(self, notices: Iterable[EventRow]) -> None:
        in_order = sorted(notices, key=lambda event: event.time_ns)
        self._hosts = _hosts(in_order)
        by_name = self._by_name()
        for event in in_order:
            notice = DeviceNotice.of(event.body)
            if not notice.device:
                continue
            key = (event.host, notice.uuid or notice.device)
            heard = self._heard.get(key) or (None if notice.uuid else by_name.get(key))
            if heard is None:
                heard = self._heard[key] = _Heard()
            # A missing number is no trouble.  A device that cannot be read at all is one.
            if event.kind != DeviceUnreadable.KIND or notice.metric == "device":
                heard.notices[event.kind] = event

    def _by_name(self) -> dict[Key, _Heard]:
        """For notices without the device's identity.  Of two devices, the one heard of last
        counts."""
        newest_last = sorted(self._heard.values(), key=lambda heard: heard.newest_ns)
        return {(h.row.host, h.row.device): h for h in newest_last if h.row is not None}

    def devices(
        self,
        only: Iterable[Key] | None = None,
        *,
        now_ns: int,
        name_of: Callable[[RunId], str] = str,
        clock_offset_ns: Mapping[str, int] | None = None,
    ) -> dict[Key, Device]:
        """`name_of` names a run; `clock_offset_ns`: how far a host's clock is ahead of `now_ns`."""
        offsets, hosts, unheard = clock_offset_ns or {}, self._hosts, _Host()
        return {
            key: _device(
                key[0],
                self._heard[key],
                hosts.get(key[0], unheard),
                now_ns + offsets.get(key[0], 0),
                name_of,
            )
            for key in (self._heard if only is None else only)
        }


def _hosts(in_order: Iterable[EventRow]) -> dict[str, _Host]:
    ended: dict[str, int] = {}
    stuck: dict[str, dict[str, None]] = {}
    for event in in_order:
        collectors = stuck.setdefault(event.host, {})
        if event.kind == AgentEnd.KIND:
            ended[event.host] = event.time_ns
            collectors.clear()
        elif event.kind == CollectorStuck.KIND:
            collectors[CollectorStuck.of(event.body).collector] = None
        elif event.kind == CollectorResumed.KIND:
            collectors.pop(CollectorResumed.of(event.body).collector, None)
    return {host: _Host(ended.get(host, 0), next(iter(names), "")) for host, names in stuck.items()}


# ── one device ─────────────────────────────────────────────────────────────────────────────────


def _device(
    host: str, heard: _Heard, of_host: _Host, now_ns: int, name_of: Callable[[RunId], str]
) -> Device:
    row, newest = heard.row, None
    if heard.notices:
        newest = max(heard.notices.values(), key=lambda event: event.time_ns)
    notice = DeviceNotice() if newest is None else DeviceNotice.of(newest.body)
    labels = row.labels if row else {}
    device = row.device if row else notice.device
    run = row.run if row else RunId("")
    state = _state(heard, of_host, now_ns)
    numbers, flags = _current(heard, state)
    mask = _mask(flags)
    xid = _xid(heard.notices.get(GpuXid.KIND))
    recent = xid if xid and now_ns - xid.time_ns <= XID_SECONDS * 1e9 else None
    return Device(
        host,
        device,
        device.removeprefix("gpu") if "mig" in labels else labels.get("index", ""),
        labels.get("name") or notice.name or "",
        labels.get("uuid") or notice.uuid or "",
        run,
        name_of(run) if run else "",
        row.rank if row and run else None,
        state,
        heard.newest_ns if row else None,
        max(0, now_ns - heard.newest_ns) / 1e9 if row else None,
        max(heard.newest_ns, newest.time_ns if newest else 0),
        throttle_reasons=_reasons(mask),
        ecc_corrected=_count(flags.get("corrected")),
        ecc_uncorrected=_count(flags.get("uncorrected")),
        xid=xid,
        troubles=tuple(_troubles(heard, of_host, state, numbers, flags, mask, recent, bool(run))),
        **numbers,
    )


def _state(heard: _Heard, host: _Host, now_ns: int) -> State:
    lost, added = heard.notices.get(DeviceLost.KIND), heard.notices.get(DeviceAdded.KIND)
    added_ns = added.time_ns if added else 0
    # A new agent does not announce the device's return; its samples show it.
    if lost and lost.time_ns > max(added_ns, heard.newest_ns - _SAME_MOMENT_NS):
        return "lost"
    last_ns = max(heard.newest_ns, added_ns)
    if now_ns - last_ns <= SILENT_SECONDS * 1e9:
        return "reporting"
    return "ended" if host.ended_ns > last_ns - _SAME_MOMENT_NS else "silent"


def _current(heard: _Heard, state: State) -> tuple[dict[str, float], dict[str, float]]:
    """The numbers and flags that are true now."""
    numbers, flags, times = heard.numbers, heard.flags, heard.times_ns
    if state != "reporting":
        return {name: numbers[name] for name in _LASTING if name in numbers}, {}
    oldest = heard.newest_ns - int(FRESH_SECONDS * 1e9)
    if times and min(times.values()) < oldest:
        numbers = {n: v for n, v in numbers.items() if times[n] >= oldest or n in _LASTING}
        flags = {n: v for n, v in flags.items() if times[n] >= oldest}
    used, total = numbers.get("memory_used_bytes"), numbers.get("memory_total_bytes")
    if used is not None and total:
        numbers = numbers | {"memory_percent": 100 * used / total}
    return numbers, flags


def _mask(flags: Mapping[str, float]) -> int:
    bits = flags.get("reasons")
    if bits is not None:
        return int(bits)
    return (
        _THERMAL * bool(flags.get("thermal"))
        | _HARDWARE * bool(flags.get("hardware"))
        | 0x4 * bool(flags.get("power"))
    )


@lru_cache(maxsize=256)
def _reasons(mask: int) -> tuple[str, ...]:
    return tuple(words for bit, words in REASONS if mask & bit)


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _xid(event: EventRow | None) -> Xid | None:
    notice = None if event is None else GpuXid.of(event.body)
    if event is None or notice is None or notice.xid is None:
        return None
    return Xid(notice.xid, event.time_ns, notice.meaning)


# ── what hurts ─────────────────────────────────────────────────────────────────────────────────


def _troubles(
    heard: _Heard,
    host: _Host,
    state: State,
    numbers: Mapping[str, float],
    flags: Mapping[str, float],
    mask: int,
    xid: Xid | None,
    is_held: bool,
) -> Iterator[Trouble]:
    """In the order of HURTS."""
    if state != "reporting" or heard.notices:
        yield from _absence(heard, host, state)
    if xid is not None:
        means = f": {xid.meaning}" if xid.meaning else ""
        yield Trouble("xid", f"XID {xid.number}{means}", xid.time_ns)
    if mask & _THERMAL:
        yield Trouble("thermal", "thermal limit")
    if mask & _HARDWARE:
        yield Trouble("hardware", "hardware slowdown")
    if any(flags.values()):
        yield from _memory_errors(flags)
    if mask & _POWER:
        yield Trouble("power", "power brake" if mask & 0x80 else "power cap")
    if (full := numbers.get("memory_percent")) is not None and full >= FULL_PERCENT:
        yield Trouble("memory_full", f"memory {full:.0f} % full")
    if is_held and numbers.get("utilization_percent", IDLE_PERCENT) < IDLE_PERCENT:
        yield Trouble("idle", "idle while its run goes on")


def _absence(heard: _Heard, host: _Host, state: State) -> Iterator[Trouble]:
    if state == "lost":
        lost = heard.notices[DeviceLost.KIND]
        why = DeviceNotice.of(lost.body).why or ""
        yield Trouble("lost", f"lost: {why}" if why else "lost", lost.time_ns)
    unreadable = heard.notices.get(DeviceUnreadable.KIND)
    if unreadable is not None and unreadable.time_ns > heard.newest_ns:
        why = DeviceNotice.of(unreadable.body).why or ""
        yield Trouble("unreadable", f"unreadable: {why}", unreadable.time_ns)
    elif state == "silent":
        why = f"no sample: {host.stuck} hangs in its driver" if host.stuck else "no sample"
        yield Trouble("silent", why, heard.newest_ns if heard.row else None)


def _memory_errors(flags: Mapping[str, float]) -> Iterator[Trouble]:
    """Corrected errors are no trouble: correction is there for them."""
    if flags.get("remapping_failed"):
        yield Trouble("memory_errors", "a bad memory row cannot be replaced")
    elif flags.get("remapping_pending"):
        yield Trouble("memory_errors", "bad memory row: replaced at the next reset")
    elif count := _count(flags.get("uncorrected")):
        word = "error" if count == 1 else "errors"
        yield Trouble("memory_errors", f"{count:,} uncorrected memory {word}")


# ── order and sums ─────────────────────────────────────────────────────────────────────────────

_RANK: Final = {hurt: place for place, hurt in enumerate(HURTS)}


def how_bad(device: Device) -> int:
    """0 is the worst; devices that have ended come last."""
    if device.troubles:
        return _RANK[device.troubles[0].hurt]
    return len(HURTS) + (device.state == "ended")


@lru_cache(maxsize=65_536)
def natural(text: str) -> tuple[tuple[str, int], ...]:
    """node2 before node10."""
    return tuple((word, int(number or -1)) for word, number in _WORDS.findall(text))


_WORDS: Final = re.compile(r"(\D*)(\d{0,18})")


def _place(device: Device) -> Any:
    return natural(device.host), natural(device.index or device.device), device.uuid


def _most_first(value: Callable[[Device], float | None]) -> Callable[[Device], Any]:
    def key(device: Device) -> Any:
        number = value(device)
        return (0, -number) if number is not None else (1, 0.0)

    return key


_ORDERS: Final[dict[str, Callable[[Device], Any]]] = {
    "hurt": lambda device: (how_bad(device), len(HURTS) - len(device.troubles)),
    "host": lambda device: 0,
    "run": lambda device: (not device.run, device.run_name, device.rank or 0),
    "utilization": _most_first(lambda device: device.utilization_percent),
    "memory": _most_first(lambda device: device.memory_percent),
    "power": _most_first(lambda device: device.power_watts),
    "temperature": _most_first(lambda device: device.temperature_celsius),
}
ORDERS: Final = tuple(_ORDERS)
TELLING_ORDERS: Final = ("temperature",)
"""Orders that need more metrics than JUDGING."""


def ordered(devices: Mapping[Key, Device], order: str = "hurt") -> list[Key]:
    """Devices of equal place are in order of host and index."""
    in_place = sorted(devices, key=lambda key: _place(devices[key]))
    return sorted(in_place, key=lambda key: _ORDERS[order](devices[key]))


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts over all devices; sums and means over those that report the number."""

    devices: int
    reporting: int
    hosts: int
    hurting: Mapping[Hurt, int]
    """By each device's worst trouble."""
    utilization_percent: float | None
    tensor_percent: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    power_watts: float | None


def totals(devices: Iterable[Device]) -> Totals:
    known = list(devices)
    here = [device for device in known if device.state == "reporting"]
    hurting = Counter(device.troubles[0].hurt for device in known if device.troubles)
    sized = [device for device in here if device.memory_used_bytes is not None]
    return Totals(
        devices=len(known),
        reporting=len(here),
        hosts=len({device.host for device in known}),
        hurting={hurt: hurting[hurt] for hurt in HURTS if hurting[hurt]},
        utilization_percent=_mean(device.utilization_percent for device in here),
        tensor_percent=_mean(device.tensor_percent for device in here),
        memory_used_bytes=_sum(device.memory_used_bytes for device in sized),
        memory_total_bytes=_sum(device.memory_total_bytes for device in sized),
        power_watts=_sum(device.power_watts for device in here),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
