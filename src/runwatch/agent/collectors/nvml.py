"""NVIDIA GPUs, through NVML.

`NvmlCollector` asks, at the pace that is set, for numbers that come within microseconds, and reads
GPM (`gpm.py`) as often as its cost allows.  `NvmlSlowCollector` asks for the rest at its own pace:
the processes that have a GPU open, numbers that change rarely (limits, errors), and the energy
counter, which takes milliseconds.  `XidCollector` (`xid.py`) waits for errors.  Numbers that a GPU
does not have are left out; `gpus.py` says what else can go wrong.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from runwatch.agent.collectors import gpm
from runwatch.agent.collectors.base import (
    DeviceCollector,
    Devices,
    Due,
    Owners,
    Rates,
    Reading,
    Sample,
)
from runwatch.agent.collectors.gpus import Asking, Gpu, Gpus, held, never
from runwatch.agent.collectors.xid import XidCollector
from runwatch.clock import Clock, system_clock
from runwatch.record.node import DeviceLimited

LOOK_SECONDS: Final = 5.0
"""How often we look for GPUs that came or went."""
HOLDERS_SECONDS: Final = 2.0
RARE_SECONDS: Final = 10.0
ENERGY_SECONDS: Final = 30.0
_KIBIBYTE: Final = 1024.0
_ALL_LINKS: Final = 0xFFFFFFFF


def present(dev: Path = Path("/dev")) -> bool:
    """Whether there is a driver at all; /dev/dxg is the driver of WSL, Linux on Windows."""
    return (dev / "nvidiactl").exists() or (dev / "dxg").exists()


def open_collectors(devices: Devices, library: Any = None) -> Sequence[DeviceCollector]:
    """No collectors without a driver; raises NVMLError if the driver does not work."""
    if library is None:
        library = importlib.import_module("pynvml")
    try:
        gpus = Gpus(library)
    except library.NVMLError as error:
        absent = (library.NVML_ERROR_LIBRARY_NOT_FOUND, library.NVML_ERROR_DRIVER_NOT_LOADED)
        if error.value in absent:
            return ()
        raise
    owners, clock = devices.owners, devices.clock
    return (
        NvmlCollector(gpus, owners, period_seconds=devices.period_seconds, clock=clock),
        NvmlSlowCollector(gpus, owners, pcie=devices.pcie, clock=clock),
        XidCollector(gpus, clock=clock),
    )


# ── quick answers ─────────────────────────────────────────────────────────────────────────────


class Question(NamedTuple):
    metric: str
    unit: str
    ask: Callable[[Any, Any], float]
    """Takes the library and a GPU's handle."""


def _reasons(library: Any, handle: Any) -> int:
    try:
        return int(library.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except library.NVMLError_FunctionNotFound:  # an older driver, with the old name
        return int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _clock_hz(library: Any, handle: Any, clock: int) -> float:
    return float(library.nvmlDeviceGetClockInfo(handle, clock)) * 1e6


MEMORY: Final = Question(
    "gpu_memory_used_bytes", "B", lambda nvml, h: nvml.nvmlDeviceGetMemoryInfo(h).used
)
QUICK: Final = (
    Question(
        "gpu_utilization_percent", "%", lambda nvml, h: nvml.nvmlDeviceGetUtilizationRates(h).gpu
    ),
    MEMORY,
    Question("gpu_power_watts", "W", lambda nvml, h: nvml.nvmlDeviceGetPowerUsage(h) / 1e3),
    Question(
        "gpu_temperature_celsius",
        "°C",
        lambda nvml, h: nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU),
    ),
    Question("gpu_sm_clock_hz", "Hz", lambda nvml, h: _clock_hz(nvml, h, nvml.NVML_CLOCK_SM)),
)
MEMORY_CLOCK: Final = Question(
    "gpu_memory_clock_hz", "Hz", lambda nvml, h: _clock_hz(nvml, h, nvml.NVML_CLOCK_MEM)
)
REASONS: Final = Question("gpu_throttle_reasons", "", _reasons)

# Bits of the reasons.  Software and hardware caps of the same cause count as one.
THROTTLES: Final = (
    ("gpu_throttled_power", 0x4 | 0x80),
    ("gpu_throttled_thermal", 0x20 | 0x40),
    ("gpu_throttled_hardware", 0x8),
)


class Field(NamedTuple):
    """One of NVML's numbered fields; one call fetches all of them."""

    id: int
    metric: str
    unit: str
    factor: float = 1.0
    scope: int = 0
    is_counter: bool = False
    unless_gpm: bool = False


PCIE_TX: Final = 197
FIELDS: Final = (
    Field(82, "gpu_memory_temperature_celsius", "°C"),
    Field(138, "gpu_nvlink_tx_bytes_per_second", "B/s", _KIBIBYTE, _ALL_LINKS, True, True),
    Field(139, "gpu_nvlink_rx_bytes_per_second", "B/s", _KIBIBYTE, _ALL_LINKS, True, True),
    Field(PCIE_TX, "gpu_pcie_tx_bytes_per_second", "B/s", 1.0, 0, True, True),
    Field(198, "gpu_pcie_rx_bytes_per_second", "B/s", 1.0, 0, True, True),
)


class NvmlCollector:
    name = "nvml"

    def __init__(
        self,
        gpus: Gpus,
        owners: Owners,
        *,
        period_seconds: float = 1.0,
        clock: Clock = system_clock,
        pace: gpm.Pace | None = None,
    ) -> None:
        self.period_seconds = period_seconds
        self._gpus = gpus.use()
        self._owners = owners
        self._asking = Asking(gpus.library)
        self._rates = Rates(clock)
        self._look = Due(LOOK_SECONDS, clock, round_seconds=period_seconds)
        self._look.is_due()  # the inventory has just been made
        self._pace = pace or gpm.Pace(period_seconds, clock)
        self._readers: dict[str, _Reader] = {}
        self._generation = gpus.generation

    def collect(self) -> Iterator[Reading]:
        if self._look.is_due():
            self._gpus.look()
        yield from self._gpus.take_news()
        readers = self._current_readers()
        self._rates.begin()
        for reader in readers:
            yield from reader.quick(self._rates)
        if self._pace.is_due():
            begun = self._pace.now()
            for reader in readers:
                yield from reader.counters()
            self._pace.measure(begun)
        yield from self._asking.take_notices()

    def close(self) -> None:
        self._drop_readers()
        self._gpus.release()

    def _current_readers(self) -> list[_Reader]:
        if self._generation != self._gpus.generation:
            self._generation = self._gpus.generation
            self._drop_readers()
        gpus = {gpu.uuid: gpu for gpu in self._gpus.all if not gpu.lost}
        for uuid, reader in list(self._readers.items()):
            if gpus.get(uuid) is not reader.gpu:
                self._readers.pop(uuid).close()
        for uuid, gpu in gpus.items():
            if uuid not in self._readers:
                self._readers[uuid] = _Reader(gpu, self._asking, self._owners)
        return list(self._readers.values())

    def _drop_readers(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


class _Reader:
    """Reads one GPU, and remembers which numbers it does not have."""

    def __init__(self, gpu: Gpu, asking: Asking, owners: Owners) -> None:
        self.gpu = gpu
        self._asking = asking
        self._library = asking.library
        self._owners = owners
        self._gpm = self._open_gpm()
        self._never = never(self._library)
        self._throttled: set[str] = set()
        self._memory_clock_hz: float | None = None
        self._bus_bits: int | None = None
        # A MIG device has its own memory; all other numbers are recorded for its board.
        self._is_board = gpu.parent is None
        self._questions = QUICK if self._is_board else (MEMORY,)
        self._fields: list[Field] = []
        if self._is_board:
            self._fields += [f for f in FIELDS if not (f.unless_gpm and self._gpm)]
            self._bus_bits = self._ask("gpu_bus", self._library.nvmlDeviceGetMemoryBusWidth)

    def _ask(self, metric: str, question: Callable[..., Any], *more: Any) -> Any:
        return self._asking.ask(self.gpu, metric, question, self.gpu.handle, *more)

    def _open_gpm(self) -> gpm.Gpm | None:
        gpu = self.gpu
        board = gpu.parent or gpu
        arguments = (self._library, board.handle)
        if self._asking.ask(gpu, "gpm_support", gpm.is_supported, *arguments):
            return self._asking.ask(gpu, "gpm", gpm.Gpm, *arguments, gpu.instance)
        if gpu.parent is None and not gpu.lost:
            why = "no GPM counters before Hopper: utilisation says only that some kernel ran"
            limited = DeviceLimited(**gpu.about, why=why, missing=tuple(gpm.METRICS))
            self._asking.tell_once(gpu, "gpm", limited)
        return None

    def close(self) -> None:
        if self._gpm is not None:
            try:
                self._gpm.close()
            except self._library.NVMLError:
                return  # the GPU is gone or the library was closed: so are the buffers

    def quick(self, rates: Rates) -> Iterator[Sample]:
        gpu, library, ask = self.gpu, self._library, self._asking.ask
        owner = self._owners.of(gpu.device)
        labels, scope = gpu.labels.with_owner(owner), owner.scope
        for metric, unit, question in self._questions:
            value = ask(gpu, metric, question, library, gpu.handle)
            if value is not None:
                yield Sample(metric, value, unit, gpu.device, labels, scope)
        if self._is_board:
            for metric, unit, value in self._of_board(rates):
                yield Sample(metric, value, unit, gpu.device, labels, scope)

    def _of_board(self, rates: Rates) -> Iterator[tuple[str, str, float]]:
        gpu = self.gpu
        arguments = (self._library, gpu.handle)
        hz = self._asking.ask(gpu, MEMORY_CLOCK.metric, MEMORY_CLOCK.ask, *arguments)
        self._memory_clock_hz = hz
        if hz is not None:
            yield MEMORY_CLOCK.metric, MEMORY_CLOCK.unit, hz
        yield from self._reasons()
        yield from self._field_values(rates)

    def _reasons(self) -> Iterator[tuple[str, str, float]]:
        gpu = self.gpu
        mask = self._asking.ask(gpu, REASONS.metric, _reasons, self._library, gpu.handle)
        if mask is None:
            return
        yield REASONS.metric, "", mask
        for metric, bits in THROTTLES:
            if mask & bits:
                self._throttled.add(metric)
            if metric in self._throttled:
                yield metric, "", float(bool(mask & bits))

    def _field_values(self, rates: Rates) -> Iterator[tuple[str, str, float]]:
        if not self._fields:
            return
        ids = [(field.id, field.scope) for field in self._fields]
        answers = self._ask("fields", self._library.nvmlDeviceGetFieldValues, ids)
        for field, answer in zip(self._fields.copy(), answers or (), strict=False):
            if answer.nvmlReturn:
                if answer.nvmlReturn in self._never:
                    self._fields.remove(field)
                continue
            value: float | None = _number(answer) * field.factor
            if field.is_counter and value is not None:
                value = rates.per_second((self.gpu.uuid, field.id), value)
            if value is not None:
                yield field.metric, field.unit, value
        counted = any(
            answer.fieldId == PCIE_TX and not answer.nvmlReturn for answer in answers or ()
        )
        self.gpu.measures_pcie = self._gpm is not None or counted

    def counters(self) -> Iterator[Sample]:
        if self._gpm is None:
            return
        gpu = self.gpu
        owner = self._owners.of(gpu.device)
        labels, scope = gpu.labels.with_owner(owner), owner.scope
        for number, value in self._asking.ask(gpu, "gpm", self._gpm.read) or ():
            yield Sample(number.metric, value, number.unit, gpu.device, labels, scope)
            if number.id == gpm.DRAM_BANDWIDTH and self._memory_clock_hz and self._bus_bits:
                rate = gpm.dram_bytes_per_second(value, self._memory_clock_hz, self._bus_bits)
                metric = "gpu_dram_bytes_per_second"
                yield Sample(metric, rate, "B/s", gpu.device, labels, scope)


# In the order of nvmlValueType_t.
_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _number(answer: Any) -> float:
    return float(getattr(answer.value, _MEMBERS[answer.valueType]))


# ── slow answers, and rare changes ────────────────────────────────────────────────────────────


class NvmlSlowCollector:
    name = "nvml_slow"
    period_seconds = HOLDERS_SECONDS

    def __init__(
        self, gpus: Gpus, owners: Owners, *, pcie: bool = False, clock: Clock = system_clock
    ) -> None:
        self._gpus = gpus.use()
        self._library = gpus.library
        self._owners = owners
        self._pcie = pcie
        self._asking = Asking(gpus.library)
        self._rare = Due(RARE_SECONDS, clock, round_seconds=HOLDERS_SECONDS)
        self._energy = Due(ENERGY_SECONDS, clock, round_seconds=HOLDERS_SECONDS)
        self._seen_us: dict[str, int] = {}

    def collect(self) -> Iterator[Reading]:
        gpus = [gpu for gpu in self._gpus.all if not gpu.lost]
        processes = {gpu.device: self._processes(gpu) for gpu in gpus}
        self._owners.tell(self.name, [held(gpu, _pids(processes[gpu.device])) for gpu in gpus])
        rare, energy = self._rare.is_due(), self._energy.is_due()
        for gpu in gpus:
            yield from self._memory_of(gpu, processes[gpu.device] or [])
            if rare:
                yield from self._rarely(gpu, processes[gpu.device] or [])
            if energy and gpu.parent is None:
                yield from self._of_board(gpu, self._energy_of(gpu))
        yield from self._asking.take_notices()

    def close(self) -> None:
        self._gpus.release()

    def _ask(self, gpu: Gpu, metric: str, question: Callable[..., Any], *more: Any) -> Any:
        return self._asking.ask(gpu, metric, question, gpu.handle, *more)

    def _of_board(
        self, gpu: Gpu, numbers: Iterator[tuple[str, str, float, dict[str, str]]]
    ) -> Iterator[Sample]:
        owner = self._owners.of(gpu.device)
        labels = gpu.labels.with_owner(owner)
        for metric, unit, value, more in numbers:
            joined = {**labels, **more} if more else labels
            yield Sample(metric, value, unit, gpu.device, joined, owner.scope)

    def _rarely(self, gpu: Gpu, processes: Sequence[Any]) -> Iterator[Sample]:
        yield from self._of_board(gpu, self._limits(gpu))
        if len(processes) > 1:
            yield from self._use_by_process(gpu)
        if gpu.parent is None:
            yield from self._of_board(gpu, self._errors(gpu))
            if self._pcie and gpu.measures_pcie is False:
                yield from self._of_board(gpu, self._pcie_rates(gpu))

    # ── processes ─────────────────────────────────────────────────────────────────────────────

    def _processes(self, gpu: Gpu) -> list[Any] | None:
        question = self._library.nvmlDeviceGetComputeRunningProcesses
        processes: list[Any] | None = self._ask(gpu, "gpu_processes", question)
        return processes

    def _memory_of(self, gpu: Gpu, processes: Sequence[Any]) -> Iterator[Sample]:
        for process in processes:
            if process.usedGpuMemory is not None:
                yield from self._of_process(
                    gpu, process.pid, "gpu_process_memory_bytes", "B", process.usedGpuMemory
                )

    def _use_by_process(self, gpu: Gpu) -> Iterator[Sample]:
        """Each process's use of a shared GPU.  For a process alone, the GPU's utilisation tells."""
        question = self._library.nvmlDeviceGetProcessUtilization
        seen = self._seen_us.get(gpu.uuid, 0)
        newest: dict[int, Any] = {}
        for sample in self._ask(gpu, "gpu_process_utilization", question, seen) or ():
            if sample.timeStamp > seen and sample.pid:
                newest[sample.pid] = sample
        for pid, sample in newest.items():
            self._seen_us[gpu.uuid] = max(self._seen_us.get(gpu.uuid, 0), sample.timeStamp)
            yield from self._of_process(
                gpu, pid, "gpu_process_utilization_percent", "%", sample.smUtil
            )

    def _of_process(
        self, gpu: Gpu, pid: int, metric: str, unit: str, value: float
    ) -> Iterator[Sample]:
        owner = self._owners.of_process(pid)
        if owner is not None:
            labels = {"uuid": gpu.uuid, **owner.labels, "pid": str(pid)}
            yield Sample(metric, value, unit, gpu.device, labels, owner.scope)

    # ── limits and errors ─────────────────────────────────────────────────────────────────────

    def _limits(self, gpu: Gpu) -> Iterator[tuple[str, str, float, dict[str, str]]]:
        memory = self._ask(gpu, "gpu_memory_total_bytes", self._library.nvmlDeviceGetMemoryInfo)
        if memory is not None:
            yield "gpu_memory_total_bytes", "B", memory.total, {}
        if gpu.parent is None:
            question = self._library.nvmlDeviceGetEnforcedPowerLimit
            limit = self._ask(gpu, "gpu_power_limit_watts", question)
            if limit is not None:
                yield "gpu_power_limit_watts", "W", limit / 1e3, {}

    def _errors(self, gpu: Gpu) -> Iterator[tuple[str, str, float, dict[str, str]]]:
        library = self._library
        kinds = (
            ("corrected", library.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ("uncorrected", library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        )
        for name, kind in kinds:
            arguments = (kind, library.NVML_AGGREGATE_ECC)
            metric = f"gpu_ecc_errors_total.{name}"
            count = self._ask(gpu, metric, library.nvmlDeviceGetTotalEccErrors, *arguments)
            if count is not None:
                yield "gpu_ecc_errors_total", "", count, {"errors": name}
        rows = self._ask(gpu, "gpu_remapped_rows_total", library.nvmlDeviceGetRemappedRows)
        if rows is not None:
            corrected, uncorrected, pending, failed = rows
            yield "gpu_remapped_rows_total", "", corrected, {"errors": "corrected"}
            yield "gpu_remapped_rows_total", "", uncorrected, {"errors": "uncorrected"}
            yield "gpu_remapping_pending", "", pending, {}
            yield "gpu_remapping_failed", "", failed, {}

    def _energy_of(self, gpu: Gpu) -> Iterator[tuple[str, str, float, dict[str, str]]]:
        question = self._library.nvmlDeviceGetTotalEnergyConsumption
        millijoules = self._ask(gpu, "gpu_energy_joules_total", question)
        if millijoules is not None:
            yield "gpu_energy_joules_total", "J", millijoules / 1e3, {}

    def _pcie_rates(self, gpu: Gpu) -> Iterator[tuple[str, str, float, dict[str, str]]]:
        """Each call measures, and so blocks, for 20 ms."""
        library = self._library
        counters = {"tx": library.NVML_PCIE_UTIL_TX_BYTES, "rx": library.NVML_PCIE_UTIL_RX_BYTES}
        for name, counter in counters.items():
            metric = f"gpu_pcie_{name}_bytes_per_second"
            rate = self._ask(gpu, metric, library.nvmlDeviceGetPcieThroughput, counter)
            if rate is not None:
                yield metric, "B/s", rate * _KIBIBYTE, {}


def _pids(processes: Sequence[Any] | None) -> frozenset[int] | None:
    return None if processes is None else frozenset(process.pid for process in processes)
