"""Whose memory control group is whose, as an agent in a container sees it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from runwatch.agent.cgroup import MemoryCgroup, memory_cgroup

GROUPS: Final = Path(__file__).parents[2] / "fixtures" / "cgroups"
POD: Final = 4711


class View:
    """What such an agent has at /proc and /sys/fs/cgroup; its own group has killed nobody."""

    def __init__(self, root: Path, version: int) -> None:
        self.proc, self.cgroups = root / "proc", root / "cgroups"
        self.version = version
        self._below = "memory" if version == 1 else ""
        self.place(self.cgroups / self._below, kills=0)
        self.process("self", "/kubepods/agent" if version == 1 else "/")
        self.process(POD, "/kubepods/pod" if version == 1 else "/../pod")

    def process(self, pid: int | str, path: str) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        controllers = "4:memory" if self.version == 1 else "0:"
        (folder / "cgroup").write_text(f"{controllers}:{path}\n")

    @property
    def inside(self) -> Path:
        """As the pod's container has it."""
        return self.proc / str(POD) / "root/sys/fs/cgroup" / self._below

    def place(self, folder: Path, *, kills: int, processes: str = "") -> None:
        source = "v1/memory/job" if self.version == 1 else "v2/job/worker"
        shutil.copytree(GROUPS / source, folder)
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        (folder / name).write_text(f"oom_kill {kills}\n")
        (folder / "memory.usage_in_bytes").write_text("1\n")
        (folder / "cgroup.procs").write_text(processes)

    def find(self, pid: int | str = POD) -> MemoryCgroup | None:
        return memory_cgroup(pid, proc=self.proc, cgroups=self.cgroups)


@pytest.fixture(params=[1, 2])
def view(tmp_path: Path, request: pytest.FixtureRequest) -> View:
    return View(tmp_path, request.param)


def test_another_containers_group_is_not_taken_for_ours(view: View) -> None:
    assert view.find() is None
    ours = view.find("self")
    assert ours is not None and ours.oom_kills() == 0


def test_it_is_found_where_its_own_container_sees_it(view: View) -> None:
    view.place(view.inside, kills=3, processes=f"7\n{POD}\n")
    group = view.find()
    assert group is not None and group.oom_kills() == 3
    try:
        shutil.rmtree(view.proc / str(POD))  # the process has ended
        assert group.held is not None and group.directory.is_dir()
    finally:
        group.close()


@pytest.mark.parametrize("processes", ["", "7\n47112\n"])
def test_one_that_does_not_have_the_process_is_none_of_its(view: View, processes: str) -> None:
    """The container may have mounted anything there."""
    view.place(view.inside, kills=3, processes=processes)
    before = os.listdir("/proc/self/fd")
    assert view.find() is None
    assert os.listdir("/proc/self/fd") == before


def test_a_process_beside_us_has_our_group(view: View) -> None:
    view.process(POD, "/kubepods/agent" if view.version == 1 else "/")
    group = view.find()
    assert group is not None and group.directory == view.find("self").directory  # type: ignore[union-attr]
