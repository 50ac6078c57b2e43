"""NVIDIA GPUs, by the answers of real ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pynvml
import pytest

from runwatch.agent.collectors import Devices, Notice, Sample
from runwatch.agent.collectors.base import Owner
from runwatch.agent.collectors.gpm import LARGEST_SHARE, LEAST_SECONDS, Pace
from runwatch.agent.collectors.gpus import Gpus
from runwatch.agent.collectors.nvml import (
    ENERGY_SECONDS,
    LOOK_SECONDS,
    NvmlCollector,
    NvmlSlowCollector,
    open_collectors,
    present,
)
from runwatch.agent.collectors.xid import QUIET_SECONDS, XidCollector, meaning
from runwatch.testing import FakeClock
from tests.unit.agent.recorded_nvml import (
    FOLDER,
    LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    FewOwners,
    RecordedNvml,
    xid_event,
)

H200 = "h200-figures"
EVERY_RECORDING = sorted(path.stem for path in FOLDER.glob("*.json"))


class Board:
    """Collectors over a recording, a clock to move and no /proc of the driver's."""

    def __init__(self, tmp_path: Path, name: str = H200, *, gpus: int = 1, hz: float = 1.0) -> None:
        self.library = RecordedNvml(name, gpus=gpus)
        self.clock = FakeClock()
        self.owners = FewOwners()
        self.hz = hz
        self.proc = tmp_path
        self.gpus = Gpus(self.library, proc=tmp_path)
        self.cpu = 0.0
        pace = Pace(1 / hz, self.clock, cpu_seconds=lambda: self.library.spent_seconds)
        self.quick = NvmlCollector(
            self.gpus, self.owners, period_seconds=1 / hz, clock=self.clock, pace=pace
        )

    def slow(self, *, pcie: bool = False) -> NvmlSlowCollector:
        return NvmlSlowCollector(self.gpus, self.owners, pcie=pcie, clock=self.clock)

    def rounds(self, count: int, collector: Any = None) -> list[list[Sample | Notice]]:
        chosen = self.quick if collector is None else collector
        found = []
        for _ in range(count):
            found.append(list(chosen.collect()))
            self.clock.advance(chosen.period_seconds)
        return found


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def values(readings: list[Sample | Notice], device: str = "gpu0") -> dict[str, float]:
    found = [r for r in readings if isinstance(r, Sample) and r.device == device]
    named = {
        sample.metric + "".join(f" {v}" for k, v in sample.labels.items() if k == "errors"): sample
        for sample in found
    }
    assert len(named) == len(found), "recorded twice"
    return {name: sample.value for name, sample in named.items()}


def notices(rounds: list[list[Sample | Notice]]) -> list[Notice]:
    return [r for readings in rounds for r in readings if isinstance(r, Notice)]


def devices(readings: list[Sample | Notice]) -> set[str]:
    return {reading.device for reading in readings if isinstance(reading, Sample)}


# ── what is read ──────────────────────────────────────────────────────────────────────────────


def test_what_a_busy_h200_says(board: Board) -> None:
    first, second = board.rounds(2)
    quick = {
        "gpu_utilization_percent": 99,
        "gpu_memory_used_bytes": 2254819328,
        "gpu_power_watts": 685.0,
        "gpu_temperature_celsius": 58,
        "gpu_memory_temperature_celsius": 72,
        "gpu_sm_clock_hz": 1.47e9,
        "gpu_memory_clock_hz": 3.201e9,
        "gpu_throttle_reasons": 4,
        "gpu_throttled_power": 1.0,  # no series for what does not occur: thermal, hardware
    }
    assert values(first) == quick  # counters need two samples
    counters = {
        "gpu_sm_activity_percent": 95.5,
        "gpu_sm_occupancy_percent": 14.1,
        "gpu_tensor_activity_percent": 92.7,
        "gpu_dram_bandwidth_percent": 16.1,
        "gpu_dram_bytes_per_second": pytest.approx(0.161 * 3.201e9 * 2 * 6144 / 8),
        "gpu_pcie_tx_bytes_per_second": 5.4 * 2**20,
        "gpu_pcie_rx_bytes_per_second": 12.4 * 2**20,
    }
    assert values(second) == quick | counters
    sample = next(r for r in second if isinstance(r, Sample))
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    assert sample.labels == {"uuid": uuid, "name": "NVIDIA H200", "index": "0"}
    assert notices([first, second]) == []


def test_throttling_is_a_series_from_when_it_first_occurs(board: Board) -> None:
    answers = board.library.answers
    found = []
    for mask in (0x1, 0x40, 0x8 | 0x80, 0x0):
        answers["nvmlDeviceGetCurrentClocksEventReasons(gpu0)"] = mask
        named = values(board.rounds(1)[0])
        found.append({k: v for k, v in named.items() if k.startswith("gpu_throttled")})
    assert found == [
        {},
        {"gpu_throttled_thermal": 1.0},
        {"gpu_throttled_power": 1.0, "gpu_throttled_thermal": 0.0, "gpu_throttled_hardware": 1.0},
        {"gpu_throttled_power": 0.0, "gpu_throttled_thermal": 0.0, "gpu_throttled_hardware": 0.0},
    ]


def test_an_older_driver_knows_throttle_reasons_by_their_old_name(board: Board) -> None:
    board.library.fail(13, "nvmlDeviceGetCurrentClocksEventReasons")
    board.library.answers["nvmlDeviceGetCurrentClocksThrottleReasons(gpu0)"] = 0x20
    assert values(board.rounds(1)[0])["gpu_throttle_reasons"] == 0x20


def test_what_is_read_rarely(board: Board) -> None:
    slow = board.slow()
    run = Owner(3, {"rank": "1", "pid": "4242"}, "process")
    board.owners.processes[4242] = run
    rounds = board.rounds(3, slow)
    memory = {"gpu_process_memory_bytes": 1610612736}
    assert values(rounds[0]) == memory | {
        "gpu_memory_total_bytes": 150754820096,
        "gpu_power_limit_watts": 700.0,
        "gpu_ecc_errors_total corrected": 0,
        "gpu_ecc_errors_total uncorrected": 0,
        "gpu_remapped_rows_total corrected": 0,
        "gpu_remapped_rows_total uncorrected": 0,
        "gpu_remapping_pending": 0,
        "gpu_remapping_failed": 0,
        "gpu_energy_joules_total": 123456.789,
    }
    assert values(rounds[1]) == values(rounds[2]) == memory
    (sample,) = rounds[1]
    assert isinstance(sample, Sample)
    assert (sample.scope, sample.labels["rank"]) == (3, "1")
    (held,) = board.owners.told["nvml_slow"]
    assert (held.device, held.number, held.pids) == ("gpu0", 0, frozenset({4242}))


def test_memory_of_processes_that_are_no_run_s_is_not_told(board: Board) -> None:
    assert "gpu_process_memory_bytes" not in values(board.rounds(1, board.slow())[0])


def test_who_uses_how_much_of_a_shared_gpu(board: Board) -> None:
    key = "nvmlDeviceGetComputeRunningProcesses(gpu0)"
    board.owners.processes[4242] = Owner(3, {"rank": "0"}, "process")
    slow = board.slow()
    alone = board.rounds(6, slow)
    assert board.library.calls["nvmlDeviceGetProcessUtilization"] == 0
    board.library.answers[key].append({"pid": 4243, "usedGpuMemory": None})
    shared = board.rounds(6, slow)
    metric = "gpu_process_utilization_percent"
    assert not any(metric in values(readings) for readings in alone)
    assert [values(r)[metric] for r in shared if metric in values(r)] == [97]


def test_samples_go_where_the_device_belongs(board: Board) -> None:
    run = Owner(5, {"rank": "0", "pid": "4242"}, "process")
    (before,) = board.rounds(1)
    board.owners.devices["gpu0"] = run
    (during,) = board.rounds(1)
    del board.owners.devices["gpu0"]
    (after,) = board.rounds(1)
    for readings, scope in ((before, 0), (during, 5), (after, 0)):
        assert {r.scope for r in readings if isinstance(r, Sample)} == {scope}
    labels = next(r.labels for r in during if isinstance(r, Sample))
    assert (labels["rank"], labels["pid"], labels["name"]) == ("0", "4242", "NVIDIA H200")


# ── what is absent ────────────────────────────────────────────────────────────────────────────


def test_what_is_not_supported_is_asked_for_once(board: Board) -> None:
    board.library.fail(NOT_SUPPORTED, "nvmlDeviceGetPowerUsage", "field 82")
    rounds = board.rounds(5)
    assert board.library.calls["nvmlDeviceGetPowerUsage"] == 1
    assert board.library.calls["nvmlDeviceGetFieldValues"] == 1
    assert board.library.gpm_asked[60] == board.library.gpm_asked[61] == 1  # no NVLink here
    assert board.library.gpm_asked[5] == 4
    for readings in rounds:
        assert "gpu_power_watts" not in values(readings)
        assert "gpu_utilization_percent" in values(readings)
    assert notices(rounds) == []


def test_what_is_forbidden_is_told_once(board: Board) -> None:
    board.library.fail(NO_PERMISSION, "nvmlDeviceGetPowerUsage")
    (told,) = notices(board.rounds(5))
    assert (told.message.KIND, told.device) == ("device_unreadable", "gpu0")
    assert told.message.body()["metric"] == "gpu_power_watts"
    assert told.message.body()["why"] == "Insufficient Permissions"
    assert board.library.calls["nvmlDeviceGetPowerUsage"] == 1


def test_what_fails_for_a_while_is_told_once_and_comes_back(board: Board) -> None:
    right = board.library.answers["nvmlDeviceGetTemperature(gpu0, 0)"]
    board.library.fail(UNKNOWN, "nvmlDeviceGetTemperature")
    failing = board.rounds(3)
    board.library.answers["nvmlDeviceGetTemperature(gpu0, 0)"] = right
    (after,) = board.rounds(1)
    assert [told.message.body()["metric"] for told in notices(failing)] == [
        "gpu_temperature_celsius"
    ]
    assert not any("gpu_temperature_celsius" in values(readings) for readings in failing)
    assert values(after)["gpu_temperature_celsius"] == 58


def test_without_counters_for_a_while_the_next_average_begins_anew(board: Board) -> None:
    board.rounds(2)
    board.library.answers["gpm of gpu0"] = {"error": UNKNOWN}
    (failing,) = board.rounds(1)
    del board.library.answers["gpm of gpu0"]
    first, second = board.rounds(2)
    found = ["gpu_tensor_activity_percent" in values(r) for r in (failing, first, second)]
    assert found == [False, False, True]


def test_before_hopper(tmp_path: Path) -> None:
    board = Board(tmp_path, "before-hopper")
    (first,) = board.rounds(1)
    board.library.answers["field 138 of gpu0"]["value"] += 4096
    board.library.answers["field 139 of gpu0"]["value"] += 1024
    second, third = board.rounds(2)
    (told,) = notices([first, second, third])
    assert told.message.KIND == "device_limited"
    assert "gpu_tensor_activity_percent" in str(told.message.body()["missing"])
    assert values(second)["gpu_utilization_percent"] == 99
    assert values(second)["gpu_nvlink_tx_bytes_per_second"] == 4096 * 1024
    assert values(second)["gpu_nvlink_rx_bytes_per_second"] == 1024 * 1024
    assert not any("tensor" in metric or "pcie" in metric for metric in values(third))
    assert board.library.samples == 0


@pytest.mark.parametrize("wanted", [False, True])
def test_calls_that_block_are_made_rarely_and_if_asked(tmp_path: Path, wanted: bool) -> None:
    board = Board(tmp_path, "before-hopper")
    slow = board.slow(pcie=wanted)
    found = []
    for _ in range(31):  # a minute
        board.rounds(1)
        found += board.rounds(1, slow)
        board.clock.advance(-board.quick.period_seconds)
    calls = board.library.calls["nvmlDeviceGetPcieThroughput"]
    assert calls == (14 if wanted else 0)  # both ways, each ten seconds
    rates = [r.value for s in found for r in s if isinstance(r, Sample) and "pcie_rx" in r.metric]
    assert rates == [12700 * 1024] * (calls // 2)


def test_the_blocking_calls_are_not_made_where_counters_tell(board: Board) -> None:
    slow = board.slow(pcie=True)
    board.rounds(2)
    board.rounds(12, slow)
    assert board.library.calls["nvmlDeviceGetPcieThroughput"] == 0


# ── GPUs that come and go ─────────────────────────────────────────────────────────────────────


def test_one_falls_off_the_bus_and_the_others_go_on(tmp_path: Path) -> None:
    board = Board(tmp_path, gpus=4)
    slow = board.slow()
    saved = dict(board.library.answers)
    before = board.rounds(3)
    board.rounds(1, slow)
    lost = [key for key in saved if "gpu2" in key and "Handle" not in key and "UUID" not in key]
    board.library.fail(LOST, *lost)
    during = board.rounds(12)
    board.rounds(3, slow)
    assert devices(before[-1]) == {"gpu0", "gpu1", "gpu2", "gpu3"}
    assert devices(during[-1]) == {"gpu0", "gpu1", "gpu3"}
    (told,) = notices(during)
    assert (told.message.KIND, told.device) == ("device_lost", "gpu2")
    assert told.message.body()["why"] == "GPU is lost"
    assert [held.device for held in board.owners.told["nvml_slow"]] == ["gpu0", "gpu1", "gpu3"]
    board.library.answers.update(saved)  # someone has reset it
    after = board.rounds(int(LOOK_SECONDS) + 1)
    assert [(i.message.KIND, i.device) for i in notices(after)] == [("device_added", "gpu2")]
    assert devices(after[-1]) == devices(before[-1])


def test_hot_plug_keeps_names(tmp_path: Path) -> None:
    """The driver numbers anew what is left; a name stays with its board."""
    folder = tmp_path / "driver/nvidia/gpus"
    for place in ("0000:01:00.0", "0000:02:00.0"):
        (folder / place).mkdir(parents=True)
    board = Board(tmp_path, gpus=2)
    board.rounds(1)
    first, second = (gpu.uuid for gpu in board.gpus.all)
    (folder / "0000:01:00.0").rmdir()
    answers = board.library.answers
    answers["nvmlDeviceGetCount()"] = 1
    answers["nvmlDeviceGetHandleByIndex(0)"] = {"handle": "gpu1"}
    gone = board.rounds(int(LOOK_SECONDS) + 1)
    assert [(i.message.KIND, i.device, i.message.body()["uuid"]) for i in notices(gone)] == [
        ("device_lost", "gpu0", first)
    ]
    assert devices(gone[-1]) == {"gpu1"}
    assert board.gpus.all[0].uuid == second
    (folder / "0000:03:00.0").mkdir()
    answers["nvmlDeviceGetCount()"] = 2
    answers["nvmlDeviceGetHandleByIndex(1)"] = {"handle": "gpu0"}
    answers["nvmlDeviceGetUUID(gpu0)"] = "GPU-new"
    came = board.rounds(int(LOOK_SECONDS) + 1)
    assert [(i.message.KIND, i.message.body()["uuid"]) for i in notices(came)] == [
        ("device_added", "GPU-new")
    ]
    (name,) = devices(came[-1]) - {"gpu1"}
    assert name not in ("gpu0", "gpu1")  # another board, another name
    assert board.library.openings == 1
    board.quick.close()
    assert (board.library.openings, board.library.samples) == (0, 0)


def test_a_gpu_we_may_not_open_does_not_hide_the_others(tmp_path: Path) -> None:
    board = Board(tmp_path, gpus=3)
    board.library.fail(NO_PERMISSION, "nvmlDeviceGetHandleByIndex(1)")
    rounds = board.rounds(int(LOOK_SECONDS) * 3)
    assert devices(rounds[-1]) == {"gpu0", "gpu2"}
    told = [i for i in notices(rounds) if i.message.KIND == "device_unreadable"]
    assert [(i.device, i.message.body()["metric"]) for i in told] == [("gpu1", "device")]


def test_mig(tmp_path: Path) -> None:
    board = Board(tmp_path, "mig")
    slow = board.slow()
    rare = board.rounds(1, slow)[0]
    readings = board.rounds(3)[-1]
    assert devices(readings) == {"gpu0", "gpu0.mig1.0", "gpu0.mig5.0"}
    whole = values(readings)
    assert "gpu_utilization_percent" not in whole  # not with MIG
    assert whole["gpu_power_watts"] == 685.0
    assert values(readings, "gpu0.mig5.0") == {
        "gpu_memory_used_bytes": 2 << 30,
        "gpu_sm_activity_percent": 55.0,
        "gpu_sm_occupancy_percent": 7.0,
        "gpu_tensor_activity_percent": 45.0,
        "gpu_dram_bandwidth_percent": 15.0,  # of its share, which we do not know in bytes
    }
    sample = next(r for r in readings if isinstance(r, Sample) and r.device == "gpu0.mig5.0")
    assert sample.labels["mig"] == "5.0"
    assert sample.labels["uuid"].startswith("MIG-")
    assert sample.labels["parent"] == board.gpus.all[0].uuid
    assert values(rare, "gpu0.mig1.0") == {"gpu_memory_total_bytes": 37 << 30}
    pids = {held.device: held.pids for held in board.owners.told["nvml_slow"]}
    assert pids == {
        "gpu0": frozenset(),
        "gpu0.mig1.0": frozenset({4242}),
        "gpu0.mig5.0": frozenset({4243}),
    }


# ── what went wrong on the board ──────────────────────────────────────────────────────────────


def test_xid(tmp_path: Path) -> None:
    board = Board(tmp_path, gpus=2)
    events = XidCollector(board.gpus, clock=board.clock)
    assert list(events.collect()) == []
    board.library.events += [xid_event(79, "gpu1"), xid_event(31, instance=5), xid_event(4711)]
    told = list(events.collect())
    assert [(i.message.KIND, i.device, i.message.body()["xid"]) for i in told] == [
        ("gpu_xid", "gpu1", 79),
        ("gpu_xid", "gpu0", 31),
        ("gpu_xid", "gpu0", 4711),
    ]
    assert "fallen off the bus" in str(told[0].message.body()["meaning"])
    assert told[1].message.body()["gpu_instance"] == 5
    assert "gpu_instance" not in told[0].message.body()
    events.close()


def test_the_last_word_of_a_gpu_that_is_lost_is_heard(tmp_path: Path) -> None:
    board = Board(tmp_path, gpus=2)
    events = XidCollector(board.gpus, clock=board.clock)
    list(events.collect())
    board.gpus.all[1].lost = True  # noticed by another thread, before we have heard why
    board.library.fail(LOST, "gpu1")
    board.library.events.append(xid_event(79, "gpu1"))
    (told,) = events.collect()
    assert (told.device, told.message.body()["xid"]) == ("gpu1", 79)
    board.library.events.append(xid_event(31, "gpu0"))
    assert [incident.device for incident in events.collect()] == ["gpu0"]


def test_every_common_xid_has_words_of_its_own() -> None:
    common = (13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119)
    assert len({meaning(xid) for xid in (*common, 1)}) == len(common) + 1


def test_a_storm_of_xids_is_counted(board: Board) -> None:
    events = XidCollector(board.gpus, clock=board.clock)
    board.library.events += [xid_event(13) for _ in range(50)]
    (first,) = events.collect()
    board.clock.advance(QUIET_SECONDS + 1)
    board.library.events += [xid_event(13)]
    (again,) = events.collect()
    assert "since_the_last" not in first.message.body()
    assert again.message.body()["since_the_last"] == 49


def test_xids_of_gpus_that_tell_none_are_not_waited_for(board: Board) -> None:
    board.library.fail(NOT_SUPPORTED, "nvmlDeviceGetSupportedEventTypes")
    events = XidCollector(board.gpus, clock=board.clock)
    assert list(events.collect()) == []
    assert board.library.calls["nvmlEventSetWait"] == 0


def test_gpus_that_are_lost_or_new_are_registered_anew(tmp_path: Path) -> None:
    board = Board(tmp_path, gpus=2)
    events = XidCollector(board.gpus, clock=board.clock)
    list(events.collect())
    list(events.collect())
    registered = "nvmlDeviceRegisterEvents(gpu0)"
    assert board.library.asked[registered] == 1
    board.gpus.all[1].lost = True
    list(events.collect())
    assert board.library.asked[registered] == 2


# ── what it costs ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("hz", "percent"), [(1.0, 1.0), (10.0, 5.0), (20.0, 5.0)])
def test_calls_of_eight_gpus_within_the_budget(tmp_path: Path, hz: float, percent: float) -> None:
    """By the times that were measured on a real one, two minutes after its start."""
    board = Board(tmp_path, gpus=8, hz=hz)
    slow = board.slow()
    board.rounds(round(60 * hz))
    begun = board.library.spent_seconds
    board.library.calls.clear()
    board.rounds(round(60 * hz))
    board.clock.advance(-60)
    board.rounds(30, slow)
    assert board.library.calls["nvmlDeviceGetUtilizationRates"] == 8 * round(60 * hz)
    assert board.library.calls["nvmlGpmMetricsGet"] >= 8 * 5  # slower, and still there
    assert board.library.calls["nvmlDeviceGetTotalEnergyConsumption"] == 8 * 60 / ENERGY_SECONDS
    share = 100 * (board.library.spent_seconds - begun) / 60
    assert share < percent * 0.9  # the rest is for our own code


def test_counters_are_read_as_often_as_the_period_when_they_are_cheap(tmp_path: Path) -> None:
    board = Board(tmp_path, hz=20.0)
    board.library.microseconds["nvmlGpmMetricsGet"] = 100.0
    board.rounds(400)
    assert board.library.calls["nvmlGpmSampleGet"] == 20 / LEAST_SECONDS
    board = Board(tmp_path, hz=1.0)
    board.library.microseconds["nvmlGpmMetricsGet"] = 100.0
    board.rounds(20)
    assert board.library.calls["nvmlGpmSampleGet"] == 20


def test_the_pace_of_counters_follows_their_cost() -> None:
    clock, used = FakeClock(), [0.0]
    pace = Pace(0.1, clock, cpu_seconds=lambda: used[0])
    assert pace.seconds == pytest.approx(LEAST_SECONDS)
    for _ in range(50):
        begun = pace.now()
        used[0] += 0.05
        pace.measure(begun)
    assert pace.seconds == pytest.approx(0.05 / LARGEST_SHARE)


def test_buffers_are_allocated_once_and_freed(board: Board) -> None:
    board.rounds(20)
    assert board.library.calls["nvmlGpmSampleAlloc"] == board.library.samples == 2
    board.quick.close()
    assert board.library.samples == 0
    assert board.library.openings == 0


# ── opening ───────────────────────────────────────────────────────────────────────────────────


def opened(library: RecordedNvml) -> Any:
    return open_collectors(Devices(FewOwners(), FakeClock()), library)


@pytest.mark.parametrize("code", [9, 12])
def test_without_a_driver_there_is_nothing_and_no_noise(code: int) -> None:
    library = RecordedNvml(H200)

    def absent() -> None:
        raise pynvml.NVMLError(code)

    library.hooks["nvmlInit"] = absent
    assert opened(library) == ()


def test_a_driver_that_does_not_work_is_an_error() -> None:
    library = RecordedNvml(H200)

    def mismatch() -> None:
        raise pynvml.NVMLError(18)

    library.hooks["nvmlInit"] = mismatch
    with pytest.raises(pynvml.NVMLError):
        opened(library)


def test_presence_is_a_look_into_dev(tmp_path: Path) -> None:
    assert not present(tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert present(tmp_path)


@pytest.mark.parametrize("name", EVERY_RECORDING)
def test_every_recorded_machine_can_be_read(name: str) -> None:
    library = RecordedNvml(name)
    clock = FakeClock()
    collectors = open_collectors(Devices(FewOwners(), clock), library)
    metrics: Counter[str] = Counter()
    for _ in range(12):
        for collector in collectors:
            for reading in collector.collect():
                if isinstance(reading, Sample):
                    metrics[reading.metric] += 1
                    assert reading.value >= 0
                    assert reading.unit != "%" or reading.value <= 100
                else:
                    assert reading.message.KIND == "device_limited"
        clock.advance(1.0)
    assert {"gpu_memory_used_bytes", "gpu_power_watts", "gpu_memory_total_bytes"} <= set(metrics)
    for collector in collectors:
        collector.close()
    assert (library.samples, library.openings) == (0, 0)
