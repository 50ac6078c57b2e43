"""How devices stand: from newest samples and recent incidents."""

from __future__ import annotations

import math
from typing import Any

import pytest

from runwatch.record import JournalId, RunId
from runwatch.rows import EventRow, Latest, SeriesRow
from runwatch.views.devices import HURTS, NOTICES, Board, Device, natural, ordered, totals

SECOND = 10**9
NOW = 1_700_000_000 * SECOND
GB = 1e9
WELL = {
    "gpu_utilization_percent": 90.0,
    "gpu_tensor_activity_percent": 40.0,
    "gpu_memory_used_bytes": 70 * GB,
    "gpu_memory_total_bytes": 140 * GB,
    "gpu_dram_bytes_per_second": 2e12,
    "gpu_power_watts": 650.0,
    "gpu_power_limit_watts": 700.0,
    "gpu_temperature_celsius": 60.0,
    "gpu_sm_clock_hz": 1.5e9,
    "gpu_throttle_reasons": 0.0,
}


class World:
    """Samples and incidents, and what is made of them."""

    def __init__(self) -> None:
        self.samples: list[tuple[SeriesRow, Latest]] = []
        self.incidents: list[EventRow] = []

    def sample(
        self,
        host: str = "a",
        index: int = 0,
        *,
        ago: float = 1,
        run: str = "",
        rank: int = 0,
        uuid: str | None = None,
        labels: dict[str, str] | None = None,
        **values: float,
    ) -> World:
        """All of WELL, with these changed; `gpu` need not be said."""
        told = WELL | {f"gpu_{name}": value for name, value in values.items()}
        return self.only(told, host, index, ago=ago, run=run, rank=rank, uuid=uuid, labels=labels)

    def only(
        self, told: dict[str, float], host: str = "a", index: int = 0, *, ago: float = 1,
        run: str = "", rank: int = 0, uuid: str | None = None,
        labels: dict[str, str] | None = None,
    ) -> World:  # fmt: skip
        uuid = f"{host}-{index}" if uuid is None else uuid
        known = {"uuid": uuid, "name": "NVIDIA H200", "index": str(index)} | (labels or {})
        for metric, value in told.items():
            number, journal = len(self.samples), JournalId(f"agent of {host}")
            device = f"gpu{index}"
            row = SeriesRow(number, journal, RunId(run), host, rank, device, metric, "", known)
            self.samples.append((row, Latest(number, NOW - int(ago * SECOND), None, value)))
        return self

    def happened(self, kind: str, host: str = "a", *, ago: float, **body: Any) -> World:
        assert kind in NOTICES
        time_ns = NOW - int(ago * SECOND)
        self.incidents.append(
            EventRow(JournalId("j"), RunId(""), host, 0, time_ns, None, kind, body)
        )
        return self

    def lost(self, *, ago: float, index: int = 0) -> World:
        device = f"gpu{index}"
        return self.happened("device_lost", ago=ago, device=device, uuid=f"a-{index}", why="gone")

    def board(self) -> Board:
        board = Board()
        board.add(self.samples)
        board.add_notices(self.incidents)
        return board

    def all(self, **offsets: int) -> list[Device]:
        found = self.board().devices(now_ns=NOW, name_of=str.title, clock_offset_ns=offsets)
        return [found[key] for key in ordered(found)]

    def one(self) -> Device:
        (device,) = self.all()
        return device


def hurts(device: Device) -> list[str]:
    return [trouble.hurt for trouble in device.troubles]


# ── numbers and owners ─────────────────────────────────────────────────────────────────────────


def test_a_device_that_is_well() -> None:
    device = World().sample(run="llama", rank=3).one()
    assert (device.host, device.device, device.index) == ("a", "gpu0", "0")
    assert (device.name, device.uuid) == ("NVIDIA H200", "a-0")
    assert (device.run, device.run_name, device.rank) == ("llama", "Llama", 3)
    assert (device.state, device.age_seconds) == ("reporting", 1.0)
    assert (device.utilization_percent, device.tensor_percent) == (90, 40)
    assert (device.memory_percent, device.memory_total_bytes) == (50, 140 * GB)
    assert (device.power_watts, device.power_limit_watts) == (650, 700)
    assert (device.troubles, device.throttle_reasons) == ((), ())


def test_a_chip_of_another_kind() -> None:
    told = {"tpu_duty_cycle_percent": 80.0, "tpu_hbm_used_bytes": 8 * GB}
    told |= {"tpu_hbm_total_bytes": 16 * GB, "tpu_tensorcore_utilization_percent": 55.0}
    device = World().only(told).one()
    assert (device.utilization_percent, device.tensor_percent) == (80, 55)
    assert (device.memory_percent, device.power_watts, device.ecc_corrected) == (50, None, None)


def test_the_newest_of_several_series_counts_and_says_whose_it_is() -> None:
    world = World().sample(ago=20, run="old", power_watts=111.0)
    device = world.sample(ago=1, run="new", rank=7, power_watts=222.0).one()
    assert (device.run, device.rank, device.power_watts) == ("new", 7, 222)
    device = world.sample(ago=0.5, power_watts=50.0).one()
    assert (device.run, device.rank, device.power_watts) == ("", None, 50)


def test_what_was_not_read_of_late_is_absent_but_limits_last() -> None:
    world = World().only({"gpu_tensor_activity_percent": 9.0, "gpu_throttled_thermal": 1.0}, ago=70)
    world.only({"gpu_memory_total_bytes": 8 * GB, "gpu_power_limit_watts": 300.0}, ago=70)
    device = world.only({"gpu_utilization_percent": 50.0, "gpu_power_watts": math.nan}).one()
    assert (device.tensor_percent, device.power_watts) == (None, None)
    assert (device.memory_total_bytes, device.power_limit_watts) == (8 * GB, 300)
    assert device.troubles == ()


def test_boards_keep_their_identity_when_they_are_renumbered() -> None:
    world = World().sample(index=3, uuid="first", ago=100).sample(index=4, uuid="second", ago=90)
    world.happened("device_lost", ago=100, device="gpu3", uuid="first", why="fell off")
    world.sample(index=3, uuid="second", ago=1)  # a new agent counts anew
    states = {device.uuid: (device.device, device.state) for device in world.all()}
    assert states == {"first": ("gpu3", "lost"), "second": ("gpu3", "reporting")}


def test_two_containers_of_one_name_are_two_devices() -> None:
    found = World().sample(uuid="one").sample(uuid="other").all()
    assert len(found) == 2
    assert len(World().only(WELL, uuid="").only(WELL, uuid="").all()) == 1


def test_a_part_of_a_board_is_called_by_its_own_number() -> None:
    row, point = World().sample(labels={"mig": "1.0"}).samples[0]
    world = World()
    part = SeriesRow(1, row.journal, row.run, "a", 0, "gpu0.mig1.0", row.metric, "", row.labels)
    world.samples.append((part, point))
    assert world.one().index == "0.mig1.0"


# ── what hurts ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changed", "hurt", "words"),
    [
        ({"throttle_reasons": 0x20}, "thermal", "thermal limit"),
        ({"throttle_reasons": 0x40}, "thermal", "thermal limit"),
        ({"throttle_reasons": 0x8}, "hardware", "hardware slowdown"),
        ({"throttle_reasons": 0x4}, "power", "power cap"),
        ({"throttle_reasons": 0x80}, "power", "power brake"),
        ({"memory_used_bytes": 133 * GB}, "memory_full", "memory 95 % full"),
        ({"remapping_pending": 1.0}, "memory_errors", "bad memory row: replaced at the next reset"),
        ({"remapping_failed": 1.0}, "memory_errors", "a bad memory row cannot be replaced"),
    ],
)
def test_what_its_numbers_say(changed: dict[str, Any], hurt: str, words: str) -> None:
    (trouble,) = World().sample(**changed).one().troubles
    assert (trouble.hurt, trouble.words, trouble.since_ns) == (hurt, words, None)


@pytest.mark.parametrize("mask", [0x0, 0x1, 0x2, 0x10, 0x100])
def test_reasons_that_do_not_hurt_are_only_told(mask: int) -> None:
    device = World().sample(throttle_reasons=mask).one()
    assert device.troubles == ()
    assert len(device.throttle_reasons) == bool(mask)


@pytest.mark.parametrize("name", ["thermal", "hardware", "power"])
def test_a_recording_without_the_mask(name: str) -> None:
    told = {"gpu_utilization_percent": 90.0, f"gpu_throttled_{name}": 1.0}
    assert hurts(World().only(told).one()) == [name]
    assert hurts(World().only(told | {f"gpu_throttled_{name}": 0.0}).one()) == []


def test_corrected_errors_are_told_and_others_hurt() -> None:
    def errors(kind: str, count: float) -> World:
        told = {"gpu_ecc_errors_total": count}
        return World().sample().only(told, labels={"errors": kind})

    device = errors("corrected", 12).one()
    assert (device.ecc_corrected, device.ecc_uncorrected, hurts(device)) == (12, None, [])
    device = errors("uncorrected", 1).one()
    assert device.troubles[0].words == "1 uncorrected memory error"
    assert errors("uncorrected", 1200).one().troubles[0].words == "1,200 uncorrected memory errors"


def test_idle_hurts_only_a_run() -> None:
    assert hurts(World().sample(utilization_percent=0).one()) == []
    assert hurts(World().sample(utilization_percent=0, run="llama").one()) == ["idle"]
    assert hurts(World().sample(utilization_percent=50, run="llama").one()) == []


def test_an_xid_error_hurts_for_an_hour() -> None:
    def told(ago: float) -> Device:
        world = World().sample()
        about: dict[str, Any] = {"device": "gpu0", "uuid": "a-0", "xid": 94}
        about["meaning"] = "contained"
        return world.happened("gpu_xid", ago=ago, **about).one()

    (trouble,) = told(1000).troubles
    assert (trouble.hurt, trouble.words) == ("xid", "XID 94: contained")
    assert trouble.since_ns == NOW - 1000 * SECOND
    later = told(4000)
    assert later.troubles == ()
    assert later.xid is not None and later.xid.number == 94


# ── absence ────────────────────────────────────────────────────────────────────────────────────


def test_a_silent_device_has_no_numbers() -> None:
    device = World().sample(ago=31, run="llama").one()
    assert (device.state, hurts(device)) == ("silent", ["silent"])
    assert (device.utilization_percent, device.power_limit_watts) == (None, 700)
    assert World().sample(ago=29).one().state == "reporting"


def test_the_age_is_by_the_hosts_own_clock() -> None:
    behind = World().sample(host="slow", ago=600)
    assert behind.all()[0].state == "silent"
    (device,) = behind.all(slow=-599 * SECOND)
    assert (device.state, device.age_seconds) == ("reporting", 1.0)


def test_an_agent_that_said_goodbye_leaves_no_trouble() -> None:
    world = World().sample(ago=100).happened("agent_end", ago=99, pid=1)
    assert (world.one().state, hurts(world.one())) == ("ended", [])
    again = World().sample(ago=50).happened("agent_end", ago=99, pid=1)
    assert again.one().state == "silent"


def test_a_driver_that_hangs_is_named() -> None:
    world = World().sample(ago=40).happened("collector_stuck", ago=20, collector="nvml")
    assert world.one().troubles[0].words == "no sample: nvml hangs in its driver"
    world.happened("collector_resumed", ago=5, collector="nvml")
    assert world.one().troubles[0].words == "no sample"


def test_a_lost_device_is_lost_until_it_says_something() -> None:
    world = World().sample(ago=240).lost(ago=239)
    device = world.one()
    assert (device.state, device.troubles[0].words) == ("lost", "lost: gone")
    assert device.troubles[0].since_ns == NOW - 239 * SECOND
    world.happened("device_added", ago=10, device="gpu0", uuid="a-0")
    assert world.one().state == "reporting"
    assert World().sample(ago=1).lost(ago=239).one().state == "reporting"


def test_devices_known_by_their_incidents_only() -> None:
    world = World().happened("device_lost", ago=5, device="gpu3", why="GPU is lost")
    device = world.one()
    assert (device.device, device.state, device.time_ns) == ("gpu3", "lost", None)
    assert device.age_seconds is None
    world = World().sample(index=3, ago=90)  # whose board could not be asked who it is
    world.happened("device_unreadable", ago=5, device="gpu3", metric="device", why="no driver")
    device = world.one()
    assert (device.uuid, hurts(device)) == ("a-3", ["unreadable"])
    assert device.troubles[0].words == "unreadable: no driver"


def test_one_number_that_cannot_be_read_is_no_trouble() -> None:
    world = World().sample()
    world.happened("device_unreadable", ago=5, device="gpu0", uuid="a-0", metric="gpu_power_watts")
    assert world.one().troubles == ()


# ── order and sums ─────────────────────────────────────────────────────────────────────────────


def everything_that_hurts() -> World:
    world = World()
    world.sample(host="n1", run="r", utilization_percent=0)
    world.sample(host="n2", memory_used_bytes=140 * GB).sample(host="n3", throttle_reasons=4)
    world.sample(host="n4").only(
        {"gpu_ecc_errors_total": 1}, "n4", labels={"errors": "uncorrected"}
    )
    world.sample(host="n5", throttle_reasons=8).sample(host="n6", throttle_reasons=0x20)
    world.sample(host="n7").happened("gpu_xid", "n7", ago=9, device="gpu0", uuid="n7-0", xid=31)
    world.sample(host="n8", ago=45).sample(host="n9", ago=45)
    world.happened("device_unreadable", "n9", ago=5, device="gpu0", uuid="n9-0", metric="device")
    world.sample(host="n10", ago=45).happened(
        "device_lost", "n10", ago=45, device="gpu0", uuid="n10-0"
    )
    return world


def test_the_worst_comes_first() -> None:
    world = everything_that_hurts().sample(host="n0").sample(host="n11", ago=99)
    world.happened("agent_end", "n11", ago=98)
    found = world.all()
    assert [device.troubles[0].hurt for device in found if device.troubles] == list(HURTS)
    assert [device.host for device in found] == [
        "n10", "n9", "n8", "n7", "n6", "n5", "n4", "n3", "n2", "n1", "n0", "n11",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("order", "hosts"),
    [
        ("host", ["n2", "n10", "x"]),
        ("utilization", ["x", "n2", "n10"]),
        ("power", ["n10", "n2", "x"]),
        ("temperature", ["n2", "n10", "x"]),
        ("run", ["n10", "x", "n2"]),
    ],
)
def test_other_orders(order: str, hosts: list[str]) -> None:
    world = World().sample(host="n10", utilization_percent=10, power_watts=700, run="a")
    world.sample(host="n2", utilization_percent=20)
    world.only({"gpu_utilization_percent": 30}, "x", run="b")
    found = world.board().devices(now_ns=NOW)
    assert [found[key].host for key in ordered(found, order)] == hosts


def test_hosts_are_counted_as_people_count() -> None:
    names = ["node10", "node2", "node2b", "a", "node", "10", "9"]
    assert sorted(names, key=natural) == ["9", "10", "a", "node", "node2", "node2b", "node10"]


def test_totals_are_over_those_that_report() -> None:
    world = World().sample(utilization_percent=50).sample(index=1, utilization_percent=100)
    world.only({"gpu_power_watts": 10.0}, index=2).sample(index=3, ago=100)
    sums = totals(world.all())
    assert (sums.devices, sums.reporting, sums.hosts) == (4, 3, 1)
    assert (sums.utilization_percent, sums.power_watts) == (75, 1310)
    assert (sums.memory_used_bytes, sums.memory_total_bytes) == (140 * GB, 280 * GB)
    assert sums.hurting == {"silent": 1}
    nothing = totals([])
    assert (nothing.devices, nothing.utilization_percent, nothing.power_watts) == (0, None, None)
