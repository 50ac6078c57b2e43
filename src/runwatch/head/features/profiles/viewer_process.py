"""One viewer process for all who look: started when first asked for, watched, ended when idle."""

from __future__ import annotations

import importlib.util
import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from runwatch.errors import RunwatchError, UsageError
from runwatch.head.features.profiles.shown import Giver
from runwatch.head.state.profile_files import File, for_viewer
from runwatch.head.state.profiles import StoredProfile, folder_name

MEMORY_BYTES: Final = 4 << 30
IDLE_SECONDS: Final = 600.0
START_SECONDS: Final = 60.0
WATCH_SECONDS: Final = 0.25
ARRANGE_SECONDS: Final = 1.0
_LONGEST_SOCKET: Final = 100
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
logger = logging.getLogger("runwatch.head")


class ViewerFailed(RunwatchError):
    """It did not start, or ended before it had answered."""


class ViewerCrashed(ViewerFailed):
    """It ended before it had answered, and nobody had ended it."""


def is_installed() -> bool:
    return importlib.util.find_spec("xprof") is not None


class Viewer:
    """Any thread may call."""

    def __init__(
        self,
        profiles: Callable[[], Sequence[StoredProfile]],
        *,
        memory_bytes: int = MEMORY_BYTES,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._profiles = profiles
        self._memory_bytes = memory_bytes
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        """Held while it starts, which takes seconds."""
        self._counting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ours: socket.socket | None = None
        """Its standard input's other end."""
        self._giver: Giver[File] | None = None
        self._folder = Path()
        self._watcher: threading.Thread | None = None
        self._closing = threading.Event()
        self._used = 0.0
        self._arranged = 0.0
        self._busy = 0
        self.ended_because = ""

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def hold(self) -> None:
        """It stays until it is released as often as it was held."""
        with self._counting:
            self._busy += 1

    def release(self) -> None:
        with self._counting:
            self._busy -= 1
            self._used = time.monotonic()

    def socket(self, *, fresh: bool) -> Path:
        """Where it listens; it is started if it must be.  `fresh`: it is to know new sessions."""
        with self._lock:
            return self._running(fresh)

    def after(self, socket: Path, *, fresh: bool) -> Path:
        """Where the next one listens, now that nobody does there: the last one is dying, though it
        is not dead as long as one of its threads is left."""
        with self._lock:
            if self._folder / "socket" == socket:
                self._end("")
            return self._running(fresh)

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            self._end("the head ended")
        if self._watcher is not None:
            self._watcher.join()

    # ── starting and ending ───────────────────────────────────────────────────────────────────

    def _running(self, fresh: bool) -> Path:
        if self._closing.is_set():
            raise ViewerFailed("this head is stopping")
        if self._process is None or self._process.poll() is not None:
            self._end("")
            self._start()
        elif fresh and time.monotonic() - self._arranged > ARRANGE_SECONDS:
            try:
                self._arrange()
            except OSError:  # it is ending
                self._end("")
                self._start()
        return self._folder / "socket"

    def _start(self) -> None:
        if not is_installed():
            raise UsageError("XProf is not installed here: pip install 'runwatch[profiles]'")
        self._folder = folder = _private_folder()
        for inner in (folder / "profiles", folder / "scratch"):
            inner.mkdir(0o700)
        command = [
            sys.executable, "-P", "-m", "runwatch.head.features.profiles.viewer",
            str(folder / "socket"), str(folder / "profiles"), str(self._memory_bytes),
        ]  # fmt: skip
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._giver = Giver(self._ours, for_viewer)
        with (folder / "log").open("wb") as log, theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(folder / "scratch"),
                start_new_session=True,  # Ctrl-C is for the head, which then ends it
            )
        if not self._is_arranged() or not _says_ready(self._process, START_SECONDS):
            words = _tail(self._folder / "log")
            self._end("it did not start")
            raise ViewerFailed(f"XProf did not start: {words}")
        self._used = time.monotonic()
        self.ended_because = ""
        self._watcher = threading.Thread(
            target=self._watch, args=[self._process], name="runwatch-viewer", daemon=True
        )
        self._watcher.start()

    def _end(self, why: str) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if why:
            self.ended_because = why
        process.kill()
        process.wait()
        for pipe in (self._ours, process.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        while not self._closing.wait(WATCH_SECONDS):
            with self._lock:
                if self._process is not process or process.poll() is not None:
                    return
                why = self._too_much(process)
                if why:
                    logger.warning("XProf was ended: %s", why)
                    self._end(why)
                    return

    def _too_much(self, process: subprocess.Popen[bytes]) -> str:
        if _resident_bytes(process.pid) > self._memory_bytes:
            return (
                f"it took more than {self._memory_bytes / 2**30:.3g} GiB of memory "
                "(viewer_memory says how much it may)"
            )
        idle = not self._busy and time.monotonic() - self._used > self._idle_seconds
        return f"nobody has used it for {self._idle_seconds:g} s" if idle else ""

    # ── what it shows ─────────────────────────────────────────────────────────────────────────

    def _is_arranged(self) -> bool:
        try:
            self._arrange()
        except OSError:
            return False
        return True

    def _arrange(self) -> None:
        assert self._giver is not None
        left_out = self._giver.show(wanted(self._profiles()))
        if left_out:
            logger.warning(
                "XProf is not shown the %d oldest files: it may open no more (ulimit -n)", left_out
            )
        self._arranged = time.monotonic()


def wanted(profiles: Sequence[StoredProfile]) -> dict[str, dict[str, File]]:
    """Their XPlane files, by the folder in which XProf looks for them."""
    by_folder: dict[str, dict[str, File]] = {}
    for profile in profiles:
        planes = {file.name: file for file in profile.files if file.kind == "xplane"}
        if planes:
            by_folder[f"{folder_name(profile.run)}/plugins/profile/{profile.name}"] = planes
    return by_folder


def _private_folder() -> Path:
    """A path in it must fit into a socket's address."""
    folder = Path(tempfile.mkdtemp(prefix="runwatch-viewer-"))
    if len(str(folder / "socket")) > _LONGEST_SOCKET:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="runwatch-viewer-", dir="/tmp"))
    return folder


def _environment(scratch: Path) -> dict[str, str]:
    """Ours without our secret.  XProf keeps files under a name that everybody knows where temporary
    files go: for that it has a place of its own."""
    ours = ("RUNWATCH_TOKEN", "RUNWATCH_TOKEN_FILE")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | {"TMPDIR": str(scratch)}


def _says_ready(process: subprocess.Popen[bytes], seconds: float) -> bool:
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    output = b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            piece = os.read(process.stdout.fileno(), 4096)
            output += piece
            if b"ready" in output or not piece:
                return bool(piece)
    return False


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:500] if lines else "it said nothing"


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
