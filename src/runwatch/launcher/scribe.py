"""The process that relays and records what the command writes.

It is in the process group of the command and of the wrapper, and blocks every signal: what it gets
was sent to the whole group, so the command got it as well.  The wrapper asks for that (`_sentry`).
It ends when the command has ended and nobody holds an outlet any more: a daemon that the command
left behind goes on writing as it would without us.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from runwatch.launcher import ptys
from runwatch.launcher.desk import Answer, Desk
from runwatch.launcher.ended import Ended
from runwatch.launcher.environment import Options
from runwatch.launcher.outlets import Outlet, outlet
from runwatch.launcher.relay import Relay
from runwatch.launcher.wrapper import PASSED, is_of_terminal
from runwatch.sdk.guard import attempt, guarded

if TYPE_CHECKING:
    from runwatch.launcher.chronicle import Chronicle
    from runwatch.record.console import Stream

REQUEST_SECONDS: Final = 0.3
"""How long a rank that starts waits until earlier output has been passed on.  Shorter than the
rank's own limit (`sdk/launched.py`)."""
MOST_EARLY: Final = 100
LATE_SECONDS: Final = 2.0
"""How long a journal on a file system that hangs may keep the wrapper from ending."""


class Scribe:
    def __init__(
        self,
        options: Options,
        command: list[str],
        environment: Mapping[str, str],
        made: list[Outlet],
        desk: Desk | None,
        line: socket.socket,
    ) -> None:
        self._line = line
        self._desk = desk
        self._main = made
        self._about = (options, command, environment)
        self._chronicle: Chronicle | None = None
        self._early: list[tuple[int | None, Stream, bytes]] = []
        """What was written before we could record."""
        self._early_runs: list[tuple[str, str, str]] | None = []
        """Runs that processes of the command began before that; None afterwards."""
        self._relays: list[Relay] = []
        self._lock = threading.Lock()
        self._files = {number: _file(each.inner) for each in made for number in each.numbers}
        self._closing = False

    def run(self) -> None:
        for each in self._main:
            self._relay(each)
        # Without one of these the command is less well recorded, and runs as well.
        attempt("watch signals", None, self._sentry)
        if self._desk is not None:
            answers = {"pipes": self._pipes, "run": self._run_begun}
            attempt("answer processes", None, partial(self._desk.serve, answers))
        recorder = threading.Thread(target=self._begin, daemon=True)
        attempt("record the command", None, recorder.start)
        ended = self._wait()
        for passed in [relay.request() for relay in self._all()]:
            passed.wait()
        with contextlib.suppress(OSError):
            self._line.send(PASSED)
        self._closing = True
        if self._desk is not None:
            self._desk.remove()
        finisher = threading.Thread(target=self._finish, args=(recorder, ended), daemon=True)
        attempt("record the end", None, finisher.start)
        if finisher.ident is not None:
            finisher.join(LATE_SECONDS)
            if not finisher.is_alive() and self._chronicle is not None:
                self._chronicle.say_farewell()
        self._line.close()  # the wrapper ends
        for relay in self._all():
            relay.join()

    @guarded("record the command")
    def _begin(self) -> None:
        """Relaying does not wait for what this loads."""
        from runwatch.launcher.chronicle import Chronicle

        chronicle = Chronicle(*self._about)
        with self._lock:
            for early in self._early:
                chronicle.feed(*early)
            self._chronicle = chronicle
            self._early.clear()
        chronicle.begin()
        with self._lock:
            begun, self._early_runs = self._early_runs or (), None
        for run in begun:
            chronicle.join(*run)

    def _finish(self, recorder: threading.Thread, ended: Ended) -> None:
        if recorder.ident is not None:
            recorder.join()
        if self._chronicle is not None:
            self._chronicle.end(ended)

    # ── what is written ───────────────────────────────────────────────────────────────────────

    def _relay(self, main: Outlet) -> None:
        main.close_inner()
        relay = Relay(main, partial(self._feed, None, main.stream), self._let_go)
        with self._lock:
            relay.start()
            main.is_relayed = True
            self._relays.append(relay)

    def _feed(self, rank: int | None, stream: Stream, data: bytes) -> None:
        if self._chronicle is None:
            with self._lock:
                if self._chronicle is None:
                    if len(self._early) < MOST_EARLY:
                        self._early.append((rank, stream, data))
                    return
        self._chronicle.feed(rank, stream, data)

    def _all(self) -> list[Relay]:
        with self._lock:
            return list(self._relays)

    def _let_go(self, over: Relay) -> None:
        """Nobody can write there through us any more: whoever reads it must not wait for us."""
        with self._lock:
            self._relays.remove(over)
        for number in over.main.numbers:
            _forget(number)

    def _pipes(self, question: Mapping[str, Any]) -> Answer:
        """Outlets of its own for a rank whose output would come to one of ours.  None if earlier
        output cannot be passed on in time: then the rank's comes after it in the same outlet."""
        rank, files = question.get("rank"), question.get("files")
        if self._closing or not isinstance(rank, int) or not isinstance(files, list):
            return {}, []
        asked = dict[Relay, list[int]]()
        for number, file in zip((1, 2), files, strict=False):
            relay = self._relay_of(file)
            if relay is not None:
                asked.setdefault(relay, []).append(number)
        if any(relay.is_behind for relay in asked):
            return {}, []
        made = dict[Relay, Outlet]()
        with contextlib.ExitStack() as undo:
            for relay, mine in asked.items():
                made[relay] = outlet(relay.main.stream, tuple(mine), relay.main.target)
                undo.callback(made[relay].close)
            undo.pop_all()
        numbers, given, requests = dict[int, int](), list[int](), list[threading.Event]()
        for relay, each in made.items():
            numbers.update(dict.fromkeys(each.numbers, len(given)))
            given.append(each.inner)
            each.inner = -1
            requests.append(relay.request((each, partial(self._feed, rank, each.stream))))
        deadline = time.monotonic() + REQUEST_SECONDS
        if not all(each.wait(max(deadline - time.monotonic(), 0)) for each in requests):
            for number in given:
                os.close(number)
            return {}, []
        return {"numbers": numbers}, given

    def _relay_of(self, file: object) -> Relay | None:
        """The relay of the command's outlet that this file is, if its other end is still open."""
        for relay in self._all():
            for number in relay.main.numbers:
                if relay.main.source >= 0 and file == list(self._files[number]):
                    return relay
        return None

    def _run_begun(self, told: Mapping[str, Any]) -> None:
        run, name, group = (str(told.get(key) or "") for key in ("run", "name", "group"))
        with self._lock:
            if self._early_runs is not None:
                self._early_runs.append((run, name, group))
                return
        if self._chronicle is not None:
            self._chronicle.join(run, name, group)

    # ── signals and the wrapper ───────────────────────────────────────────────────────────────

    def _sentry(self) -> None:
        threading.Thread(target=self._watch_signals, name="runwatch-sentry", daemon=True).start()

    @guarded("watch signals")
    def _watch_signals(self) -> None:
        every = signal.valid_signals()
        while True:
            came = signal.sigwaitinfo(every)
            if came.si_signo == signal.SIGWINCH:
                self._resize()
            if came.si_signo == signal.SIGCHLD or is_of_terminal(came):
                continue  # the wrapper does not ask about these
            news = (came.si_signo, came.si_pid, time.monotonic())
            with contextlib.suppress(OSError):  # the wrapper does not listen any more
                self._line.send(json.dumps(news).encode(), socket.MSG_DONTWAIT)

    def _resize(self) -> None:
        """The command has got the signal before its own terminal had the new size."""
        outlets = [each for relay in self._all() for each in relay.outlets if each.is_terminal]
        changed = [each.target for each in outlets if ptys.resize(each.target, each.source)]
        for terminal in set(changed):
            with contextlib.suppress(OSError):
                os.killpg(os.tcgetpgrp(terminal), signal.SIGWINCH)

    def _wait(self) -> Ended:
        """Until the wrapper says how the command ended, or has been killed, and the command with
        it."""
        while True:
            try:
                data = self._line.recv(1 << 12)
            except OSError:
                data = b""
            if not data:
                return Ended(None, signal.SIGKILL.name)
            news = json.loads(data)
            return Ended(*news)


def main(
    options: Options,
    command: list[str],
    environment: Mapping[str, str],
    made: list[Outlet],
    desk: Desk | None,
    line: socket.socket,
) -> None:
    _forget(0)
    os.environ.update(
        {key: value for key, value in environment.items() if key.startswith("RUNWATCH_")}
    )
    Scribe(options, command, environment, made, desk, line).run()


def _forget(number: int) -> None:
    """Hold nothing there any more, and leave the number taken."""
    with contextlib.suppress(OSError):
        os.fstat(number)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, number)
        os.close(nothing)


def _file(number: int) -> tuple[int, int]:
    about = os.fstat(number)
    return about.st_dev, about.st_ino
