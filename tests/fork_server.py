"""Starts Runwatch's own commands by forking a process that has imported them already.

Importing is most of what a short command costs: 0.5 s of processor time for a head, 0.2 s for an
agent, and the tests start about a thousand of them.  `install` makes `subprocess.Popen` start
`python -m runwatch.cli …` and `python -m runwatch.agent …` by way of a fork server; every other
command, and every option that a fork cannot reproduce, starts as usual.  `COLD_START=1` in the
environment turns this off, also for one test; `make shake` and `make soak` do.

A program of a test asks for a warm start itself: `WARM_START=torch` in its environment starts
`python FILE …` or `python -m MODULE …` from a process that has imported torch.  Import hooks do
not act there: such a program is one that Runwatch does not watch, or watches from outside.

A forked process has its own command line and environment in /proc, its own standard streams and
the exit status of a process that was started the usual way.  Its parent differs, which is the
server, and it ends without freeing its objects.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from runwatch.capture.stack_signal import STACK_SIGNAL

ROOT: Final = Path(__file__).parents[1]
COLD_START: Final = "COLD_START"
WARM_START: Final = "WARM_START"
"""Names the kind of server that a program is to be forked from; the program does not receive it."""
PRELOADED: Final[Mapping[str, Sequence[str]]] = {
    "head": (
        "runwatch.head.main",
        "runwatch.agent.main",
        "runwatch.cli.commands",
        "runwatch.compat.gswarm.command",
        "runwatch.compat.xprofiler.command",
    ),
    "cluster": ("runwatch.k8s.webhook", "runwatch.k8s.operator.main"),
    "torch": (),
}
"""What each kind of server imports before it forks, with all modules of these packages."""
PRELOADED_ALONE: Final[Mapping[str, Sequence[str]]] = {
    "torch": ("torch", "torch._dynamo", "torch.distributed"),
}
"""Imported without the modules of these packages, where they are installed."""
SERVER_VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {"torch": {"OMP_NUM_THREADS": "1"}}
"""Of a kind of server and all that it forks."""
MODULES: Final = ("runwatch", "runwatch.cli", "runwatch.agent", "gsprof", "xprofiler")
SCRIPTS: Final = ("runwatch", "gsprof", "xprofiler")
"""Console scripts beside the interpreter."""
LIGHT_COMMANDS: Final = ("exec", "dropin", "config")
"""These import little, and a fork of a large process would make them slower."""
INTERPRETER_VARIABLES: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "OMP_", "OPENBLAS_")
"""Read by the interpreter or its libraries as they start: a fork cannot change them any more."""
INHERITED: Final = ("Uid", "Gid", "Groups", "SigBlk", "Cap", "NoNew", "Seccomp", "Cpus_")
"""Lines of /proc/PID/status."""
MAX_MESSAGE: Final = 200_000
PR_SET_MM, PR_SET_MM_MAP, UNCHANGED_FILE = 35, 14, 0xFFFFFFFF
STATUS: Final = struct.Struct("=id")
"""A wait status, and the processor seconds that the process and its children used."""


class Request(NamedTuple):
    module: str
    """Or the path of a file; `-m` among the arguments tells them apart."""
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    umask: int
    new_session: bool
    passed: list[int]
    """The numbers of the descriptors that the process inherits beside the standard streams."""


# ── the side of the tests ─────────────────────────────────────────────────────────────────────


class ForkServers:
    """The servers of this process.  A server that never gets a request imports nothing."""

    def __init__(self) -> None:
        self._servers: dict[str, tuple[subprocess.Popen[bytes], socket.socket]] = {}
        self._inherited: tuple[object, ...] = ()
        self._lock = threading.Lock()
        self.cpu_seconds = 0.0

    def start(self) -> None:
        """Before the first test: what a server inherits, its commands inherit from it."""
        self._inherited = inherited()
        for kind in PRELOADED:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                server = subprocess.Popen(
                    [sys.executable, "-m", "tests.fork_server", kind, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    cwd=ROOT,
                    env={**os.environ, **SERVER_VARIABLES.get(kind, {})},
                )
            self._servers[kind] = server, ours

    def fork(self, kind: str, request: Request, descriptors: list[int]) -> int | None:
        """Returns the process id, or None if the process must be started the usual way."""
        message = json.dumps(request).encode()
        if inherited() != self._inherited or len(message) > MAX_MESSAGE:
            return None
        _, line = self._servers[kind]
        with self._lock:
            socket.send_fds(line, [message], descriptors)
            answer = line.recv(100)
        if not answer:
            raise RuntimeError(f"the fork server for {kind} commands has ended")
        return int(answer)

    def close(self) -> None:
        for server, line in self._servers.values():
            line.close()
            server.wait()
        self._servers.clear()
        self.cpu_seconds = 0.0  # from now on that of our own children has it


def inherited() -> tuple[object, ...]:
    """What a process inherits from the thread that starts it, beside what a request has.

    The process id is part of it: a process that a test forked does not share our connection.
    """
    thread = Path("/proc/thread-self")
    files = [(thread / name).read_text() for name in ("limits", "cgroup", "oom_score_adj")]
    status = (thread / "status").read_text().splitlines()
    spaces = sorted(os.readlink(each) for each in (thread / "ns").iterdir())
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = [line for line in status if line.startswith(INHERITED)]
    ignored = next(int(line.split()[1], 16) for line in status if line.startswith("SigIgn"))
    # The SDK goes on ignoring its signal after a run that a test had in this process.
    ignored &= ~(1 << STACK_SIGNAL - 1)
    return os.getpid(), os.getsid(0), nice, ignored, *files, *spaces, *attributes


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` whose process may be a child of a fork server."""

    servers = ForkServers()
    _status: int | None = None
    """Receives the wait status of a forked process."""

    def _execute_child(self, *arguments: Any) -> None:
        options = _EXECUTE_CHILD.bind(self, *arguments).arguments
        if (kind := kind_of(options)) is None or not self._fork(kind, options):
            super()._execute_child(*arguments)  # type: ignore[misc]

    def _fork(self, kind: str, options: Mapping[str, Any]) -> bool:
        status, theirs = os.pipe()
        passed = sorted(options["pass_fds"])
        words = command_of(options)
        environment = os.environ if options["env"] is None else options["env"]
        variables = {os.fsdecode(k): os.fsdecode(v) for k, v in environment.items()}
        variables.pop(WARM_START, None)
        request = Request(
            module=words[2] if words[1] == "-m" else words[1],
            arguments=words,
            environment=variables,
            directory=os.path.abspath(os.fspath(options["cwd"] or ".")),
            umask=current_umask(),
            new_session=bool(options["start_new_session"]),
            passed=passed,
        )
        try:
            pid = self.servers.fork(kind, request, [theirs, *streams_of(options), *passed])
        finally:
            os.close(theirs)
        if pid is None:
            os.close(status)
            return False
        self.pid, self._status = pid, status
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(options[name] for name in pipes))  # type: ignore[attr-defined]
        return True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            waited: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return waited
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        message = os.read(self._status, STATUS.size)
        os.close(self._status)
        self._status = None
        if not message:
            raise RuntimeError("the fork server ended before this process")
        wait_status, cpu_seconds = STATUS.unpack(message)
        self.servers.cpu_seconds += cpu_seconds
        return self.pid, wait_status

    def _internal_poll(self, *arguments: Any, **named: Any) -> int | None:
        if self._status is None:
            code: int | None = super()._internal_poll(*arguments, **named)  # type: ignore[misc]
            return code
        if self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, wait_status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(wait_status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


_EXECUTE_CHILD: Final = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


def kind_of(options: Mapping[str, Any]) -> str | None:
    """The kind of server that can fork this command; None if it must be started as usual."""
    if isinstance(options["args"], str | bytes | os.PathLike):
        return None
    python, *rest = command_of(options)
    environment = os.environ if options["env"] is None else options["env"]
    if python != sys.executable or options["executable"] not in (None, python) or not rest:
        return None
    if (kind := kind_of_program(rest, environment)) is None:
        return None
    unusual = ("preexec_fn", "shell", "gids")
    if any(options[name] for name in unusual) or not options["close_fds"]:
        return None
    if any(
        options.get(name, -1) not in (None, -1) for name in ("uid", "gid", "umask", "process_group")
    ):
        return None
    of_server = {**os.environ, **SERVER_VARIABLES.get(kind, {})}
    if interpreter_variables(environment) != interpreter_variables(of_server):
        return None
    return None if any(map(os.isatty, streams_of(options))) else kind


def kind_of_program(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    if (wanted := environment.get(WARM_START)) is not None:
        return wanted if words[0] == "-m" or words[0].endswith(".py") else None
    if words[0] == "-m" and words[1:] and words[1] in MODULES:
        rest = words[2:]
    elif words[0] in map(str, map(Path(sys.executable).with_name, SCRIPTS)):
        rest = words[1:]
    else:
        return None
    if rest and rest[0] in LIGHT_COMMANDS:
        return None
    return "cluster" if rest and rest[0] == "k8s" else "head"


def command_of(options: Mapping[str, Any]) -> list[str]:
    """With its interpreter, as the kernel starts a console script."""
    words = [os.fsdecode(word) for word in options["args"]]
    if words[0] in SCRIPTS:
        environment = os.environ if options["env"] is None else options["env"]
        words[0] = shutil.which(words[0], path=environment.get("PATH")) or words[0]
    if words[0] in map(str, map(Path(sys.executable).with_name, SCRIPTS)):
        return [sys.executable, *words]
    return words


def streams_of(options: Mapping[str, Any]) -> list[int]:
    """The descriptors that become the standard streams; ours are inherited where none is given."""
    names = ("p2cread", "c2pwrite", "errwrite")
    return [number if options[name] < 0 else options[name] for number, name in enumerate(names)]


def interpreter_variables(environment: Mapping[Any, Any]) -> dict[str, str]:
    named = ((os.fsdecode(key), os.fsdecode(value)) for key, value in environment.items())
    return {key: value for key, value in named if key.startswith(INTERPRETER_VARIABLES)}


def current_umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


def cpu_seconds() -> float:
    """Used by forked processes that have ended; `getrusage` counts only direct children."""
    return Popen.servers.cpu_seconds


@contextlib.contextmanager
def install() -> Iterator[None]:
    if os.environ.get(COLD_START):
        yield
        return
    usual = subprocess.Popen
    Popen.servers.start()
    subprocess.Popen = Popen  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = usual  # type: ignore[misc]
        Popen.servers.close()


# ── the server ────────────────────────────────────────────────────────────────────────────────


def preload(kind: str) -> None:
    gc.disable()  # nothing of this is garbage
    for name in PRELOADED[kind]:
        module = importlib.import_module(name)
        for each in pkgutil.iter_modules(getattr(module, "__path__", [])):
            importlib.import_module(f"{name}.{each.name}")
    for name in PRELOADED_ALONE.get(kind, ()):
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def serve(line: socket.socket) -> Request:
    """Forks a process for each request; returns in the forked process."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([line.fileno(), woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 1 << 12)
            reap(running)
        if line.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(line, MAX_MESSAGE + 1, 250)
        if not message:
            os._exit(0)  # the tests have ended
        request = Request(*json.loads(message))
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            become(request, descriptors[1:])
            return request
        running[pid] = descriptors[0]
        for each in descriptors[1:]:
            os.close(each)
        line.send(str(pid).encode())


def reap(running: dict[int, int]) -> None:
    """Reports the wait status of every process that has ended."""
    while running:
        try:
            pid, wait_status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        status = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(status, STATUS.pack(wait_status, used.ru_utime + used.ru_stime))
        os.close(status)


def become(request: Request, descriptors: list[int]) -> None:
    """Gives a forked process the streams, directory, environment and command line it was asked to
    have."""
    if request.new_session:
        os.setsid()
    targets = [0, 1, 2, *request.passed]
    beyond = max([*targets, *descriptors]) + 1
    moved = [os.dup2(each, beyond + n) for n, each in enumerate(descriptors)]
    for each, target in zip(moved, targets, strict=True):
        os.dup2(each, target, inheritable=True)
    close_except(targets)
    os.umask(request.umask)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    rename(request)
    sys.orig_argv[:] = request.arguments
    is_module = request.arguments[1] == "-m"
    sys.argv[:] = request.arguments[1 + is_module :]
    sys.path[0] = request.directory if is_module else str(Path(request.module).parent)
    reopen_streams()


def close_except(kept: Sequence[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))


def reopen_streams() -> None:
    """As the interpreter does at its start, for streams that are no terminals."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        new = os.fdopen(number, mode, buffering, old.encoding, old.errors, closefd=False)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def rename(request: Request) -> None:
    """Makes /proc/PID/cmdline and /proc/PID/environ those of the command (PR_SET_MM, prctl(2))."""
    words = [os.fsencode(word) + b"\0" for word in request.arguments]
    variables = [os.fsencode(f"{k}={v}") + b"\0" for k, v in request.environment.items()]
    text = b"".join(words + variables)
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    start = libc.malloc(len(text))  # never freed: the kernel reads it until the process is gone
    ctypes.memmove(start, text, len(text))
    middle, end = start + sum(map(len, words)), start + len(text)
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    code_start, code_end, stack = int(stat[23]), int(stat[24]), int(stat[25])
    data_start, data_end, heap = int(stat[42]), int(stat[43]), int(stat[44])
    layout = struct.pack(
        "=12Q2I", code_start, code_end, data_start, data_end, heap, libc.sbrk(0), stack,
        start, middle, middle, end, 0, 0, UNCHANGED_FILE,
    )  # fmt: skip
    number, layout_map = ctypes.c_ulong(PR_SET_MM), ctypes.c_ulong(PR_SET_MM_MAP)
    libc.prctl(number, layout_map, layout, ctypes.c_ulong(len(layout)), ctypes.c_ulong(0))


def main(kind: str, descriptor: str) -> None:
    with socket.socket(fileno=int(descriptor)) as line:
        select.select([line], [], [])
        preload(kind)
        request = serve(line)
        line.detach()
    sys.modules.pop(f"{request.module}.__main__", None)  # it runs under another name
    atexit.register(gc.unfreeze)  # extensions report what is never freed
    try:
        if request.arguments[1] == "-m":
            runpy.run_module(request.module, run_name="__main__", alter_sys=True)
        else:
            run_file(request.module)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            leave(error.code or 0)
        raise
    leave(0)


def leave(code: int) -> None:
    """Ends the process without freeing its objects: each page that is touched is copied first,
    and that would cost more than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # the interpreter reports it
    os._exit(code & 0xFF)


def run_file(file: str) -> None:
    """Runs a program as the interpreter does, also when it fails: its traceback is its own."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(module).update(__file__=file, __builtins__=builtins)
    try:
        exec(compile(Path(file).read_bytes(), file, "exec"), vars(module))
    except Exception as error:  # noqa: BLE001 - as the interpreter does
        traceback = error.__traceback__
        assert traceback is not None
        sys.excepthook(type(error), error.with_traceback(traceback.tb_next), traceback.tb_next)
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
