"""AMD GPUs, through AMD SMI.  It says "N/A" where it has no number: we leave that out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from runwatch.agent.collectors.base import (
    DeviceCollector,
    Devices,
    Due,
    Held,
    Labels,
    Notice,
    Owners,
    Reading,
    Sample,
)
from runwatch.clock import Clock, system_clock
from runwatch.record.node import DeviceUnreadable

HOLDERS_SECONDS: Final = 5.0
NODES: Final = ("/dev/dri/renderD",)
VARIABLES: Final = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_MEBIBYTE: Final = float(1 << 20)
_NO_PERMISSION: Final = 10
_NOT_SUPPORTED: Final = 2


def present(dev: Path = Path("/dev")) -> bool:
    return (dev / "kfd").exists()


def open_collectors(devices: Devices, library: Any = None) -> Sequence[DeviceCollector]:
    if library is None:
        try:
            library = importlib.import_module("amdsmi")
        except (ImportError, OSError, KeyError):
            return ()  # AMD SMI is not installed, or the library it wraps is missing
    library.amdsmi_init()
    period, clock = devices.period_seconds, devices.clock
    return (AmdCollector(library, devices.owners, period_seconds=period, clock=clock),)


class Gpu(NamedTuple):
    device: str
    number: int
    uuid: str
    handle: Any
    labels: Labels


class AmdCollector:
    name = "amd"

    def __init__(
        self,
        library: Any,
        owners: Owners,
        *,
        period_seconds: float = 1.0,
        clock: Clock = system_clock,
    ) -> None:
        self.period_seconds = period_seconds
        self._library = library
        self._owners = owners
        self._absent: set[tuple[str, str]] = set()
        self._reported: set[tuple[str, str]] = set()
        self._notices: list[Notice] = []
        self._holders = Due(HOLDERS_SECONDS, clock, round_seconds=period_seconds)
        handles = library.amdsmi_get_processor_handles()
        self._gpus = [self._gpu(index, handle) for index, handle in enumerate(handles)]

    def collect(self) -> Iterator[Reading]:
        if self._holders.is_due():
            yield from self._processes()
        for gpu in self._gpus:
            owner = self._owners.of(gpu.device)
            labels = gpu.labels.with_owner(owner)
            for metric, unit, value in self._numbers(gpu):
                yield Sample(metric, value, unit, gpu.device, labels, owner.scope)
        notices, self._notices = self._notices, []
        yield from notices

    def close(self) -> None:
        self._owners.tell(self.name, ())
        self._library.amdsmi_shut_down()

    def _gpu(self, index: int, handle: Any) -> Gpu:
        labels = {"index": str(index)}
        gpu = Gpu(f"gpu{index}", index, "", handle, Labels({}))
        uuid = self._ask(gpu, "uuid", self._library.amdsmi_get_gpu_device_uuid)
        asic = self._ask(gpu, "name", self._library.amdsmi_get_gpu_asic_info) or {}
        if uuid:
            labels["uuid"] = str(uuid)
        if asic.get("market_name", "N/A") != "N/A":
            labels["name"] = str(asic["market_name"])
        return gpu._replace(uuid=str(uuid or ""), labels=Labels(labels))

    def _ask(self, gpu: Gpu, metric: str, question: Callable[..., Any], *more: Any) -> Any:
        if (gpu.device, metric) in self._absent:
            return None
        try:
            return question(gpu.handle, *more)
        except self._library.AmdSmiException as error:
            self._failed(gpu, metric, error)
            return None

    def _failed(self, gpu: Gpu, metric: str, error: Any) -> None:
        code = error.get_error_code() if hasattr(error, "get_error_code") else None
        if code in (_NOT_SUPPORTED, _NO_PERMISSION):
            self._absent.add((gpu.device, metric))
        if code != _NOT_SUPPORTED and (gpu.device, metric) not in self._reported:
            self._reported.add((gpu.device, metric))
            unreadable = DeviceUnreadable(gpu.device, gpu.uuid, metric=metric, why=str(error))
            self._notices.append(Notice(gpu.device, unreadable))

    def _numbers(self, gpu: Gpu) -> Iterator[tuple[str, str, float]]:
        library = self._library
        activity = self._ask(gpu, "activity", library.amdsmi_get_gpu_activity) or {}
        yield from _first_number("gpu_utilization_percent", "%", activity, "gfx_activity")
        memory = self._ask(gpu, "memory", library.amdsmi_get_gpu_vram_usage) or {}
        yield from _first_number(
            "gpu_memory_used_bytes", "B", memory, "vram_used", factor=_MEBIBYTE
        )
        yield from _first_number(
            "gpu_memory_total_bytes", "B", memory, "vram_total", factor=_MEBIBYTE
        )
        power = self._ask(gpu, "power", library.amdsmi_get_power_info) or {}
        names = ("current_socket_power", "average_socket_power")  # a model has one or the other
        yield from _first_number("gpu_power_watts", "W", power, *names)
        yield from self._temperature(gpu, "gpu_temperature_celsius", "HOTSPOT", "EDGE")
        yield from self._temperature(gpu, "gpu_memory_temperature_celsius", "VRAM")

    def _temperature(
        self, gpu: Gpu, metric: str, *sensors: str
    ) -> Iterator[tuple[str, str, float]]:
        library = self._library
        for sensor in sensors:
            kind = getattr(library.AmdSmiTemperatureType, sensor, None)
            if kind is None:
                continue
            current = library.AmdSmiTemperatureMetric.CURRENT
            question = library.amdsmi_get_temp_metric
            value = _number(self._ask(gpu, f"temperature {sensor}", question, kind, current))
            if value is not None:
                # Releases before ROCm 6 give thousandths.
                yield metric, "°C", value / 1000 if value >= 1000 else value
                return

    def _processes(self) -> Iterator[Sample]:
        processes = {gpu.device: self._of(gpu) for gpu in self._gpus}
        self._owners.tell(
            self.name,
            [
                Held(
                    gpu.device, gpu.number, gpu.uuid, _pids(processes[gpu.device]), NODES, VARIABLES
                )
                for gpu in self._gpus
            ],
        )
        for gpu in self._gpus:
            for process in processes[gpu.device] or ():
                owner = self._owners.of_process(process["pid"])
                used = _number(process.get("memory_usage", {}).get("vram_mem"))
                if owner is not None and used is not None:
                    labels = {**owner.labels, "pid": str(process["pid"])}
                    metric = "gpu_process_memory_bytes"
                    yield Sample(metric, used, "B", gpu.device, labels, owner.scope)

    def _of(self, gpu: Gpu) -> list[dict[str, Any]] | None:
        answer = self._ask(gpu, "processes", self._library.amdsmi_get_gpu_process_list)
        if answer is None:
            return None
        return [each for each in answer if isinstance(each, dict) and each.get("pid")]


def _pids(processes: Sequence[dict[str, Any]] | None) -> frozenset[int] | None:
    return None if processes is None else frozenset(int(each["pid"]) for each in processes)


def _first_number(
    metric: str, unit: str, answer: dict[str, Any], *names: str, factor: float = 1.0
) -> Iterator[tuple[str, str, float]]:
    """The first of `names` that holds a number."""
    numbers = (_number(answer.get(name)) for name in names)
    value = next((number for number in numbers if number is not None), None)
    if value is not None:
        yield metric, unit, value * factor


def _number(value: object) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]
