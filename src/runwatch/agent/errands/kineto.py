"""The daemon that PyTorch programs ask whether to profile themselves, if told to at their start.

A program started with KINETO_USE_DAEMON=1 asks by itself every five seconds, whether or not it
has a GPU, over a datagram socket: 8 bytes with the size of what follows, 32 with its kind, then
either `req` (kind of configuration, how many process ids, job, the ids: its own and those of its
ancestors) or `ctxt` (GPU, process id, job: it has opened a GPU).  The answer to `req` is a text of
settings, usually empty; to `ctxt`, how many programs have opened that GPU.

Its name is abstract, `dynolog`, and so belongs to a network namespace; with KINETO_IPC_SOCKET_DIR
it is a file in that folder.  Whoever has the name already is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock

NAME: Final = "dynolog"
FOLDER_VARIABLE: Final = "KINETO_IPC_SOCKET_DIR"
ASKS_EVERY_SECONDS: Final = 5.0
FORGOTTEN_SECONDS: Final = 25.0
"""Who finds no daemon asks again after ten seconds only."""
RETRY_SECONDS: Final = 5.0
TICK_NS: Final = 1_000_000_000
"""A program that has a request looks once a second whether it is time to warm up, which takes one
second more.  If that look comes late, even by a millisecond, it drops the request without a word:
so it is told to begin, up to a second early, when its look comes half a second before it must."""
SETTLE_NS: Final = 3_600_000_000
"""From a request to the earliest start that it can have."""
ACTIVITIES: Final = 2
_HEAD: Final = struct.Struct("=Q32s")
_QUESTION: Final = struct.Struct("=iiq")
_CREDENTIALS: Final = struct.Struct("3i")
_TIME: Final = struct.Struct("qq")
_SO_TIMESTAMPNS: Final = 35  # Python's socket module does not name it
STALE_NS: Final = 40_000_000
"""A program waits for 50 ms, newer ones for 100.  An answer that comes later it would take for
that to its next question, and so on for ever: better none."""
_ANCILLARY: Final = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_TIME.size)
_MOST: Final = 1 << 16
_MOST_PIDS: Final = 256
logger = logging.getLogger("runwatch.agent")


@dataclass(frozen=True, slots=True)
class Client:
    """A program that asks."""

    pid: int
    """As this process sees it, by the kernel's word."""
    own_pid: int
    """As it sees itself; the name of its trace carries it."""
    user: int
    seen_ns: int
    """On the monotonic clock."""
    free: bool
    """It would take a request: it is not profiled now."""


@dataclass(slots=True)
class KinetoRequest:
    """What one program is to record.  It gets it when it asks the next time."""

    log_file: str
    start_ns: int = 0
    """Moved back, if the program asked too late for it."""
    duration_ms: int = 0
    steps: int | None = None
    at_step: int | None = None
    own_pid: int = 0
    taken: threading.Event = field(default_factory=threading.Event)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ms * 1_000_000

    def text(self, now_ns: int, tick_ns: int | None = None) -> str:
        """`tick_ns`: a moment at which the program looked; without it, now is the first."""
        self.start_ns = max(self.start_ns, now_ns + SETTLE_NS)
        if self.steps is None:
            phase_ns = (now_ns if tick_ns is None else tick_ns) + TICK_NS // 2
            early_ms = (self.start_ns - phase_ns) % TICK_NS // 1_000_000
            self.start_ns -= early_ms * 1_000_000
            self.duration_ms += early_ms
        lines = [f"ACTIVITIES_LOG_FILE={self.log_file}", "ACTIVITIES_WARMUP_PERIOD_SECS=1"]
        if self.steps is not None:
            first = "PROFILE_START_ITERATION_ROUNDUP=1"
            if self.at_step is not None:
                first = f"PROFILE_START_ITERATION={self.at_step}"
            lines += [first, "ACTIVITIES_WARMUP_ITERATIONS=1"]
            lines += [f"ACTIVITIES_ITERATIONS={self.steps}"]
        else:
            lines += [f"PROFILE_START_TIME={round(self.start_ns / 1e6)}"]
            lines += [f"ACTIVITIES_DURATION_MSECS={self.duration_ms}"]
        return "\n".join(lines) + "\n"

    @property
    def written_file(self) -> str:
        """Where libkineto puts it: it adds the process's number."""
        stem, dot, ending = self.log_file.rpartition(".")
        return f"{stem}_{self.own_pid}{dot}{ending}"


class KinetoDaemon:
    """Listens from `start` to `stop`, in a thread of its own.  Any thread may ask and offer."""

    def __init__(self, *, folder: Path | None = None, clock: Clock = system_clock) -> None:
        named = os.environ.get(FOLDER_VARIABLE, "")
        self._folder = folder or (Path(named) if named else None)
        self.problem = "it has not begun to listen"
        """Why nobody can be reached; empty while it listens."""
        self._clock = clock
        self._lock = threading.Lock()
        self._clients: dict[int, Client] = {}
        self._requests: dict[int, KinetoRequest] = {}
        self._ticks: dict[int, int] = {}
        self._gpus: dict[int, set[int]] = {}
        self._stop = threading.Event()
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Binds at once, so that nobody who asks meanwhile finds it missing."""
        self._socket = self._bind()
        self._thread = threading.Thread(target=self._run, name="runwatch-kineto", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        listening = self._socket
        if listening is not None:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes the thread
        if self._thread is not None:
            self._thread.join(2.0)

    # ── programs and requests ─────────────────────────────────────────────────────────────────

    def clients(self) -> tuple[Client, ...]:
        """Those heard of lately."""
        oldest = self._clock.mono_ns() - int(FORGOTTEN_SECONDS * 1e9)
        with self._lock:
            self._clients = {p: c for p, c in self._clients.items() if c.seen_ns > oldest}
            self._ticks = {pid: tick for pid, tick in self._ticks.items() if pid in self._clients}
            return tuple(self._clients.values())

    def client(self, pids: Iterable[int]) -> Client | None:
        known = {client.pid: client for client in self.clients()}
        return next((known[pid] for pid in pids if pid in known), None)

    def ready_seconds(self, client: Client) -> float:
        """Until a request that is offered now can begin."""
        since = (self._clock.mono_ns() - client.seen_ns) / 1e9
        return max(0.0, ASKS_EVERY_SECONDS - since) + SETTLE_NS / 1e9

    def offer(self, pid: int, request: KinetoRequest) -> bool:
        """False if another waits to be taken."""
        with self._lock:
            return self._requests.setdefault(pid, request) is request

    def withdraw(self, pid: int, request: KinetoRequest) -> None:
        with self._lock:
            if self._requests.get(pid) is request:
                del self._requests[pid]

    def has_ended(self, pid: int) -> None:
        """Its trace is written: it would take another request, though it has not said so yet."""
        with self._lock:
            if (client := self._clients.get(pid)) is not None:
                self._clients[pid] = replace(client, free=True)

    # ── listening ─────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> str:
        # libkineto counts the zero at the end of the name as part of it.
        return f"\0{NAME}\0" if self._folder is None else str(self._folder / NAME)

    def _bind(self) -> socket.socket | None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            listening.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._clear_away()
            listening.bind(self.address)
        except OSError as error:
            listening.close()
            taken = error.errno == errno.EADDRINUSE
            why = "another daemon (dynolog, or another agent) has it" if taken else str(error)
            self.problem = f"the socket that PyTorch's profiler asks on is not ours: {why}"
            return None
        self.problem = ""
        return listening

    def _clear_away(self) -> None:
        """A file that nobody serves any more."""
        if self._folder is None or not (self._folder / NAME).is_socket():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(self.address)
            except ConnectionRefusedError:
                (self._folder / NAME).unlink(missing_ok=True)

    def _run(self) -> None:
        # Programs do not wait for long, and a node's processors are often all busy with them.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -10)
        while not self._stop.is_set():
            if self._socket is None:
                if self._stop.wait(RETRY_SECONDS):
                    return
                self._socket = self._bind()
            else:
                self._serve(self._socket)
                self._let_go()
        self._let_go()  # stopped before it was served

    def _let_go(self) -> None:
        listening, self._socket = self._socket, None
        if listening is None:
            return
        if self._folder is not None:  # while it is surely ours
            (self._folder / NAME).unlink(missing_ok=True)
        listening.close()

    def _serve(self, listening: socket.socket) -> None:
        while not self._stop.is_set():
            try:
                data, ancillary, _, sender = listening.recvmsg(_MOST, _ANCILLARY)
            except OSError as error:
                self.problem = f"the socket that PyTorch's profiler asks on failed: {error}"
                return
            known = {kind: data for level, kind, data in ancillary if level == socket.SOL_SOCKET}
            answer = self._answer(data, known)
            if answer is not None and sender:
                try:
                    listening.sendto(answer, socket.MSG_DONTWAIT, sender)
                except OSError as error:
                    logger.info("a program that asked for a profile is gone: %s", error)

    def _answer(self, data: bytes, ancillary: Mapping[int, bytes]) -> bytes | None:
        credentials = ancillary.get(socket.SCM_CREDENTIALS)
        if len(data) < _HEAD.size + _QUESTION.size or credentials is None:
            return None
        _, raw_kind = _HEAD.unpack_from(data)
        kind, body = raw_kind.split(b"\0", 1)[0], data[_HEAD.size :]
        pid, user, _ = _CREDENTIALS.unpack_from(credentials)
        if kind == b"req":
            self._heard(pid, user, body)
            return None if self._is_stale(ancillary) else _message(kind, self._wanted(pid).encode())
        if kind == b"ctxt":
            return _message(kind, struct.pack("=i", self._opened(pid, body)))
        return None

    def _is_stale(self, ancillary: Mapping[int, bytes]) -> bool:
        sent = ancillary.get(_SO_TIMESTAMPNS)
        if sent is None:
            return False
        seconds, ns = _TIME.unpack_from(sent)
        sent_ns: int = seconds * 10**9 + ns
        return time.time_ns() - sent_ns > STALE_NS

    def _heard(self, pid: int, user: int, body: bytes) -> None:
        kinds, count, _ = _QUESTION.unpack_from(body)
        count = min(count, _MOST_PIDS, (len(body) - _QUESTION.size) // 4)
        pids = struct.unpack_from(f"={max(count, 0)}i", body, _QUESTION.size)
        own, free = pids[0] if pids else pid, bool(kinds & ACTIVITIES)
        with self._lock:
            self._clients[pid] = Client(pid, own, user, self._clock.mono_ns(), free)

    def _wanted(self, pid: int) -> str:
        with self._lock:
            client = self._clients[pid]
            request = self._requests.pop(pid, None) if client.free else None
        if request is None:
            return ""
        request.own_pid = client.own_pid
        now_ns = self._clock.wall_ns()
        text = request.text(now_ns, self._ticks.get(pid))
        # It looks a second after its first request, and a second after the end of each.
        if request.steps is None:
            self._ticks[pid] = request.end_ns
        else:
            self._ticks.setdefault(pid, now_ns)
        request.taken.set()
        return text

    def _opened(self, pid: int, body: bytes) -> int:
        gpu, _, _ = _QUESTION.unpack_from(body)
        with self._lock:
            opened = self._gpus.setdefault(gpu, set())
            opened.add(pid)
            return len(opened)


def _message(kind: bytes, body: bytes) -> bytes:
    return _HEAD.pack(len(body), kind) + body
