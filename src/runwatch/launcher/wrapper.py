"""The process that the user started: it waits for the command, and ends as the command ended.

Signals that were sent to it alone are passed on.  Those that went to the whole process group (by
the terminal, `kill 0`, a batch system) have reached the command already: the scribe, which is in
the group too, says so.  When the command stops, the wrapper stops in the same way, so that the
shell sees the job as it would see the command.  If the wrapper is killed, the kernel kills the
command.

No failure of ours keeps a command from running: then it takes our place, and is no run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from runwatch.launcher import outlets, plain, quiet
from runwatch.launcher.desk import Desk
from runwatch.launcher.ended import Ended
from runwatch.launcher.environment import Options, for_command, is_inside
from runwatch.launcher.naming import needs_terminal
from runwatch.launcher.outlets import Outlet
from runwatch.sdk.guard import attempt
from runwatch.sdk.launched import ADDRESS

NOT_FOUND: Final = 127
NOT_RUNNABLE: Final = 126
SENTRY_SECONDS: Final = 0.25
"""How long we wait for the scribe's word on whether a signal came to all of us.  Too short, and the
command gets it twice: many programs take that for "at once"."""
OLD_SECONDS: Final = 1.0
"""What the scribe got longer ago was another one."""
SIGNAL_SECONDS: Final = 0.5
"""Usually all is passed on by then.  A terminal that is closed at the end must not end us."""
PASSED: Final = b"passed"
"""The scribe has passed on all that the command wrote."""
SHELL: Final = "/bin/sh"
_SET_PDEATHSIG: Final = 1
_KERNEL: Final = 0x80
_OF_TERMINAL: Final = frozenset(
    (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH)
)
_HANGUP: Final = frozenset((signal.SIGHUP, signal.SIGCONT))
_ENDING: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
_ALL: Final = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


class _Signals(NamedTuple):
    """How our parent wanted signals to be, for the command."""

    mask: set[int | signal.Signals]
    children: Any
    """What happens at the end of a child: who ignores that cannot wait for one."""

    @classmethod
    def taken(cls) -> _Signals:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
        return cls(mask, signal.signal(signal.SIGCHLD, signal.SIG_DFL))

    def give_back(self) -> None:
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, self.children)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


@dataclass(slots=True)
class _Ready:
    """All that is made before the first fork."""

    environment: dict[str, str]
    made: list[Outlet]
    desk: Desk | None
    ours: socket.socket
    theirs: socket.socket


def run(options: Options, command: Sequence[str]) -> NoReturn:
    """Runs the command in this process's name; does not return."""
    words, before = list(command), dict(os.environ)
    _take_free_numbers()
    inherited = list(_inherited())
    quiet.unless_a_person_reads()
    signals = _Signals.taken()
    if is_inside(before):  # the outer one does all this; we only say what is meant here
        environment = for_command(options, words, before[ADDRESS], before)
        _become(words, environment, signals)
    ready = attempt("prepare to run the command", None, lambda: _prepare(options, words, before))
    if ready is not None and os.isatty(2):
        attempt("say where to look", None, lambda: _say_where(ready.environment))
    scribe = None if ready is None else attempt("fork", None, os.fork)
    if ready is None or scribe is None:
        _become(words, before, signals)
    if scribe == 0:
        _be_scribe(options, words, ready, inherited)
    child = attempt("fork", None, os.fork)
    if child is None:
        _become(words, before, signals)
    if child == 0:
        _be_command(words, ready, signals)
    _let_go(ready, inherited)
    Wrapper(child, ready.ours, ready.desk).run()


def _take_free_numbers() -> None:
    """A standard stream that is closed stays closed for the command: nothing that we open may get
    its number.  What is opened here is closed when the command begins."""
    with contextlib.suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
            pass
        os.close(number)


def _prepare(options: Options, words: list[str], before: Mapping[str, str]) -> _Ready:
    with contextlib.ExitStack() as undo:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(ours.close)
        undo.callback(theirs.close)
        made = outlets.outlets() if options.console else []
        if any(each.is_terminal for each in made) and needs_terminal(words):
            for each in made:
                each.close()
            made = []
        for each in made:
            undo.callback(each.close)
        desk = _desk()
        environment = for_command(options, words, desk.address if desk else "", before)
        undo.pop_all()
    return _Ready(environment, made, desk, ours, theirs)


def _say_where(environment: Mapping[str, str]) -> None:
    from runwatch.launcher import where  # only for a person

    where.say(environment)


def _desk() -> Desk | None:
    try:
        return Desk()
    except OSError:  # no folder that can be written to: ranks are not told apart
        return None


# ── the three processes ───────────────────────────────────────────────────────────────────────


def _be_scribe(
    options: Options, words: list[str], ready: _Ready, inherited: Sequence[int]
) -> NoReturn:
    is_done = False
    try:
        ready.ours.close()
        for number in inherited:
            os.close(number)
        from runwatch.launcher import scribe  # the command does not wait for what this loads

        scribe.main(options, words, ready.environment, ready.made, ready.desk, ready.theirs)
        is_done = True
    finally:
        try:
            if not is_done:
                if ready.desk is not None:
                    ready.desk.remove()
                plain.relay(ready.made, ready.theirs)
        finally:
            os._exit(0)


def _be_command(words: list[str], ready: _Ready, signals: _Signals) -> NoReturn:
    try:
        wrapper = os.getppid()
        _die_with_parent()
        if os.getppid() != wrapper:  # it was killed a moment ago
            os._exit(NOT_RUNNABLE)
        for number, inner in outlets.inner_numbers(ready.made):
            os.dup2(inner, number)
        _become(words, ready.environment, signals)
    finally:
        os._exit(NOT_RUNNABLE)


def _become(words: list[str], environment: Mapping[str, str], signals: _Signals) -> NoReturn:
    """The command takes this process; a shell's words and exit codes if that does not work."""
    signals.give_back()
    name = words[0]
    try:
        try:
            os.execvpe(name, words, environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            path = next(iter(_found(name, environment)), name)
            os.execve(SHELL, [SHELL, path, *words[1:]], environment)  # as every shell does
    except FileNotFoundError:
        what = "No such file or directory" if "/" in name else "command not found"
        _say(f"{name}: {what}")
        os._exit(NOT_FOUND)
    except (OSError, ValueError) as error:
        if isinstance(error, NotADirectoryError) and "/" not in name:
            _say(f"{name}: command not found")  # an entry of PATH is no folder
            os._exit(NOT_FOUND)
        _say(f"{name}: {getattr(error, 'strerror', None) or error}")
        os._exit(NOT_RUNNABLE)


def _found(name: str, environment: Mapping[str, str]) -> Iterator[str]:
    if "/" in name:
        yield name
        return
    for folder in os.get_exec_path(dict(environment)):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            yield path


def _say(words: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"runwatch: {words}\n".encode("utf-8", "surrogateescape"))


def _let_go(ready: _Ready, inherited: Sequence[int]) -> None:
    """What the command closes must be closed: we hold none of its files."""
    ready.theirs.close()
    for each in ready.made:
        each.close()
    if ready.desk is not None:
        ready.desk.leave()
    for number in inherited:
        os.close(number)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        with contextlib.suppress(OSError):
            os.fstat(number)
            os.dup2(nothing, number)
    if nothing > 2:
        os.close(nothing)


def _inherited() -> Iterator[int]:
    """Descriptors beyond the first three that our parent gave us, and the command gets."""
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                yield int(name)


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# ── waiting ───────────────────────────────────────────────────────────────────────────────────


class Wrapper:
    def __init__(self, child: int, line: socket.socket, desk: Desk | None) -> None:
        self._child = child
        self._line = line
        self._desk = desk
        self._to_all: list[list[float]] = []
        """What the scribe got: signal, sender and when."""

    def run(self) -> NoReturn:
        status, usage = self._wait()
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        ended = Ended(
            None if killed else os.WEXITSTATUS(status),
            _signal_name(killed) if killed else None,
            usage.ru_maxrss * 1024,
        )
        with contextlib.suppress(OSError):
            self._line.send(json.dumps(ended).encode())
            self._see_scribe_off(status)
        if self._desk is not None:
            self._desk.remove()  # the scribe did, unless somebody killed it
        _end_like(status)

    def _see_scribe_off(self, status: int) -> None:
        """Until all is passed on and recorded.  Nobody else is there any more, so signals are for
        us: while the reader of our output lets us wait they end us, as they would have ended the
        command.  Later nothing is lost if we end at once, as the command ended."""
        self._line.settimeout(SIGNAL_SECONDS)
        try:
            is_passed = self._hears(PASSED)
        except TimeoutError:
            self._line.settimeout(None)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            old = signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            is_passed = self._hears(PASSED)
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
        if is_passed:
            for number in _ENDING:
                signal.signal(number, lambda *_: _end_like(status))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            self._line.settimeout(None)
            self._hears(b"")

    def _hears(self, word: bytes) -> bool:
        """Waits for that word of the scribe; False if it ends without it."""
        while data := self._line.recv(1 << 12):
            if data == word:
                return True
        return False

    def _wait(self) -> tuple[int, resource.struct_rusage]:
        while True:
            came = signal.sigwaitinfo(_ALL)
            if came.si_signo != signal.SIGCHLD:
                self._pass_on(came)
                continue
            ended = self._look()
            if ended is not None:
                return ended

    def _look(self) -> tuple[int, resource.struct_rusage] | None:
        """What our children did.  As the first process of a container we have those of others."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return None
            if pid == 0:
                return None
            if pid != self._child:
                continue
            if not os.WIFSTOPPED(status):
                return status, usage
            _stop_by(os.WSTOPSIG(status))

    def _pass_on(self, came: signal.struct_siginfo) -> None:
        if is_of_terminal(came):
            return
        if not is_hangup(came) and self._came_to_all(came.si_signo, came.si_pid):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, came.si_signo)

    def _came_to_all(self, number: int, sender: int) -> bool:
        """Whether the scribe got that signal, too, and just now."""
        deadline = time.monotonic() + SENTRY_SECONDS
        while True:
            now = time.monotonic()
            self._to_all = [each for each in self._to_all if now - each[2] < OLD_SECONDS]
            for each in self._to_all:
                if each[:2] == [number, sender]:
                    self._to_all.remove(each)
                    return True
            if not select.select([self._line], [], [], max(deadline - now, 0))[0]:
                return False
            data = self._line.recv(1 << 12)
            if not data:
                return False
            self._to_all.append(json.loads(data))


def is_of_terminal(came: signal.struct_siginfo) -> bool:
    """By a key or a change of its size: the whole group in front has got it, and so the command."""
    return came.si_code == _KERNEL and came.si_signo in _OF_TERMINAL


def is_hangup(came: signal.struct_siginfo) -> bool:
    """The terminal is gone, and the kernel signals that to the leader of the session alone."""
    is_leader = os.getsid(0) == os.getpid()
    return is_leader and came.si_code == _KERNEL and came.si_signo in _HANGUP


def _stop_by(number: int) -> None:
    """Stop as the command stopped; the shell wakes us both."""
    os.kill(os.getpid(), number)  # first: it is one with that of the terminal, if we have that yet
    if number != signal.SIGSTOP:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            # One memory image is enough, and it is the command's.
            most = resource.getrlimit(resource.RLIMIT_CORE)[1]
            resource.setrlimit(resource.RLIMIT_CORE, (0, most))
        with contextlib.suppress(OSError, ValueError):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
