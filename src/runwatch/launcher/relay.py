"""Passes on what the command writes: untouched, at once, and with the command held back as before.

Each target has one thread.  It reads, writes, and only then hands the bytes to those who record
them.  If the reader of our stdout goes away, our ends are closed: the command's next write fails,
as it does without us.  A disk that is full under the file that we write to is no reason to stop the
command: what does not fit is dropped.

Ranks have outlets of their own, and the kernel does not record in which order two outlets were
written to.  Three rules keep the order:

- A rank gets its outlet after everything written until then has been passed on (`Relay.request`).
  So its output comes after what the command wrote before it started the rank.
- The command's outlet is read first, but its bytes are passed on after those of the ranks' outlets,
  which are read next.  What a rank wrote before these bytes is there by then, however it ended.
- Ranks that run at the same time come in the order in which their outlets became readable, each
  until its outlet is empty, with whole lines.  If two ranks have written several times since the
  last read, the order between them is lost.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Container, Iterator
from typing import Final

from runwatch.launcher.keys import Keys
from runwatch.launcher.outlets import PIPE_BYTES, Outlet

READ_BYTES: Final = 256 << 10
_GONE: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL
_NEXT_WRITE: Final = select.EPOLLIN | select.EPOLLONESHOT
_LOOK_MS: Final = 100
"""How often a terminal's settings are compared while the command has changed them."""
_CHUNK_BYTES: Final = 2048
"""The kernel divides longer writes to a terminal, and to a pipe that is full."""
_CHUNK_MS: Final = 100
"""How long the rest of a divided line is waited for before other outlets are read."""
_PAUSE_SECONDS: Final = 2.0
"""After waiting in vain, lines are not waited for: some progress bars never end one."""
_MAX_LINE_BYTES: Final = 16 * PIPE_BYTES
"""Longer lines may be divided."""

Record = Callable[[bytes], None]


class Relay(threading.Thread):
    """Relays an outlet of the command, and those of the ranks with the same target, until all their
    writers have closed them."""

    def __init__(self, main: Outlet, record: Record, over: Callable[[Relay], None]) -> None:
        super().__init__(name="runwatch-relay", daemon=True)
        self.main = main
        self._over = over
        self._lock = threading.Lock()
        self._requests: list[_Request] = []
        self._is_over = False
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._main_source = _Source(main, record)
        self._ranks: dict[int, _Source] = {}
        """By the descriptor that is read."""
        self._readable = select.epoll()
        """The ranks' outlets, in the order in which they became readable."""
        self._all_ranks = select.poll()
        """Bytes written to a terminal reach its other end, and an epoll, a little later; a poll
        waits for them."""
        self._waiting = select.poll()
        self._waiting.register(self._wakeup, select.POLLIN)
        self._waiting.register(self._readable, select.POLLIN)
        self._waiting.register(main.source, select.POLLIN)
        self._waiting.register(main.target, 0)
        self._pause_end = 0.0

    # ── what other threads call ───────────────────────────────────────────────────────────────

    def request(self, newcomer: tuple[Outlet, Record] | None = None) -> threading.Event:
        """Returns an event that is set when everything written before the call has been passed on.
        The newcomer, a rank's outlet, is relayed from then on."""
        request = _Request(newcomer)
        with self._lock:
            if self._is_over:
                request.refuse()
            else:
                self._requests.append(request)
                os.eventfd_write(self._wakeup, 1)
        return request.done

    @property
    def is_behind(self) -> bool:
        """Whether a request is pending: the reader of the target may have stopped reading."""
        return bool(self._requests)

    @property
    def outlets(self) -> list[Outlet]:
        return [source.outlet for source in self._sources() if source.is_open]

    # ── the thread ────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        try:
            while self._serve():
                pass
        finally:
            with self._lock:
                self._is_over = True
                os.close(self._wakeup)
            try:
                for source in self._sources():
                    self._close(source)
                self._readable.close()
            finally:
                for request in self._requests:
                    request.refuse()
                self._over(self)

    def _serve(self) -> bool:
        """Passes on what is there, and then admits newcomers; False if this was the last time."""
        requests = list(self._requests)
        if not self._pass_on(bool(requests)):
            return False
        for request in requests:
            if request.newcomer is not None:
                self._admit(_Source(*request.newcomer))
        with self._lock:
            del self._requests[: len(requests)]
        for request in requests:
            request.done.set()
        return self._main_source.is_open or bool(self._ranks)

    def _admit(self, rank: _Source) -> None:
        self._readable.register(rank.number, _NEXT_WRITE)
        self._all_ranks.register(rank.number, select.POLLIN)
        self._ranks[rank.number] = rank

    def _pass_on(self, is_requested: bool) -> bool:
        """Waits for output unless it is requested; False if the target has no reader any more."""
        ready = self._wait(is_requested)
        if ready.get(self.main.target, 0) & _GONE:
            return False
        main, held = self._main_source, list[bytes]()
        main.follow_terminal(ready, self._waiting)
        if main.is_open and (main.number in ready or main.rest):
            held = list(self._read(main, is_requested))
        for rank in self._ready_ranks(ready, is_complete=bool(held) or is_requested):
            for data in self._read(rank, is_requested):
                if not self._write(data):
                    return False
                rank.record(data)
            if rank.is_open:
                self._readable.modify(rank.number, _NEXT_WRITE)
        for data in held:
            if not self._write(data):
                return False
            main.record(data)
        return True

    def _wait(self, is_requested: bool) -> dict[int, int]:
        limit = None
        if is_requested or any(source.rest for source in self._sources()):
            limit = 0
        elif any(source.is_changed for source in self._sources()):
            limit = _LOOK_MS
        ready = dict(self._waiting.poll(limit))
        if self._wakeup in ready:
            os.eventfd_read(self._wakeup)
        return ready

    def _ready_ranks(self, ready: dict[int, int], *, is_complete: bool) -> list[_Source]:
        numbers = dict(self._readable.poll(0))
        if is_complete:
            numbers |= dict(self._all_ranks.poll(0))
        numbers |= {rank.number: 0 for rank in self._ranks.values() if rank.rest}
        ready = ready | numbers
        for rank in self._ranks.values():
            rank.follow_terminal(ready, self._waiting)
        return [self._ranks[number] for number in numbers]

    def _read(self, source: _Source, is_requested: bool) -> Iterator[bytes]:
        """Yields what is there.  An outlet that does not get empty has its turn until the line ends
        in which it has yielded a full pipe."""
        size = 0
        while data := source.read():
            size += len(data)
            if not self._ranks and not is_requested:  # no other order is possible
                yield data
                return
            if PIPE_BYTES <= size < _MAX_LINE_BYTES and (end := data.rfind(b"\n") + 1):
                source.rest = data[end:]
                yield data[:end]
                return
            yield data
            is_divided = size >= _CHUNK_BYTES and not data.endswith(b"\n")
            if size >= _MAX_LINE_BYTES or not (
                source.has_more() or (is_divided and self._line_goes_on(source))
            ):
                return
        self._close(source)

    def _line_goes_on(self, source: _Source) -> bool:
        """Waits for the rest of a line."""
        if not self._ranks or time.monotonic() < self._pause_end:
            return False
        goes_on = source.has_more(_CHUNK_MS)
        if not goes_on:
            self._pause_end = time.monotonic() + _PAUSE_SECONDS
        return goes_on

    def _close(self, source: _Source) -> None:
        if not source.is_open:
            return
        if source is self._main_source:
            self._waiting.unregister(source.number)
        else:
            self._readable.unregister(source.number)
            self._all_ranks.unregister(source.number)
            del self._ranks[source.number]
        source.close(self._waiting)

    def _sources(self) -> list[_Source]:
        return [self._main_source, *self._ranks.values()]

    def _write(self, data: bytes) -> bool:
        """False if nobody will ever read what is written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.main.target, rest) :]
            except BlockingIOError:  # somebody who has the same open file wants it so
                select.select([], [self.main.target], [])
            except BrokenPipeError:
                return False
            except OSError:
                # A terminal that is gone has no reader; a full disk may have room again.
                return not self.main.is_terminal
        return True


class _Request:
    def __init__(self, newcomer: tuple[Outlet, Record] | None) -> None:
        self.newcomer = newcomer
        self.done = threading.Event()

    def refuse(self) -> None:
        """The relay has ended: writes to the newcomer fail."""
        if self.newcomer is not None:
            self.newcomer[0].close()
        self.done.set()


class _Source:
    """An outlet that a relay reads."""

    def __init__(self, outlet: Outlet, record: Record) -> None:
        self.outlet = outlet
        self.record = record
        self.number = outlet.source
        self.rest = b""
        """The begin of the line in which its turn ended."""
        self._poll = select.poll()
        self._poll.register(self.number, select.POLLIN)
        self._mirror = outlet.mirror
        self._keys = Keys(self.number)

    @property
    def is_open(self) -> bool:
        return self.outlet.source >= 0

    @property
    def is_changed(self) -> bool:
        """Whether the command has changed the settings of its terminal."""
        return self._mirror is not None and self.is_open and self._mirror.is_changed

    def follow_terminal(self, ready: Container[int], waiting: select.poll) -> None:
        if self._mirror is None or not self.is_open:
            return
        if self._mirror.is_changed or self.number in ready or self._keys.number in ready:
            self._mirror.look()
            self._keys.look(self._mirror.is_raw, waiting)
            if self._keys.number in ready:
                self._keys.pass_on()

    def read(self) -> bytes:
        """Returns b"" when all writers have closed the outlet."""
        rest, self.rest = self.rest, b""
        if rest and not self.has_more():
            return rest
        try:
            data = os.read(self.number, READ_BYTES)
        except OSError:  # a terminal without a writer
            return rest
        if self._mirror is not None:
            self._mirror.look()  # what was written last has the newest settings
        return rest + data

    def has_more(self, wait_ms: int = 0) -> bool:
        return bool(self._poll.poll(wait_ms))

    def close(self, waiting: select.poll) -> None:
        if self._mirror is not None:
            self._mirror.look()
            self._keys.look(False, waiting)
        self.outlet.close()
