"""Whose device it is, by a /proc that the test lays out and by the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from runwatch.agent.attribution import Attribution
from runwatch.agent.collectors.base import NOBODY, NOTHING, Held, Owner, Target
from runwatch.journal.liveness import start_ticks

HOST = "pid:[4026531836]"
CONTAINER = "pid:[4026532999]"
NODES = ("/dev/nvidia0", "/dev/nvidia1")


class Machine:
    """A /proc with processes in it, and an attribution that looks at it."""

    def __init__(self, proc: Path, namespace: str = HOST) -> None:
        self.proc = proc
        self.targets: list[Target] = []
        self.changes: list[tuple[str, Owner]] = []
        (proc / "self" / "ns").mkdir(parents=True)
        os.symlink(namespace, proc / "self" / "ns" / "pid")
        self.owners = Attribution(
            lambda: self.targets,
            changed=lambda held, owner: self.changes.append((held.device, owner)),
            proc=proc,
        )

    def process(
        self,
        pid: int,
        *,
        parent: int = 1,
        name: str = "python",
        opened: Sequence[str] = (),
        environment: Mapping[str, str] = NOTHING,
    ) -> None:
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True)
        status = f"Name:\t{name}\nPPid:\t{parent}\n"
        (folder / "status").write_text(status)
        pairs = [f"{key}={value}\0" for key, value in environment.items()]
        (folder / "environ").write_text("".join(pairs))
        for number, path in enumerate(opened):
            os.symlink(path, folder / "fd" / str(number))

    def run(self, pid: int, run: str, rank: int, *, number: int = 0) -> Target:
        labels = {"rank": str(rank), "pid": str(pid)}
        target = Target(pid, number or len(self.targets) + 1, labels, run, pid)
        self.targets.append(target)
        return target

    def hold(self, *pids: set[int] | None) -> None:
        """The driver's word: who has gpu0, gpu1 …"""
        self.owners.tell("nvml", [gpu(number, held) for number, held in enumerate(pids)])

    def owner(self, device: str = "gpu0") -> Owner:
        return self.owners.of(device)


def gpu(number: int, pids: set[int] | None) -> Held:
    known = None if pids is None else frozenset(pids)
    return Held(f"gpu{number}", number, f"GPU-{number}a", known, NODES, ("CUDA_VISIBLE_DEVICES",))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def container(tmp_path: Path) -> Machine:
    return Machine(tmp_path, CONTAINER)


def test_the_process_that_has_it_open(machine: Machine) -> None:
    machine.process(100)
    machine.process(101)
    machine.run(100, "a", 0)
    machine.run(101, "a", 1)
    machine.hold({100}, {101}, set())
    assert machine.owner("gpu0") == Owner(1, {"rank": "0", "pid": "100"}, "process")
    assert machine.owner("gpu1") == Owner(2, {"rank": "1", "pid": "101"}, "process")
    assert machine.owner("gpu2") is NOBODY
    assert machine.owner("no such device") is NOBODY


def test_a_child_of_a_run_s_process(machine: Machine) -> None:
    machine.process(100)
    machine.process(200, parent=100)
    machine.process(300, parent=200)
    machine.run(100, "a", 0)
    machine.hold({300})
    assert machine.owner() == Owner(1, {"rank": "0", "pid": "100"}, "process tree")
    found = machine.owners.of_process(300)
    assert found is not None
    assert found.scope == 1


def test_two_runs_or_a_stranger_make_it_the_host_s(machine: Machine) -> None:
    for pid in (100, 101, 102):
        machine.process(pid)
    machine.run(100, "a", 0)
    machine.run(101, "b", 0)
    machine.hold({100, 101}, {100, 102}, {102})
    assert [machine.owner(f"gpu{n}") for n in range(3)] == [NOBODY] * 3
    assert machine.changes == []
    assert machine.owners.of_process(102) is None


def test_a_driver_s_own_daemon_is_no_stranger(machine: Machine) -> None:
    machine.process(100)
    machine.process(101, name="nvidia-cuda-mps-server")
    machine.run(100, "a", 0)
    machine.hold({100, 101})
    assert machine.owner().scope == 1


def test_several_ranks_of_one_run(machine: Machine) -> None:
    for pid in (100, 101, 102):
        machine.process(pid)
    machine.run(102, "a", 2)
    machine.run(100, "a", 0)
    machine.run(101, "a", 1)
    machine.hold({100, 101, 102})
    owner = machine.owner()
    assert owner.scope == 2  # the lowest rank's
    assert owner.labels == {"rank": "0", "ranks": "0,1,2"}


def test_a_change_of_owner_is_told_once(machine: Machine) -> None:
    machine.process(100)
    machine.process(101)
    machine.run(100, "a", 0)
    machine.hold({100})
    first = machine.owner()
    machine.hold({100})
    assert machine.owner() is first  # the same object: nobody need compare
    machine.run(101, "b", 0)
    machine.hold({101})
    machine.hold(set())
    assert [(device, owner.scope) for device, owner in machine.changes] == [
        ("gpu0", 1),
        ("gpu0", 2),
        ("gpu0", 0),
    ]


def test_a_dead_owner_loses_it_at_once(machine: Machine) -> None:
    machine.process(100)
    machine.run(100, "a", 0)
    machine.hold({100})
    machine.targets.clear()
    machine.owners.refresh()
    assert machine.owner() is NOBODY


def test_a_run_that_begins_after_its_process_had_the_device(machine: Machine) -> None:
    machine.process(100)
    machine.hold({100})
    assert machine.owner() is NOBODY
    machine.run(100, "a", 0)
    machine.owners.refresh()
    assert machine.owner().scope == 1


@pytest.mark.parametrize("pids", [set(), {70001}, None])
def test_in_a_container_the_environment_decides(container: Machine, pids: set[int] | None) -> None:
    """The driver names nobody, or by numbers that mean nothing here, or cannot tell."""
    for rank in range(2):
        pid = 100 + rank
        variables = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        container.process(pid, opened=["/dev/null", "/dev/nvidia0"], environment=variables)
        container.run(pid, "a", 8 + rank)
    container.process(102)  # of a run, and uses no GPU
    container.run(102, "b", 0)
    container.hold(pids, pids, pids)
    assert container.owner("gpu0") == Owner(1, {"rank": "8", "pid": "100"}, "environment")
    assert container.owner("gpu1") == Owner(2, {"rank": "9", "pid": "101"}, "environment")
    assert container.owner("gpu2") is NOBODY


@pytest.mark.parametrize(
    ("variables", "owned"),
    [
        ({}, [0, 1, 2, 3]),  # one process: all it may see
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, [1, 3]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "3,1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, [1]),
        ({"SLURM_LOCALID": "0"}, [0, 1, 2, 3]),
    ],
)
def test_which_devices_an_environment_means(
    container: Machine, variables: dict[str, str], owned: list[int]
) -> None:
    container.process(100, opened=["/dev/nvidia1"], environment=variables)
    container.run(100, "a", 0)
    container.hold(None, None, None, None)
    found = [n for n in range(4) if container.owner(f"gpu{n}") is not NOBODY]
    assert found == owned


def test_a_number_that_is_ours_by_chance_is_not_believed(container: Machine) -> None:
    container.process(100)  # uses no GPU; the host's process 100 does
    container.run(100, "a", 0)
    container.hold({100})
    assert container.owner() is NOBODY


def test_another_user_s_process_is_not_guessed_about(container: Machine) -> None:
    container.process(100, opened=["/dev/nvidia0"])
    (container.proc / "100" / "environ").unlink()
    container.run(100, "a", 0)
    container.hold(None)
    assert container.owner() is NOBODY


def test_a_device_that_is_gone_is_nobody_s(machine: Machine) -> None:
    machine.process(100)
    machine.run(100, "a", 0)
    machine.hold({100})
    machine.owners.tell("nvml", ())
    assert machine.owner() is NOBODY


def test_a_real_child_of_ours() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        me = Target(os.getpid(), 4, {"rank": "0"}, "a", start_ticks(os.getpid()) or 0)
        owners = Attribution(lambda: [me])
        found = owners.of_process(child.pid)
        assert found == Owner(4, {"rank": "0"}, "process tree")
        direct = owners.of_process(os.getpid())
        assert direct is not None
        assert direct.how == "process"
    finally:
        child.communicate(b"\n")
