"""A program that gets stuck in one of many ways: python stuck.py KIND JOURNAL [OPTION …]

The line on which it is stuck ends in "# stuck: KIND".  It says "ready" when it is about to be.
Options: "signal" registers STACK_SIGNAL by hand, "socket" serves the control socket, "closed"
forbids others to look.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import socket
import sys
import threading
from pathlib import Path

PR_SET_DUMPABLE = 4
PR_SET_PTRACER = 0x59616D61


def ready(word: object = "ready") -> None:
    print(word, flush=True)


def gil() -> None:
    # Unlike CDLL's, PyDLL's calls keep the interpreter's lock; unlike sleep, no signal ends them.
    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    ready()
    lock(mutex)  # stuck: gil


def deadlock() -> None:
    first, second = threading.Lock(), threading.Lock()
    met = threading.Barrier(2)

    def one() -> None:
        with first:
            met.wait()
            with second:  # stuck: deadlock-one
                pass

    def other() -> None:
        with second:
            met.wait()
            with first:  # stuck: deadlock-other
                pass

    threads = [threading.Thread(target=f, name=f.__name__, daemon=True) for f in (one, other)]
    for thread in threads:
        thread.start()
    ready()
    threads[0].join()  # stuck: deadlock


def orphan() -> None:
    """A lock whose holder has ended."""
    lock = threading.Lock()
    holder = threading.Thread(target=lock.acquire)
    holder.start()
    holder.join()
    ready()
    lock.acquire()  # stuck: orphan


def loop() -> None:
    ready()
    # fmt: off
    while True: pass  # noqa: E701  # stuck: loop
    # fmt: on


def read_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ready()
        ours.recv(1)  # stuck: read_socket


def read_pipe() -> None:
    ours, _theirs = os.pipe()
    ready()
    os.read(ours, 1)  # stuck: read_pipe


def fork() -> None:
    """A data loader whose worker waits for ever."""
    ours, _theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ours, 1)  # stuck: fork-worker
        os._exit(0)
    ready(f"ready {child}")
    os.waitpid(child, 0)  # stuck: fork


def kernel() -> None:
    """In uninterruptible sleep: the kernel lets us go on when the child has opened its input."""
    fifo = Path(sys.argv[2]) / "fifo"
    os.mkfifo(fifo)
    actions = [(os.POSIX_SPAWN_OPEN, 0, str(fifo), os.O_RDONLY, 0)]
    ready()
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)  # stuck: kernel


KINDS = {f.__name__: f for f in (gil, deadlock, orphan, loop, read_socket, read_pipe, fork, kernel)}


def main(kind: str, journal: Path, options: list[str]) -> None:
    kernel = ctypes.CDLL(None)
    if "closed" in options:
        kernel.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    else:
        kernel.prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)  # whatever Yama's scope
    if "signal" in options:
        from runwatch.capture.stack_signal import STACK_SIGNAL

        # Appending, since a forked child writes to the same file.
        dump = open(journal / "stacks.txt", "a")  # noqa: SIM115
        faulthandler.register(STACK_SIGNAL, file=dump, all_threads=True, chain=False)
    if "socket" in options:
        from runwatch.capture.stacks import own_stacks
        from runwatch.sdk.control import Control

        control = Control(journal)
        control.serve("stacks", lambda _: own_stacks().body())
        control.start()
    KINDS[kind]()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
