"""Writes stacks of all threads periodically, and when the process dies of a fault.

Two threads do the periodic part.  A Python thread of ours writes a dump every interval.  It holds
the interpreter lock while it looks, so no frame changes meanwhile.  Behind it is faulthandler's C
thread, armed again after each dump and due a little later.  It fires only if ours could not run,
that is, while native code holds the interpreter lock; then it repeats by itself.  (The C thread
alone could do both, but it looks without the lock: in a program that runs on, frames are freed
while it reads them, and that can kill the process.)

The output is bounded: a file is copied and emptied at 16 MB, and three older copies are kept.  A
process whose Python is stuck cannot do that; it writes one dump per interval (at most 100 threads
of 100 frames, about 2 KB per thread) until it is free or killed.

In nested blocks the innermost one decides; afterwards the outer one does again.  faulthandler has
one such C thread: if the program armed it before us, its timer is lost; if it arms it inside the
block, we leave it alone.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runwatch.capture.dump_file import PERIODIC, About, DumpFile, Target, append, heading
from runwatch.capture.faulthandling import Handle, SignalDesk, faults
from runwatch.clock import Clock, system_clock

MIN_SECONDS: Final = 0.1
MAX_SECONDS: Final = 30 * 86_400.0
JOIN_SECONDS: Final = 0.05
WEIGHT: Final = 1  # a `diagnose` block goes before the run's own watch for faults
THREAD: Final = "runwatch-dumps"
UNLESS: Final = '# what follows is a snapshot, unless it begins with "Fatal Python error"\n'
"""Before the line that waits for a first dump by a signal: a fault would come after it, too."""


def grace_seconds(interval: float) -> float:
    """How late our thread may be on a busy machine before the C thread fires."""
    return min(max(interval / 10, 1.0), 10.0)


def _unheard(what: str, message: str) -> None:
    pass


class Watch:
    """The request of one `diagnose` block."""

    def __init__(
        self,
        target: Target,
        interval_seconds: float,
        about: Callable[[], About],
        *,
        line: str = "",
        problem: Callable[[str, str], None] = _unheard,
        clock: Clock = system_clock,
    ) -> None:
        """`line`: said before each periodic dump, if not our own words.
        `problem(what, message)` is called for what could not be done; `about` must not fail."""
        self.target = target
        self.interval = min(max(interval_seconds, MIN_SECONDS), MAX_SECONDS)
        self.clock = clock
        self.problem = problem
        self.pid = os.getpid()
        self.line = line or (
            "INFO: Not a crash. Runwatch writes the stacks of all threads"
            f" every {self.interval:g} seconds.\n"
        )
        self._about = about
        self.due_ns = self.next_ns()

    def next_ns(self) -> int:
        return self.clock.mono_ns() + int(self.interval * 1e9)

    def start(self) -> None:
        self.tell(self._about().journal)
        try:
            self.target.foretell(UNLESS + self.line)
        except OSError as error:
            self.problem("write stacks", f"cannot write to the place for stacks: {error}")
        _dog.start(self)

    def stop(self) -> None:
        """Takes only a moment, whatever our thread is doing."""
        _dog.stop(self)

    def write(self, dump: str) -> None:
        """May wait for a disk or a terminal; our thread calls it without any lock."""
        about = self._about()
        text = heading("dump", about.pairs(), self.clock.wall_ns()) + self.line + dump
        self.tell(about.journal)
        self.target.write(text)
        if about.journal is not None and not isinstance(self.target, DumpFile):
            # What went to standard error cannot be read from there again.
            append(about.journal / PERIODIC, text)

    def announce(self) -> None:
        """Say the line: a dump is about to be asked for by a signal."""
        self.target.write(self.line)

    def tell(self, journal: Path | None) -> None:
        try:
            if journal is not None:
                self.target.tell(journal)
        except OSError as error:
            self.problem("report a dump file", f"{journal}: {error}")


class Watchdog:
    """The only one in the process.  While its lock is held, nothing is logged and no file written:
    another thread may be forking while it holds the log's locks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watches: list[Watch] = []
        self._ruling: Watch | None = None
        self._thread: threading.Thread | None = None
        self._armed: weakref.ref[Handle] | None = None
        self._hooked = self._disarmed_for_fork = False
        self.user_signal = SignalDesk(signal.SIGUSR1, all_threads=False)

    def start(self, watch: Watch) -> None:
        faults.add(watch.target.fd, weight=WEIGHT)
        self.user_signal.add(watch.target.fd, weight=WEIGHT)
        with self._changed:
            if not self._hooked:
                self._hooked = True
                os.register_at_fork(
                    before=self._before_fork,
                    after_in_parent=self._after_fork_in_parent,
                    after_in_child=self._after_fork_in_child,
                )
            self._watches.append(watch)
            trouble = self._rule()
        if trouble:
            watch.problem("periodic stacks", trouble)

    def stop(self, watch: Watch) -> None:
        with self._changed:
            if watch not in self._watches:
                return
            self._watches.remove(watch)
            self._rule()
            thread = None if self._ruling is not None else self._thread
        self.user_signal.remove(watch.target.fd)
        faults.remove(watch.target.fd)
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)  # briefly: it may be writing to a slow place
        self._leave(watch)

    def file_in(self, directory: Path, create: Callable[[], DumpFile]) -> DumpFile:
        """This process's file in the directory: all blocks share it."""
        with self._changed:
            for watch in self._watches:
                target = watch.target
                if (
                    isinstance(target, DumpFile)
                    and target.path.parent == directory
                    and watch.pid == os.getpid()
                ):
                    target.users += 1
                    return target
        file = create()
        file.users = 1
        return file

    def _leave(self, watch: Watch) -> None:
        with self._changed:
            watch.target.users -= 1
            last = watch.target.users == 0
        if last:
            try:
                watch.target.close()
            except OSError as error:
                watch.problem("close a dump file", str(error))

    def tell(self, journal: Path) -> None:
        """A run began: note in its journal's folder where the dumps are."""
        with self._changed:
            own = [watch for watch in self._watches if watch.pid == os.getpid()]
        for watch in own:
            watch.tell(journal)

    # ── with the lock held ────────────────────────────────────────────────────────────────────

    def _rule(self) -> str:
        """Let the innermost watch decide.  Returns what went wrong, if anything."""
        own = os.getpid()
        ruling = next((w for w in reversed(self._watches) if w.pid == own), None)
        if ruling is self._ruling:
            return ""
        self._ruling = ruling
        self._changed.notify_all()
        if ruling is None:
            self._disarm()
            return ""
        if ruling.due_ns <= ruling.clock.mono_ns():
            ruling.due_ns = ruling.next_ns()
        try:
            self._arm(ruling)
            self._ensure_thread()
        except RuntimeError as error:
            return f"stacks are not written every {ruling.interval:g} s: {error}"
        return ""

    def _ensure_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
            thread.start()
            self._thread = thread

    def _arm(self, watch: Watch) -> None:
        if self._armed is not None and self._armed() is None:
            return  # the program has armed the timer itself since
        handle = Handle(watch.target.fd)
        seconds = watch.interval + grace_seconds(watch.interval)
        faulthandler.dump_traceback_later(seconds, repeat=True, file=handle)
        self._armed = weakref.ref(handle)

    def _disarm(self) -> None:
        if self._armed is not None and self._armed() is not None:
            faulthandler.cancel_dump_traceback_later()
        self._armed = None

    # ── our thread ────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                watch = self._wait_until_due(me)
                if watch is None:
                    return
                watch.target.users += 1
                dump, trouble = self._look(watch)
            try:
                if dump:
                    watch.write(dump)
            except OSError as error:
                trouble = str(error)
            if trouble:
                watch.problem("write stacks", f"cannot write the stacks of all threads: {trouble}")
            self._leave(watch)

    def _look(self, watch: Watch) -> tuple[str, str]:
        """The dump, and what went wrong."""
        dump = trouble = ""
        try:
            dump = look()
            self._arm(watch)
        except (OSError, RuntimeError) as error:
            trouble = str(error)
        return dump, trouble

    def _wait_until_due(self, me: threading.Thread) -> Watch | None:
        while self._thread is me and (watch := self._ruling) is not None:
            now = watch.clock.mono_ns()
            if now >= watch.due_ns:
                watch.due_ns = watch.next_ns()
                return watch
            watch.clock.wait((watch.due_ns - now) / 1e9, self._changed.wait)
        if self._thread is me:
            self._thread = None
        return None

    # ── fork ──────────────────────────────────────────────────────────────────────────────────

    def _before_fork(self) -> None:
        # A child that inherits an armed C thread has its locks but not the thread: at its end it
        # would wait for it for ever.
        self._changed.acquire()
        self._disarmed_for_fork = self._armed is not None and self._armed() is not None
        if self._disarmed_for_fork:
            self._disarm()

    def _after_fork_in_parent(self) -> None:
        try:
            if self._disarmed_for_fork and self._ruling is not None:
                self._arm(self._ruling)
        except RuntimeError:
            pass  # no more threads available; our Python thread goes on
        finally:
            self._changed.release()

    def _after_fork_in_child(self) -> None:
        self._changed = threading.Condition()
        self._thread = self._ruling = self._armed = None


def look() -> str:
    """All threads except the caller's, as faulthandler writes them.

    Into memory first: a pipe that nobody reads must not block a process whose interpreter lock we
    hold.
    """
    fd = _memory()
    try:
        faulthandler.dump_traceback(fd, all_threads=True)
        text = os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")
    finally:
        os.close(fd)
    return _without_current(text)


def _memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("runwatch-dump", os.MFD_CLOEXEC)
    import tempfile

    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd


def _without_current(text: str) -> str:
    threads = text.split("\n\n")
    return "\n\n".join(t for t in threads if not t.startswith("Current thread")).rstrip("\n") + "\n"


_dog: Final = Watchdog()
tell: Final = _dog.tell
file_in: Final = _dog.file_in
