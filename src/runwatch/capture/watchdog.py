"""Stacks of all threads, now and again and when the process dies of a fault.

Two look after each other.  A thread of ours writes a dump every interval: it holds the
interpreter's lock while it looks, so no frame changes under its eyes.  Behind it stands
faulthandler's C thread, armed anew after each dump and due a little later: it fires only if ours
could not run, that is, while something holds that lock in native code, and then it repeats by
itself.  (The C thread alone would do both, but it looks without the lock: in a program that runs
on, frames are freed while it reads them, and that can kill the process it watches.)

What bounds the output: a file is copied aside at 16 MB and three older ones are kept.  A process
whose Python is stuck cannot do that; it writes one dump (at most 100 threads of 100 frames, about
2 KB per thread) per interval until it is free or killed.

Blocks within blocks: the innermost rules, and what was before comes back.  faulthandler has one
such C thread: one that the program armed before is lost, one that it arms inside the block is
left to it.
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
WEIGHT: Final = 1  # a block that asks for stacks goes before the run's own watch for faults
THREAD: Final = "runwatch-dumps"


def grace_seconds(interval: float) -> float:
    """How late our thread may be on a busy machine before the C thread steps in."""
    return min(max(interval / 10, 1.0), 10.0)


def _unheard(what: str, message: str) -> None:
    pass


class Watch:
    """One block's wish."""

    def __init__(
        self,
        target: Target,
        interval_seconds: float,
        about: Callable[[], About],
        *,
        problem: Callable[[str, str], None] = _unheard,
        clock: Clock = system_clock,
    ) -> None:
        """`problem(what, message)` hears what could not be done; `about` does not fail."""
        self.target = target
        self.interval = min(max(interval_seconds, MIN_SECONDS), MAX_SECONDS)
        self.clock = clock
        self.problem = problem
        self.pid = os.getpid()
        self._about = about
        self.due_ns = self.next_ns()

    @property
    def line(self) -> str:
        return (
            "INFO: Not a crash. Runwatch writes the stacks of all threads"
            f" every {self.interval:g} seconds.\n"
        )

    def next_ns(self) -> int:
        return self.clock.mono_ns() + int(self.interval * 1e9)

    def start(self) -> None:
        self.tell(self._about().journal)
        try:
            self.target.foretell(self.line)
        except OSError as error:
            self.problem("write stacks", f"cannot write where stacks shall go: {error}")
        _dog.start(self)

    def stop(self) -> None:
        """Takes a moment, whatever our thread is at."""
        _dog.stop(self)

    def write(self, dump: str) -> None:
        """May wait for a disk or a terminal; called by our thread, without any lock."""
        about = self._about()
        text = heading("dump", about.pairs(), self.clock.wall_ns()) + dump
        self.tell(about.journal)
        self.target.write(self.line, text)
        if about.journal is not None and not isinstance(self.target, DumpFile):
            # What went to standard error cannot be found there again.
            append(about.journal / PERIODIC, text)

    def tell(self, journal: Path | None) -> None:
        try:
            if journal is not None:
                self.target.tell(journal)
        except OSError as error:
            self.problem("tell of a dump file", f"{journal}: {error}")


class Watchdog:
    """The process's one.  Nothing is logged and no file written while its lock is held: another
    thread may be forking with the log's locks in its hands."""

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
            thread.join(JOIN_SECONDS)  # it may be writing to a slow place: that is not waited for
        self._leave(watch)

    def file_in(self, directory: Path, create: Callable[[], DumpFile]) -> DumpFile:
        """This process's file there: one for all blocks."""
        with self._changed:
            for watch in self._watches:
                found = watch.target
                if (
                    isinstance(found, DumpFile)
                    and found.path.parent == directory
                    and watch.pid == os.getpid()
                ):
                    found.users += 1
                    return found
        made = create()
        made.users = 1
        return made

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
        """A run began: let who looks after its journal know where the dumps are."""
        with self._changed:
            own = [watch for watch in self._watches if watch.pid == os.getpid()]
        for watch in own:
            watch.tell(journal)

    # ── with the lock held ────────────────────────────────────────────────────────────────────

    def _rule(self) -> str:
        """Let the innermost watch rule.  Returns what went wrong, if anything did."""
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
            return f"no stacks are written every {ruling.interval:g} s: {error}"
        return ""

    def _ensure_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
            thread.start()
            self._thread = thread

    def _arm(self, watch: Watch) -> None:
        if self._armed is not None and self._armed() is None:
            return  # the program has armed its own since
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
        """(dump, what went wrong)"""
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
        # A child that inherits an armed C thread, of which it has only the locks, waits for it
        # for ever when it ends.
        self._changed.acquire()
        self._disarmed_for_fork = self._armed is not None and self._armed() is not None
        if self._disarmed_for_fork:
            self._disarm()

    def _after_fork_in_parent(self) -> None:
        try:
            if self._disarmed_for_fork and self._ruling is not None:
                self._arm(self._ruling)
        except RuntimeError:
            pass  # no more threads to be had; ours goes on
        finally:
            self._changed.release()

    def _after_fork_in_child(self) -> None:
        self._changed = threading.Condition()
        self._thread = self._ruling = self._armed = None


def look() -> str:
    """All threads but the caller's, as faulthandler writes them.

    Into memory first: a pipe that nobody reads must not hold up a process whose interpreter
    lock we have.
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
