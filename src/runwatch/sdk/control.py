"""A socket beside the journal, at which others can ask this process while it trains.

One daemon thread waits in `accept` and costs nothing until someone asks.  One JSON line comes in,
`{"kind": …, "body": {…}}`, and one goes out.  Only this user and root may ask.  The other end is
`agent/errands/control.py`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from runwatch.journal.control import SOCKET, socket_of
from runwatch.journal.descriptor import Descriptor
from runwatch.sdk.guard import attempt, guarded, tally

MAX_QUESTION: Final = 1 << 20
QUESTION_SECONDS: Final = 2.0
STOP_SECONDS: Final = 0.1
Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_open: weakref.WeakSet[Control] = weakref.WeakSet()


def _forget_in_child() -> None:
    for control in list(_open):
        control.forget()


# If a child kept the parent's socket open, those who ask would wait for ever.
os.register_at_fork(after_in_child=_forget_in_child)


class _Listening:
    """A listening socket.  Closed only if its descriptor is still ours."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self._own = Descriptor(line.fileno())

    def is_ours(self) -> bool:
        return self._own.is_ours()

    def close(self) -> None:
        if self.is_ours():
            self.line.close()
        else:
            self.line.detach()


class Control:
    """Serves the socket of one journal from `start` to `stop`."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._handlers: dict[str, Handler] = {
            "ping": lambda _: {"pid": os.getpid()},
            "stacks": _stacks,
        }
        self._socket: _Listening | None = None
        self._thread: threading.Thread | None = None

    def serve(self, kind: str, handler: Handler) -> None:
        """`handler` is called in the control thread.  If it raises, the answer is an error."""
        self._handlers[kind] = handler

    @guarded("serve the control socket")
    def start(self) -> None:
        if self._socket is not None:
            return
        try:
            self._socket = _listen(self._journal)
        except OSError as error:
            tally.count(
                "no control socket", f"{self._journal}: {error}: the agent cannot ask this process"
            )
            return
        _open.add(self)
        self._thread = threading.Thread(
            target=self._run, args=(self._socket,), name="runwatch-control", daemon=True
        )
        self._thread.start()

    @guarded("close the control socket")
    def stop(self) -> None:
        listening, self._socket = self._socket, None
        if listening is None:
            return
        _open.discard(self)
        (self._journal / SOCKET).unlink(missing_ok=True)
        if not listening.is_ours():
            return
        listening.line.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes the socket
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(STOP_SECONDS)  # briefly: it may be answering, and we do not wait for that

    def is_lost(self) -> bool:
        """Whether the program has closed our socket's descriptor."""
        listening = self._socket
        return listening is not None and not listening.is_ours()

    def forget(self) -> None:
        """In a forked child: the socket belongs to the parent."""
        listening, self._socket = self._socket, None
        if listening is not None:
            listening.close()

    @guarded("answer at the control socket")
    def _run(self, listening: _Listening) -> None:
        try:
            while self._socket is listening and listening.is_ours():
                try:
                    line, _ = listening.line.accept()
                except OSError:
                    return
                with line:
                    attempt("answer a question", None, partial(self._serve, line))
        finally:
            listening.close()

    def _serve(self, line: socket.socket) -> None:
        if not _is_ours(line):
            return
        line.settimeout(QUESTION_SECONDS)
        try:
            question = json.loads(_read_line(line))
            if not isinstance(question, dict):
                return
            line.sendall(json.dumps(self._answer(question)).encode() + b"\n")
        except (OSError, ValueError):
            return  # the other side hung up, was too slow, or sent no JSON: it will notice

    def _answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = str(question.get("kind"))
        handler = self._handlers.get(kind)
        if handler is None:
            return {"error": f"this process does not know the question {kind!r}"}
        failed = {"error": f"{kind} failed in the process; its log says why"}
        return attempt(f"answer {kind}", failed, lambda: handler(dict(question.get("body") or {})))


def _stacks(question: Mapping[str, Any]) -> Mapping[str, Any]:
    from runwatch.capture.stacks import own_stacks, shortened  # nobody asks most processes

    return shortened(own_stacks()).body()


def _listen(journal: Path) -> _Listening:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_of(journal) as address:
            # It gets its name only when it listens: before that, connections would be refused.
            listening.bind(f"{address}.new")
            os.chmod(f"{address}.new", 0o600)
            listening.listen(8)
            os.rename(f"{address}.new", address)
    except BaseException:
        listening.close()
        raise
    return _Listening(listening)


def _is_ours(line: socket.socket) -> bool:
    raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", raw)
    return user in (0, os.getuid())


def _read_line(line: socket.socket) -> bytes:
    read = bytearray()
    while not read.endswith(b"\n") and len(read) < MAX_QUESTION:
        part = line.recv(1 << 16)
        if not part:
            break
        read += part
    return bytes(read)
