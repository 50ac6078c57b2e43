"""Whom an agent sees, by a /proc that the test lays out: ours is the namespace `here`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runwatch.agent.lock import AgentLock, end_agents
from runwatch.agent.neighbours import seen_from_here
from runwatch.journal.liveness import is_alive, pid_namespace
from runwatch.record import JournalId, Origin

BOOT, HOST = "this boot", "node-1"
STAT = " (python) S 1 " + " ".join(["0"] * 17) + " {born} " + " ".join(["0"] * 30) + "\n"


class Machine:
    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self._namespaces = root / "namespaces"
        self._namespaces.mkdir()
        self._be_in("here", self.proc / "self")

    def namespace(self, name: str) -> int:
        """The kernel's number for it."""
        (self._namespaces / name).touch()
        return (self._namespaces / name).stat().st_ino

    def process(self, pid: int, *, namespace: str, inner: int, born: int) -> None:
        folder = self.proc / str(pid)
        self._be_in(namespace, folder)
        (folder / "stat").write_text(str(pid) + STAT.format(born=born))
        (folder / "status").write_text(f"Name:\tpython\nPid:\t{pid}\nNSpid:\t{pid}\t{inner}\n")

    def _be_in(self, namespace: str, folder: Path) -> None:
        (folder / "ns").mkdir(parents=True)
        self.namespace(namespace)
        os.link(self._namespaces / namespace, folder / "ns" / "pid")

    def sees(self, *origins: Origin) -> list[Origin]:
        return list(seen_from_here(origins, HOST, proc=self.proc, boot=BOOT))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def ours(machine: Machine) -> Origin:
    return Origin(JournalId("ours"), HOST, 17, 0, BOOT, 99, pid_namespace=machine.namespace("here"))


@pytest.fixture
def boxed(machine: Machine, ours: Origin) -> Origin:
    return replace(
        ours, journal=JournalId("boxed"), host="pod-1", pid_namespace=machine.namespace("pod")
    )


def test_one_of_ours_keeps_its_number_dead_or_alive(machine: Machine, ours: Origin) -> None:
    assert machine.sees(ours) == [ours]


@pytest.mark.parametrize("change", [{"boot": "an earlier one"}, {"boot": ""}, {"pid_namespace": 0}])
def test_one_of_this_host_is_ours_to_tell_of(
    machine: Machine, ours: Origin, change: dict[str, object]
) -> None:
    origin = replace(ours, **change)  # type: ignore[arg-type]
    assert machine.sees(origin) == [origin]


def test_one_that_calls_this_machine_by_another_name(machine: Machine, ours: Origin) -> None:
    origin = replace(ours, host="another name")
    assert machine.sees(origin) == [origin]


@pytest.mark.parametrize("host", ["pod-1", HOST])
def test_a_container_s_process_is_known_by_our_number(
    machine: Machine, boxed: Origin, host: str
) -> None:
    machine.process(5017, namespace="pod", inner=17, born=99)
    origin = replace(boxed, host=host)
    assert machine.sees(origin) == [replace(origin, pid=5017)]


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "another pod", "inner": 17, "born": 99},  # started in the same tick
        {"namespace": "pod", "inner": 18, "born": 99},
        {"namespace": "pod", "inner": 17, "born": 100},  # its number was given out again
    ],
)
def test_another_is_not_taken_for_it(
    machine: Machine, boxed: Origin, other: dict[str, object]
) -> None:
    machine.process(5017, **other)  # type: ignore[arg-type]
    assert machine.sees(boxed) == []


@pytest.mark.parametrize(
    "change",
    [
        {"boot": "another machine's"},
        {"boot": ""},
        {"pid_namespace": 0},  # recorded by a version that did not say
    ],
)
def test_nothing_is_said_of_who_may_be_elsewhere(
    machine: Machine, boxed: Origin, change: dict[str, object]
) -> None:
    machine.process(17, namespace="here", inner=17, born=99)
    machine.process(5017, namespace="pod", inner=17, born=99)
    assert machine.sees(replace(boxed, **change)) == []  # type: ignore[arg-type]


def test_what_may_not_be_read_is_passed_over(machine: Machine, boxed: Origin) -> None:
    machine.process(5016, namespace="pod", inner=17, born=99)
    (machine.proc / "5016" / "ns" / "pid").unlink()
    (machine.proc / "5016" / "ns").rmdir()
    machine.process(5017, namespace="pod", inner=17, born=99)
    assert [origin.pid for origin in machine.sees(boxed)] == [5017]


def test_whether_a_container_s_process_lives_cannot_be_told_by_its_number(
    machine: Machine, ours: Origin, boxed: Origin
) -> None:
    here = replace(boxed, host=HOST)
    assert is_alive(here, proc=machine.proc, boot=BOOT, host=HOST) is None
    assert is_alive(ours, proc=machine.proc, boot=BOOT, host=HOST) is False
    assert is_alive(replace(here, boot="earlier"), proc=machine.proc, boot=BOOT, host=HOST) is False


def test_no_one_is_ended_in_place_of_another_container_s_agent(tmp_path: Path) -> None:
    lock = AgentLock(tmp_path, "node-1")
    assert lock.acquire() and lock.holder() == os.getpid()
    # Were it believed, the next line would end us.
    lock.path.write_text(f'{{"pid": {os.getpid()}, "pid_namespace": {pid_namespace() + 1}}}')
    assert lock.holder() is None
    end_agents(tmp_path, patience_seconds=0.05)
    lock.release()
