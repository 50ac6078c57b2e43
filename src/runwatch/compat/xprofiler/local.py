"""Viewers on this machine: `runwatch host DIR`, one process for each, written down in one file.

A file is removed when its process has ended, or when another process has got its number.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from runwatch.capture.tracing.gathering import gather
from runwatch.capture.tracing.profile_files import local_folder
from runwatch.capture.tracing.profiler_service import PortTarget
from runwatch.compat.commands import start_detached
from runwatch.compat.xprofiler import extra
from runwatch.compat.xprofiler.backend import Captured, Context, Instance, Order, Request, Wanted
from runwatch.compat.xprofiler.tunnels import Tunnels
from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.files import written
from runwatch.journal.liveness import read_stat
from runwatch.record.captures import checked_name

ZONE: Final = "local"
_URL: Final = re.compile(rb"https?://\S+")
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)(:[0-9]{1,5})?")
_END_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.05


class Local:
    name = "local"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._home = context.settings.home
        self._tunnels = Tunnels(self._home)

    def check(self, log_directory: str) -> None:
        """A directory that is not there yet is made: the first profile is still to come."""
        folder = local_folder(log_directory)
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = "it is no directory" if isinstance(error, FileExistsError) else error.strerror
            raise RunwatchError(f"Log directory {log_directory} cannot be used: {why}.") from error

    def instances(self, wanted: Wanted, flags: extra.Flags | None = None) -> list[Instance]:
        named = wanted.directories or wanted.names
        return [
            one.instance
            for one in self._written()
            if wanted.has(one.instance)
            and (named or not wanted.zones or one.instance.zone in wanted.zones)
        ]

    def create(self, order: Order) -> Instance:
        name = checked_name(order.name, "name")
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._home / f"{name}.json"
        if any(one.instance.name == name for one in self._written()):
            raise UsageError(f"there is an instance {name} already: xprofiler delete -n {name}")
        log = file.with_suffix(".log")
        words = [sys.executable, "-m", "runwatch.cli", "host", order.log_directory]
        words += extra.words({"--port": "0", **self._context.extra})
        self._context.runner.tell(f"$ {' '.join(words)}")
        with log.open("wb") as log_file:
            viewer = start_detached(words, log_file)
        try:
            url = self._ready(viewer, log)
            instance = Instance(
                order.log_directory, url, name, self._context.zone or ZONE, self.name
            )
            _write(file, instance, viewer.pid)
        except BaseException:  # also Ctrl-C: nothing half made stays
            _end(viewer.pid, lambda: viewer.poll() is not None)
            raise
        return instance

    def _ready(self, viewer: subprocess.Popen[bytes], log: Path) -> str:
        deadline = time.monotonic() + self._context.settings.ready_seconds
        while time.monotonic() < deadline:
            is_over = viewer.poll() is not None
            output = log.read_bytes()
            if url := _URL.search(output):
                return url.group().decode()
            if is_over:
                lines = output.decode(errors="replace").strip().splitlines()
                last = lines[-1] if lines else "it printed nothing"
                raise RunwatchError(f"the viewer did not start: {last}")
            time.sleep(_LOOK_SECONDS)
        raise RunwatchError(f"the viewer did not answer in time; see {log}")

    def delete(self, instances: Sequence[Instance]) -> None:
        chosen = {one.name for one in instances}
        for one in self._written():
            if one.instance.name in chosen:
                self._tunnels.close(one.instance.name)
                _end(one.pid, one.is_gone)
                one.file.unlink(missing_ok=True)
                one.file.with_suffix(".log").unlink(missing_ok=True)

    def connect(self, instance: Instance, port: int | None, host_port: int) -> str:
        """It is on this machine, and needs no tunnel: unless a certain port is asked for."""
        if port is None:
            return instance.url
        one = next((one for one in self._written() if one.instance.name == instance.name), None)
        if one is None:
            raise NotFound(f"{instance.name} has ended")
        scheme, _, rest = instance.url.partition("://")
        address, _, page = rest.partition("/")
        words = [sys.executable, "-m", "runwatch.compat.xprofiler.forwarding", str(port), address,
                 str(one.pid), str(one.start_ticks)]  # fmt: skip
        self._tunnels.open(instance.name, words, self._context.settings.command_seconds)
        return f"{scheme}://localhost:{port}/{page}"

    def disconnect(self, instance: Instance) -> None:
        self._tunnels.close(instance.name)

    def capture(self, request: Request) -> list[Captured]:
        self.check(request.log_directory)
        asked = [_address(host, request.port) for host in request.hosts]
        gathered = gather(asked, request.root, request.session_name, request.duration_ms)
        folder = f"{request.root}/plugins/profile/{request.session_name}"
        return [
            Captured(host, tuple(f"{folder}/{name}" for name in one.files), one.why)
            for host, one in zip(request.hosts, gathered, strict=True)
        ]

    def _written(self) -> list[_Written]:
        notes = [_read(file) for file in sorted(self._home.glob("*.json"))]
        kept = []
        for note in notes:
            if note is None:
                continue
            if note.is_gone():
                self._tunnels.close(note.instance.name)
                note.file.unlink(missing_ok=True)
                note.file.with_suffix(".log").unlink(missing_ok=True)
            else:
                kept.append(note)
        return kept


class _Written:
    def __init__(self, file: Path, instance: Instance, pid: int, start_ticks: int) -> None:
        self.file, self.instance = file, instance
        self.pid, self.start_ticks = pid, start_ticks

    def is_gone(self) -> bool:
        stat = read_stat(self.pid)
        return stat is None or stat.dead or stat.start_ticks != self.start_ticks


def _write(file: Path, instance: Instance, pid: int) -> None:
    stat = read_stat(pid)
    about: dict[str, Any] = {
        "instance": instance.to_json(),
        "pid": pid,
        "start_ticks": stat.start_ticks if stat else 0,
    }
    with written(file) as whole:
        whole.write(json.dumps(about, indent=1).encode())


def _read(file: Path) -> _Written | None:
    try:
        about = json.loads(file.read_bytes())
        instance = Instance(**about["instance"])
        return _Written(file, instance, int(about["pid"]), int(about["start_ticks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _end(pid: int, is_over: Callable[[], bool]) -> None:
    """Its whole session: the viewer has processes of its own."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            if kind is signal.SIGTERM:
                os.kill(pid, kind)
            else:
                os.killpg(pid, kind)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            if is_over():
                return
            time.sleep(_LOOK_SECONDS)


def _address(host: str, port: int) -> PortTarget:
    """`host`, `host:port`, `[::1]:port`.  Two programs of a host differ by their ports."""
    if not _HOST.fullmatch(host):
        raise UsageError(f"{host!r} is no host: a name or address, or host:port")
    name, separator, own = host.rpartition(":")
    if separator and own.isdigit():
        return PortTarget(host, f"{name.strip('[]')}_{own}")
    return PortTarget(f"{host}:{port}", host)
