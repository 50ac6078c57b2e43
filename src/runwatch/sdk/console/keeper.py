"""`LineKeeper`: bytes of a console in, `Console` records out, within a budget, never waiting.

Lines are told at once while they are few: what a program said last is in the journal when it is
killed.  Faster ones are bundled.  Beyond the budget bytes are held, the newest 128 kB, and what had
to go is counted; when the budget has recovered, and at the end, what is held is told.  Bytes that
are thrown away are not looked at, but for counting their lines: a flood costs next to nothing.

Any thread may feed it, also a signal handler in the midst of another call, and nobody waits: who
finds the keeper at work leaves the bytes in its queue, and it goes on with these.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from runwatch.clock import Clock, system_clock
from runwatch.record.console import Console, Stream
from runwatch.sdk.console.budget import Bucket, Limits
from runwatch.sdk.console.screen import Screen, cleaned
from runwatch.sdk.values.masking import LineMask

BUNDLE_BYTES: Final = 12 << 10
"""A store keeps larger bodies in several pieces."""
BUNDLE_LINES: Final = 500
MOST_WAITING: Final = 10_000
WAIT_SECONDS: Final = 0.25
"""`flush` and `close` wait so long for another thread that is at work."""
ROUNDS: Final = 3
"""Nobody works for other threads for ever: the next call goes on with what they left."""
_LIMITS: Final = Limits()

Tell = Callable[[Console, int], None]
"""Records some lines; the number is the clock's `mono_ns` at the first one."""


class _Chunk(NamedTuple):
    mono_ns: int
    stream: Stream
    data: bytes


class _Bundle:
    """Lines of one stream that are not told yet."""

    def __init__(self, first_ns: int) -> None:
        self.first_ns = first_ns
        self.lines: list[str] = []
        self.after_ms: list[int] = []
        self.bytes = 0


class LineKeeper:
    """`feed` it what was written, call `tick` about every second, and `close` it at the end."""

    def __init__(
        self,
        tell: Tell,
        clock: Clock = system_clock,
        *,
        limits: Limits = _LIMITS,
        mask: Callable[[], Callable[[str], str]] = LineMask,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._limits = limits
        self._mask = mask
        self._queue: deque[_Chunk] = deque()
        self._begin(clock.mono_ns())

    def _begin(self, now: int) -> None:
        limits = self._limits
        self._busy = threading.Lock()
        self._held: deque[_Chunk] = deque()
        self._held_bytes = 0
        self._holding = False
        self._screens: dict[Stream, Screen] = {}
        self._masks: dict[Stream, Callable[[str], str]] = {}
        self._bundles: dict[Stream, _Bundle] = {}
        self._told_ns: dict[Stream, int] = {}
        self._lines = Bucket(limits.lines, limits.lines_per_second, now)
        self._bytes = Bucket(limits.bytes, limits.bytes_per_second, now)
        self._events = Bucket(limits.events, limits.events_per_second, now)
        self._left_out_lines = self._left_out_bytes = 0

    # ── what others call ──────────────────────────────────────────────────────────────────────

    def feed(self, stream: Stream, data: bytes) -> None:
        """What was written, in pieces of any size."""
        if not data:
            return
        if len(self._queue) < MOST_WAITING:
            self._queue.append(_Chunk(self._clock.mono_ns(), stream, data))
        else:  # the thread at work is stuck
            self._left_out_lines += data.count(b"\n")
            self._left_out_bytes += len(data)
        self._work(self._take)

    def tick(self) -> None:
        """Tell what waited: for its bundle, for the budget, or for the end of its line."""
        self._work(self._look)

    def flush(self) -> None:
        """Tell everything now, beyond the budget too: the end may be near."""
        self._work(self._tell_all, WAIT_SECONDS)

    def close(self) -> None:
        """The last lines, and what was left out.  Another call does nothing."""
        self._work(self._tell_all, WAIT_SECONDS)

    def forget(self) -> None:
        """In a forked child: what waits here is the parent's, and a thread may be at work."""
        self._queue.clear()
        self._begin(self._clock.mono_ns())

    # ── one at a time ─────────────────────────────────────────────────────────────────────────

    def _work(self, what: Callable[[int], None], wait_seconds: float = 0.0) -> None:
        for _ in range(ROUNDS):
            busy = self._busy
            if not busy.acquire(timeout=wait_seconds):
                if not wait_seconds:
                    return
                # The end is near, and who is at work was interrupted, or is below us on this stack.
                busy = self._busy = threading.Lock()
                busy.acquire()
            try:
                what(self._clock.mono_ns())
            finally:
                busy.release()
            if not self._queue:  # what came just before the release is not left behind
                return
            what, wait_seconds = self._take, 0.0

    def _take(self, now: int) -> None:
        queue = self._queue
        for _ in range(len(queue)):  # and not what comes meanwhile
            with suppress(IndexError):
                self._accept(queue.popleft())
        self._tell_if_few(now)

    def _look(self, now: int) -> None:
        self._take(now)
        self._resume(now)
        if not self._holding:
            for stream, screen in self._screens.items():
                self._add_lines(stream, screen.due(now), now)
        self._tell_bundles()

    def _tell_all(self, now: int) -> None:
        self._take(now)
        while self._held:
            chunk = self._release()
            self._read(chunk, chunk.data)
        self._holding = False
        for stream, screen in self._screens.items():
            self._add_lines(stream, screen.end(), now)
        self._tell_bundles()
        if self._left_out_lines or self._left_out_bytes:
            self._say(Console(), now)

    # ── the budget ────────────────────────────────────────────────────────────────────────────

    def _accept(self, chunk: _Chunk) -> None:
        if not self._holding:
            rest = self._afford(chunk)
            if not rest:
                return
            self._holding = True
            chunk = chunk._replace(data=rest)
        self._hold(chunk)

    def _afford(self, chunk: _Chunk) -> bytes:
        """Reads as many lines as there is budget for; returns the rest."""
        lines = int(self._lines.fill(chunk.mono_ns))
        if lines < 1 or self._bytes.fill(chunk.mono_ns) < 1:
            return chunk.data
        data = chunk.data
        if len(data) <= lines:  # each is a byte at least
            self._read(chunk, data)
            return b""
        *within, rest = data.split(b"\n", lines)
        if len(within) < lines:
            self._read(chunk, data)
            return b""
        self._read(chunk, data[: len(data) - len(rest)])
        return rest

    def _hold(self, chunk: _Chunk) -> None:
        most = self._limits.held_bytes
        if len(chunk.data) > most:
            self._leave_out(chunk.stream, chunk.data[:-most])
            chunk = chunk._replace(data=chunk.data[-most:])
        self._held.append(chunk)
        self._held_bytes += len(chunk.data)
        while self._held_bytes > most:
            oldest = self._release()
            self._leave_out(oldest.stream, oldest.data)

    def _release(self) -> _Chunk:
        chunk = self._held.popleft()
        self._held_bytes -= len(chunk.data)
        return chunk

    def _leave_out(self, stream: Stream, data: bytes) -> None:
        self._left_out_lines += data.count(b"\n")
        self._left_out_bytes += len(data)
        screen = self._screens.get(stream)
        if screen is not None:
            screen.forget()

    def _resume(self, now: int) -> None:
        """Go on with what is held, if the budget allows a readable stretch."""
        if not self._holding:
            return
        limits = self._limits
        if (
            self._lines.fill(now) < limits.resume_lines
            or self._bytes.fill(now) < limits.resume_bytes
        ):
            return
        while self._held:
            chunk = self._release()
            rest = self._afford(chunk)
            if rest:
                self._held.appendleft(chunk._replace(data=rest))
                self._held_bytes += len(rest)
                return
        self._holding = False

    # ── lines ─────────────────────────────────────────────────────────────────────────────────

    def _read(self, chunk: _Chunk, data: bytes) -> None:
        screen = self._screens.get(chunk.stream)
        if screen is None:
            screen = self._screens[chunk.stream] = Screen(self._limits.line_bytes)
            self._masks[chunk.stream] = self._mask()
        self._add_lines(chunk.stream, screen.write(data, chunk.mono_ns), chunk.mono_ns)

    def _add_lines(self, stream: Stream, lines: list[bytes], at_ns: int) -> None:
        if not lines:
            return
        mask, screen = self._masks[stream], self._screens[stream]
        self._left_out_bytes += screen.cut_bytes
        screen.cut_bytes = 0
        for raw in lines:
            line = mask(cleaned(raw))
            bundle = self._bundles.get(stream)
            if bundle is None:
                bundle = self._bundles[stream] = _Bundle(at_ns)
            bundle.lines.append(line)
            bundle.after_ms.append(max(at_ns - bundle.first_ns, 0) // 1_000_000)
            bundle.bytes += len(line)
            self._bytes.take(len(line) + 1)
            if bundle.bytes >= BUNDLE_BYTES or len(bundle.lines) >= BUNDLE_LINES:
                self._tell_bundle(stream)
        self._lines.take(len(lines))

    # ── telling ───────────────────────────────────────────────────────────────────────────────

    def _tell_if_few(self, now: int) -> None:
        if self._bundles and self._events.fill(now) >= 1:
            self._tell_bundles()

    def _tell_bundles(self) -> None:
        for stream in sorted(self._bundles, key=lambda each: self._bundles[each].first_ns):
            self._tell_bundle(stream)

    def _tell_bundle(self, stream: Stream) -> None:
        bundle = self._bundles.pop(stream)
        lines, after = tuple(bundle.lines), tuple(bundle.after_ms)
        self._say(Console(stream, lines, after), bundle.first_ns)

    def _say(self, console: Console, at_ns: int) -> None:
        if self._left_out_lines or self._left_out_bytes:
            left = self._left_out_lines, self._left_out_bytes
            console = Console(console.stream, console.lines, console.after_ms, *left)
            self._left_out_lines = self._left_out_bytes = 0
        self._events.take(1)
        # Of one stream no two records have one time: by time and place a line is known.
        at_ns = max(at_ns, self._told_ns.get(console.stream, 0) + 1)
        self._told_ns[console.stream] = at_ns
        self._tell(console, at_ns)
