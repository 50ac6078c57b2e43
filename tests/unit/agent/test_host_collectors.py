"""Host collectors, on a /proc captured twice on a real machine, and on the one we run on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from runwatch.agent.cgroup import memory_cgroup
from runwatch.agent.collectors import COLLECTORS, Collector, Reading, Sample, Target
from runwatch.agent.collectors.disk import DiskCollector
from runwatch.agent.collectors.host import HostCollector
from runwatch.agent.collectors.network import NetworkCollector
from runwatch.agent.collectors.processes import ProcessCollector
from runwatch.clock import system_clock
from runwatch.testing import FakeClock

FIXTURES = Path(__file__).parents[2] / "fixtures"
CGROUPS = FIXTURES / "cgroups"
SECONDS_BETWEEN = 2.0


class Machine:
    """A /proc that can be taken from its first to its second captured state."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.clock = FakeClock()
        shutil.copytree(FIXTURES / "proc" / "first", self.proc)

    def move_on(self) -> None:
        shutil.copytree(FIXTURES / "proc" / "second", self.proc, dirs_exist_ok=True)
        self.clock.now_ns += int(SECONDS_BETWEEN * 1e9)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def values(readings: Iterable[Reading]) -> dict[tuple[str, str], float]:
    found = [reading for reading in readings if isinstance(reading, Sample)]
    result = {(s.metric, s.device): s.value for s in found}
    assert len(result) == len(found)
    return result


def test_host(machine: Machine) -> None:
    collector = HostCollector(proc=machine.proc, cgroups=FIXTURES / "none")
    first = values(collector.collect())
    assert ("host_cpu_utilization_percent", "") not in first  # a rate needs two readings
    assert first["host_load_average_1m", ""] == 1.99
    assert first["host_load_average_15m", ""] == 1.65
    assert first["host_memory_used_bytes", ""] == (24684100 - 23859280) * 1024
    assert first["host_memory_limit_bytes", ""] == 24684100 * 1024
    assert first["host_swap_used_bytes", ""] == 0
    assert ("host_oom_kills_total", "") not in first  # no cgroup: not known, not zero
    machine.move_on()
    second = values(collector.collect())
    # user 393, system 45, idle 1, iowait 2, softirq 1 ticks in between
    assert second["host_cpu_utilization_percent", ""] == pytest.approx(100 * 439 / 442)
    assert second["host_cpu_iowait_percent", ""] == pytest.approx(100 * 2 / 442)
    assert ("host_cpu_utilization_percent", "") not in values(collector.collect())  # no time passed


def test_memory_of_a_limited_container_version_1(machine: Machine) -> None:
    collector = HostCollector(proc=machine.proc, cgroups=CGROUPS / "v1")
    found = values(collector.collect())
    assert found["host_memory_limit_bytes", ""] == 4 << 30  # the parent's
    assert found["host_memory_used_bytes", ""] == 214347776 - 32382976
    assert found["host_oom_kills_total", ""] == 0


def test_memory_of_a_limited_container_version_2(machine: Machine) -> None:
    (machine.proc / "self" / "cgroup").write_text("0::/job/worker\n")
    collector = HostCollector(proc=machine.proc, cgroups=CGROUPS / "v2")
    found = values(collector.collect())
    assert found["host_memory_limit_bytes", ""] == 2 << 30  # the parent's
    assert found["host_memory_used_bytes", ""] == 734003200 - 200000000
    assert found["host_oom_kills_total", ""] == 2


def test_a_cgroup_seen_from_inside_a_container(machine: Machine, tmp_path: Path) -> None:
    """The path is the host's; what is mounted is our own group."""
    (machine.proc / "self" / "cgroup").write_text("0::/kubepods/pod7/x\n")
    shutil.copytree(CGROUPS / "v2" / "job" / "worker", tmp_path / "cgroup")
    group = memory_cgroup(proc=machine.proc, cgroups=tmp_path / "cgroup")
    assert group is not None
    assert group.limit_bytes() is None
    assert group.oom_kills() == 2
    (tmp_path / "cgroup" / "memory.max").write_text("1048576\n")
    assert group.limit_bytes() == 1 << 20


def test_no_limit_no_container_view(machine: Machine, tmp_path: Path) -> None:
    shutil.copytree(CGROUPS / "v1", tmp_path / "cgroups")
    (tmp_path / "cgroups/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    collector = HostCollector(proc=machine.proc, cgroups=tmp_path / "cgroups")
    found = values(collector.collect())
    assert found["host_memory_used_bytes", ""] == (24684100 - 23859280) * 1024


def test_disk(machine: Machine) -> None:
    places = [machine.proc, machine.proc.parent]
    collector = DiskCollector(places, proc=machine.proc, clock=machine.clock)
    first = values(collector.collect())
    room = os.statvfs(machine.proc)
    free = first.pop(("host_disk_free_bytes", str(machine.proc)))
    assert 0 < free < first[("host_disk_size_bytes", str(machine.proc))]
    assert first == {  # both places are on one file system: said once; no rates yet
        ("host_disk_size_bytes", str(machine.proc)): room.f_blocks * room.f_frsize
    }
    machine.move_on()
    second = values(collector.collect())
    rates = {key: value for key, value in second.items() if "second" in key[0]}
    assert rates == {  # loop devices and zram are not disks
        ("host_disk_read_bytes_per_second", "vda"): (9389650 - 9389626) * 512 / 2,
        ("host_disk_written_bytes_per_second", "vda"): (32100784 - 32021384) * 512 / 2,
    }


def test_a_place_that_is_not_there_is_left_out(machine: Machine) -> None:
    collector = DiskCollector([machine.proc / "none"], proc=machine.proc, clock=machine.clock)
    assert values(collector.collect()) == {}


def test_network(machine: Machine) -> None:
    collector = NetworkCollector(proc=machine.proc, clock=machine.clock)
    assert values(collector.collect()) == {
        ("host_network_rx_errors_total", "eth0"): 0,
        ("host_network_tx_errors_total", "eth0"): 0,
    }
    machine.move_on()
    assert values(collector.collect()) == {
        ("host_network_rx_bytes_per_second", "eth0"): 1_000_000.0,
        ("host_network_tx_bytes_per_second", "eth0"): 500.0,
        ("host_network_rx_errors_total", "eth0"): 3,
        ("host_network_tx_errors_total", "eth0"): 0,
    }


def test_a_counter_that_was_reset_gives_no_rate(machine: Machine) -> None:
    collector = NetworkCollector(proc=machine.proc, clock=machine.clock)
    machine.move_on()
    list(collector.collect())
    shutil.copytree(FIXTURES / "proc" / "first", machine.proc, dirs_exist_ok=True)
    machine.clock.now_ns += 10**9
    found = values(collector.collect())
    assert ("host_network_rx_bytes_per_second", "eth0") not in found


def test_processes(machine: Machine) -> None:
    labels = {"rank": "0", "pid": "4242"}
    targets = [Target(4242, 3, labels), Target(4243, 3, {"rank": "1"})]  # the second has just gone
    collector = ProcessCollector(lambda: targets, proc=machine.proc, clock=machine.clock)
    page = os.sysconf("SC_PAGE_SIZE")
    first = list(collector.collect())
    assert all(s.labels == labels and s.scope == 3 for s in first)
    assert values(first) == {
        ("process_resident_bytes", ""): 10044 * page,
        ("process_threads", ""): 2,
        ("process_open_files", ""): 7,
    }
    machine.move_on()
    ticks = os.sysconf("SC_CLK_TCK")
    cpu = values(collector.collect())["process_cpu_percent", ""]
    assert cpu == pytest.approx(100 * (273 - 95) / ticks / SECONDS_BETWEEN)


def test_a_pid_used_again_gives_no_rate(machine: Machine) -> None:
    collector = ProcessCollector(lambda: [Target(4242, 0)], proc=machine.proc, clock=machine.clock)
    list(collector.collect())
    machine.move_on()
    path = machine.proc / "4242" / "stat"
    path.write_text(path.read_text().replace(" 299942 ", " 300000 "))
    assert ("process_cpu_percent", "") not in values(collector.collect())


def test_nothing_readable_gives_nothing(tmp_path: Path) -> None:
    collectors: list[Collector] = [
        HostCollector(proc=tmp_path, cgroups=tmp_path),
        DiskCollector([], proc=tmp_path),
        NetworkCollector(proc=tmp_path),
        ProcessCollector(lambda: [Target(1, 0)], proc=tmp_path),
    ]
    for collector in collectors:
        assert list(collector.collect()) == []
        assert list(collector.collect()) == []


def test_a_real_process_at_work() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "x = bytearray(50 << 20)\nprint(flush=True)\nwhile True: pass"],
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        collector = ProcessCollector(lambda: [Target(child.pid, 0)])
        found = values(collector.collect())
        assert found["process_resident_bytes", ""] > 50 << 20
        deadline = system_clock.mono_ns() + 30 * 10**9
        while found.get(("process_cpu_percent", ""), 0.0) <= 0:
            assert system_clock.mono_ns() < deadline
            found = values(collector.collect())
    finally:
        child.kill()
        child.communicate()
    assert list(collector.collect()) == []


def test_all_collectors_on_this_machine(tmp_path: Path) -> None:
    def targets() -> list[Target]:
        return [Target(os.getpid(), 0, {"rank": "0"})]

    collectors = [make(tmp_path, targets) for make in COLLECTORS]
    assert sorted(c.name for c in collectors) == ["disk", "host", "network", "processes"]
    metrics = set()
    for collector in collectors:
        for sample in collector.collect():
            assert isinstance(sample, Sample)
            metrics.add(sample.metric)
            assert sample.value >= 0
    assert {"host_memory_used_bytes", "host_disk_free_bytes", "process_resident_bytes"} <= metrics
