"""Small file systems of several kinds, each mounted where nobody else sees it.

`run_on` needs root, loop devices, `unshare` and the kind's own `mkfs`; a test that cannot have them
is skipped and says what is missing.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.integration.sdk_programs import program_environment

_MAKE: Final = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
_MEGABYTES: Final = {"ext4": 48, "xfs": 320, "btrfs": 128, "tmpfs": 32}

BEGIN: Final = """
import fcntl, os, struct, subprocess, sys, time
import runwatch
disk = os.environ["DISK"]
run = runwatch.init("disk", dir=f"{disk}/runwatch")

def until(condition):
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)

until(lambda: run._writer._prepared is not None)

def fill():
    os.sync()
    with open(f"{disk}/fill", "wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(os.urandom(size))
            except OSError:
                pass
    os.sync()

def rounds():
    for _ in range(2):
        run._writer.keep()
        for number in range(2000):
            run.log(loss=number)
"""


@functools.cache
def missing(kind: str) -> str:
    if os.getuid() != 0:
        return "only root may mount"
    search = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    for command in ("unshare", "mount", *_MAKE.get(kind, ())[:1]):
        if shutil.which(command, path=search) is None:
            return f"there is no {command}"
    if not _done("true"):
        return "a mount namespace is not to be had here (unshare -m)"
    if kind == "tmpfs" and not _done("mount -t tmpfs none /mnt"):
        return "nothing can be mounted here"
    return ""


def _done(script: str) -> bool:
    """Where nobody else sees it."""
    return (
        subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True).returncode == 0
    )


def mount_of(kind: str, disk: Path, image: Path, megabytes: int = 0) -> str:
    """The command that mounts a new file system of this kind; skips where there can be none."""
    megabytes = megabytes or _MEGABYTES[kind]
    if why := missing(kind):
        pytest.skip(f"{kind}: {why}")
    if kind == "tmpfs":
        return f"mount -t tmpfs -o size={megabytes}m none {disk}"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    paths = {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    subprocess.run([*_MAKE[kind], image], check=True, capture_output=True, env=paths)
    return f"mount -o loop {image} {disk}"


def fill(disk: Path) -> None:
    """To the last byte."""
    _sync(disk)
    for size in (1 << 20, 4096, 1):
        with (disk / f"fill-{size}").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(os.urandom(size))
    _sync(disk)


def empty(disk: Path) -> None:
    for path in disk.glob("fill-*"):
        path.unlink()
    _sync(disk)


def _sync(disk: Path) -> None:
    """That one only: others are at work on this machine."""
    subprocess.run(["sync", "-f", disk], check=True)


def run_on(
    kind: str, text: str, tmp_path: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `BEGIN` and a program on a new file system; what it recorded is copied to `copy`."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    mount = mount_of(kind, disk, tmp_path / "image")
    program = tmp_path / "program.py"
    program.write_text(BEGIN + text)
    script = f"""
        {mount} || exit 77
        {sys.executable} {program}
        code=$?
        cp -r {disk}/runwatch {copy} 2>/dev/null
        exit $code
    """
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=program_environment(tmp_path, DISK=str(disk), **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    if done.returncode == 77:
        pytest.skip(f"{kind} cannot be mounted: {done.stderr.strip()}")
    return done
