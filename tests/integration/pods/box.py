"""Becomes one container: `python -S -m tests.integration.pods.box < SPEC`.

Two processes.  The first is outside, as a runtime's shim: it waits, passes signals on, and ends as
the second does (128 and the signal, as Kubernetes says it).  The second is process 1 of its own pid
namespace, sees its own root, and becomes the container's program.  The root is the machine's own,
below a layer in memory that is the container's: what it writes is gone with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from tests.integration.pods import system

DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
END: Final = signal.SIGHUP
"""To the first: the container is to be gone."""
_HEARD: Final = {signal.SIGTERM, END}
CANNOT_START: Final = 128
"""The code of a container whose program could not be started, as containerd has it."""


@dataclass(frozen=True)
class Box:
    """What a container is told to be."""

    stage: str
    """An empty folder of the machine: the root is made below it."""
    command: list[str]
    environment: dict[str, str]
    folder: str = ""
    """Where it begins; "": at the root."""
    join: list[str] = field(default_factory=list)
    """Namespaces, as files of /proc."""
    cgroups: list[str] = field(default_factory=list)
    memory: str = ""
    """The group that it sees as /sys/fs/cgroup/memory."""
    machine: list[str] = field(default_factory=list)
    """Folders of the machine's that its root alone does not have: on other disks, or in /tmp."""
    opened: list[str] = field(default_factory=list)
    """Folders that all may pass through: an interpreter below root's home, for one."""
    hidden: list[str] = field(default_factory=list)
    """Folders that are empty here."""
    files: dict[str, str] = field(default_factory=dict)
    mounts: list[tuple[str, str, bool]] = field(default_factory=list)
    """From, to, and whether it is read only."""
    read_only: bool = False
    host_pid: bool = False
    uid: int = 0
    gid: int = 0
    groups: list[int] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=list)
    no_new_privileges: bool = False

    def told(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def main() -> None:
    # The kernel forgets whom a program ends with when that changes its user: the first ends it.
    system.end_with_parent(END)
    box = Box(**json.load(sys.stdin))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for group in box.cgroups:
        Path(group, "cgroup.procs").write_text(f"{os.getpid()}")
    for namespace in box.join:
        system.enter(namespace)
    system.unshare(system.NEWNS | (0 if box.host_pid else system.NEWPID))
    system.mount("", "/", flags=system.REC | system.PRIVATE)
    # Those that arrive before the program is there wait for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    program = os.fork()
    if not program:
        _become(box)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(program, signal.SIGTERM))
    signal.signal(END, lambda *_: os.kill(program, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def _become(box: Box) -> NoReturn:
    try:
        _make_root(box)
        system.keep_capabilities(frozenset(box.capabilities))
        os.setgroups(box.groups)
        os.setresgid(box.gid, box.gid, box.gid)
        os.setresuid(box.uid, box.uid, box.uid)
        if box.no_new_privileges:
            system.no_new_privileges()
        os.chdir(box.folder or "/")
        system.end_with_parent(signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores them, and a child inherits
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execvpe(box.command[0], box.command, box.environment)
    except OSError as error:
        os.write(2, f"the container cannot be started: {error}\n".encode())
    os._exit(CANNOT_START)


def _make_root(box: Box) -> None:
    layer = box.stage
    system.mount("layer", layer, "tmpfs", options="mode=755")
    root, upper, work = (f"{layer}/{name}" for name in ("root", "upper", "work"))
    for folder in (root, upper, work):
        os.mkdir(folder)
    system.mount("root", root, "overlay", options=f"lowerdir=/,upperdir={upper},workdir={work}")
    for path in box.opened:
        os.chmod(f"{root}{path}", 0o755)
    for path, text in box.files.items():
        Path(f"{root}{path}").write_text(text)
    _make_system(box, root)
    for source, target, read_only in sorted(box.mounts, key=lambda each: each[1]):
        _bind(source, root, target, read_only=read_only)
    for path in box.machine:
        _bind(path, root, path, read_only=True)
    for path in box.hidden:
        system.mount("hidden", f"{root}{path}", "tmpfs", system.RDONLY)
    if box.read_only:
        system.mount("", root, flags=system.BIND | system.REMOUNT | system.RDONLY)
    system.pivot_root(root)


def _make_system(box: Box, root: str) -> None:
    flags = system.NOSUID | system.NODEV | system.NOEXEC
    system.mount("proc", f"{root}/proc", "proc", flags)
    system.mount("tmp", f"{root}/tmp", "tmpfs", system.NOSUID | system.NODEV, "mode=1777")
    system.mount("dev", f"{root}/dev", "tmpfs", system.NOSUID, "mode=755")
    for name in DEVICES:
        _bind(f"/dev/{name}", root, f"/dev/{name}", read_only=False)
    for name, target in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        os.symlink(f"/proc/self/fd{target}", f"{root}/dev/{name}")
    os.mkdir(f"{root}/dev/shm")
    system.mount("shm", f"{root}/dev/shm", "tmpfs", flags, "mode=1777,size=64m")
    system.bind("/sys", f"{root}/sys", read_only=True)
    system.mount("groups", f"{root}/sys/fs/cgroup", "tmpfs", flags, "mode=755")
    if box.memory:
        _bind(box.memory, root, "/sys/fs/cgroup/memory", read_only=True)


def _bind(source: str, root: str, target: str, *, read_only: bool) -> None:
    """What it is laid over is made, if it is not there."""
    at = Path(f"{root}{target}")
    if os.path.isdir(source):
        at.mkdir(parents=True, exist_ok=True)
    elif not at.exists():
        at.parent.mkdir(parents=True, exist_ok=True)
        at.touch()
    system.bind(source, str(at), read_only=read_only)


def environment_of_a_box(environment: Mapping[str, str]) -> dict[str, str]:
    """What the first of the two needs, and nothing of ours."""
    return {name: value for name, value in environment.items() if name in ("PATH", "LANG")}


if __name__ == "__main__":
    main()
