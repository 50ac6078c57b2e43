"""TPUs and AMD GPUs, by stand-ins for the two libraries that speak to them.

Neither was recorded on a real machine: they answer in the shapes that the libraries document.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runwatch.agent.collectors import Devices, Notice, Sample, amd, tpu
from runwatch.agent.collectors.base import Owner
from runwatch.testing import FakeClock
from tests.unit.agent.recorded_nvml import FewOwners


def named(readings: list[Any]) -> dict[tuple[str, str], float]:
    found = [reading for reading in readings if isinstance(reading, Sample)]
    result = {(sample.metric, sample.device): sample.value for sample in found}
    assert len(result) == len(found)
    return result


class Tpu:
    """libtpu.sdk.tpumonitoring, of a host with two chips."""

    def __init__(self) -> None:
        self.data: dict[str, list[str]] = {
            "duty_cycle_pct": ["98.50", "0.00"],
            "tensorcore_util": ["71.25", ""],
            "hbm_capacity_usage": ["17179869184", "1073741824"],
            "hbm_capacity_total": ["33550237696", "33550237696"],
            "buffer_transfer_latency": ["8MB+-, 1, 2, 3, 4, 5"],
        }
        self.fails = False

    def list_supported_metrics(self) -> list[str]:
        return list(self.data)

    def get_metric(self, name: str) -> SimpleNamespace:
        if self.fails:
            raise RuntimeError("cannot reach the runtime")
        return SimpleNamespace(data=lambda: self.data[name], description=lambda: "")


def test_tpu() -> None:
    library, owners = Tpu(), FewOwners()
    owners.devices["tpu1"] = Owner(2, {"rank": "0"}, "environment")
    (collector,) = tpu.open_collectors(Devices(owners, FakeClock(), 0.05), library)
    assert collector.period_seconds == 1.0
    readings = list(collector.collect())
    assert named(readings) == {
        ("tpu_duty_cycle_percent", "tpu0"): 98.5,
        ("tpu_duty_cycle_percent", "tpu1"): 0.0,
        ("tpu_tensorcore_utilization_percent", "tpu0"): 71.25,  # the other chip did not say
        ("tpu_hbm_used_bytes", "tpu0"): 17179869184,
        ("tpu_hbm_used_bytes", "tpu1"): 1073741824,
        ("tpu_hbm_total_bytes", "tpu0"): 33550237696,
        ("tpu_hbm_total_bytes", "tpu1"): 33550237696,
    }
    assert {(r.device, r.scope) for r in readings if isinstance(r, Sample)} == {
        ("tpu0", 0),
        ("tpu1", 2),
    }
    assert [held.device for held in owners.told["tpu"]] == ["tpu0", "tpu1"]
    collector.close()
    assert owners.told["tpu"] == []


def test_a_tpu_that_nobody_uses_says_nothing() -> None:
    library = Tpu()
    del library.data["tensorcore_util"]  # an older libtpu
    (collector,) = tpu.open_collectors(Devices(FewOwners(), FakeClock()), library)
    library.data = {name: [] for name in library.data}
    assert list(collector.collect()) == []
    library.fails = True
    assert list(collector.collect()) == []


class AmdError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"Error code: {code}")
        self.code = code

    def get_error_code(self) -> int:
        return self.code


class Amd:
    """amdsmi, of a host with two MI300X."""

    AmdSmiException = AmdError
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot", EDGE="edge", VRAM="vram")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: dict[str, Callable[..., Any]] = {
            "amdsmi_get_processor_handles": lambda: ["first", "second"],
            "amdsmi_get_gpu_device_uuid": lambda gpu: f"uuid-{gpu}",
            "amdsmi_get_gpu_asic_info": lambda gpu: {"market_name": "AMD Instinct MI300X"},
            "amdsmi_get_gpu_activity": lambda gpu: {"gfx_activity": 87, "umc_activity": 31},
            "amdsmi_get_gpu_vram_usage": lambda gpu: {"vram_total": 196592, "vram_used": 1024},
            "amdsmi_get_power_info": lambda gpu: {
                "current_socket_power": 612,
                "average_socket_power": "N/A",
            },
            "amdsmi_get_temp_metric": self._temperature,
            "amdsmi_get_gpu_process_list": lambda gpu: [
                {"pid": 77, "memory_usage": {"vram_mem": 5 << 30}},
                {"pid": 78, "memory_usage": {"vram_mem": "N/A"}},
            ],
            "amdsmi_init": lambda: None,
            "amdsmi_shut_down": lambda: None,
        }

    def _temperature(self, gpu: str, sensor: str, kind: str) -> int:
        if sensor == "vram":
            raise AmdError(2)
        return 64

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            return self.answers[name](*arguments)

        return call


def opened(library: Amd, owners: FewOwners, clock: FakeClock) -> Any:
    (collector,) = amd.open_collectors(Devices(owners, clock), library)
    return collector


def test_amd() -> None:
    library, owners, clock = Amd(), FewOwners(), FakeClock()
    owners.processes[77] = Owner(4, {"rank": "2"}, "process")
    collector = opened(library, owners, clock)
    found = named(list(collector.collect()))
    of_first = {metric: value for (metric, device), value in found.items() if device == "gpu0"}
    assert of_first == {
        "gpu_utilization_percent": 87,
        "gpu_memory_used_bytes": 1 << 30,
        "gpu_memory_total_bytes": 196592 << 20,
        "gpu_power_watts": 612,
        "gpu_temperature_celsius": 64,
        "gpu_process_memory_bytes": 5 << 30,
    }
    assert [held.pids for held in owners.told["amd"]] == [frozenset({77, 78})] * 2
    clock.advance(1.0)
    again = list(collector.collect())
    assert ("gpu_process_memory_bytes", "gpu0") not in named(again)  # on a slower pace
    labels = next(r.labels for r in again if isinstance(r, Sample))
    assert labels == {"index": "0", "uuid": "uuid-first", "name": "AMD Instinct MI300X"}
    collector.close()
    assert library.calls[-1] == "amdsmi_shut_down"


def test_amd_not_available_is_not_zero() -> None:
    library = Amd()
    library.answers["amdsmi_get_gpu_activity"] = lambda gpu: {"gfx_activity": "N/A"}
    library.answers["amdsmi_get_power_info"] = lambda gpu: {
        "current_socket_power": "N/A",
        "average_socket_power": 250,
    }
    found = named(list(opened(library, FewOwners(), FakeClock()).collect()))
    assert ("gpu_utilization_percent", "gpu0") not in found
    assert found["gpu_power_watts", "gpu0"] == 250


@pytest.mark.parametrize(("code", "asked", "told"), [(2, 1, 0), (10, 1, 1), (14, 3, 1)])
def test_amd_errors(code: int, asked: int, told: int) -> None:
    """Not supported, no permission, and one that may pass."""
    library, clock = Amd(), FakeClock()

    def fail(gpu: str) -> dict[str, Any]:
        if gpu == "first":
            raise AmdError(code)
        return {"current_socket_power": 100}

    library.answers["amdsmi_get_power_info"] = fail
    collector = opened(library, FewOwners(), clock)
    readings = []
    for _ in range(3):
        readings += list(collector.collect())
        clock.advance(1.0)
    second = 3
    assert library.calls.count("amdsmi_get_power_info") == asked + second
    notices = [reading for reading in readings if isinstance(reading, Notice)]
    assert len(notices) == told
    assert {i.message.body()["metric"] for i in notices} <= {"power"}
    powers = [r for r in readings if isinstance(r, Sample) and r.metric == "gpu_power_watts"]
    assert {sample.device for sample in powers} == {"gpu1"}


def test_presence_is_a_look_into_dev(tmp_path: Path) -> None:
    assert not tpu.present(tmp_path)
    assert not amd.present(tmp_path)
    (tmp_path / "accel0").touch()
    (tmp_path / "kfd").touch()
    assert tpu.present(tmp_path)
    assert amd.present(tmp_path)


def test_without_their_libraries_there_is_nothing() -> None:
    devices = Devices(FewOwners(), FakeClock())
    assert tpu.open_collectors(devices) == ()
    assert amd.open_collectors(devices) == ()
