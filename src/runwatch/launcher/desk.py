"""Answers the processes of the command, over the socket that RUNWATCH_EXEC names.

One packet of JSON comes in, and for some questions one goes out, with descriptors.  The socket lies
in a folder of its own that only this user can enter.  The other end is `sdk/launched.py`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from runwatch.sdk.guard import attempt, guarded
from runwatch.sdk.launched import MAX_MESSAGE

SECONDS: Final = 1.0
"""How long one process may keep the others waiting."""
LONGEST_FOLDER: Final = 95
"""The path of a socket may have 107 bytes."""
BACKLOG: Final = 512
"""A job may have hundreds of ranks on a node, and all begin at once."""

Answer = tuple[Mapping[str, Any], list[int]]
"""What is answered, and the descriptors that go with it, which are closed afterwards."""
Handler = Callable[[Mapping[str, Any]], Answer | None]


class Desk:
    """Made before the command begins, and served by the scribe."""

    def __init__(self) -> None:
        self._folder = _private_folder()
        self.address = os.path.join(self._folder, "socket")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.bind(self.address)
            self._socket.listen(BACKLOG)
        except OSError:
            self.remove()
            raise

    def serve(self, handlers: Mapping[str, Handler]) -> None:
        thread = threading.Thread(
            target=self._run, args=(handlers,), name="runwatch-desk", daemon=True
        )
        thread.start()

    def leave(self) -> None:
        """In the processes that do not serve it."""
        self._socket.close()

    def remove(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with suppress(OSError):
            os.unlink(self.address)
        with suppress(OSError):
            os.rmdir(self._folder)

    @guarded("answer the processes of the command")
    def _run(self, handlers: Mapping[str, Handler]) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            with line:
                attempt("answer a process", None, partial(_serve, line, handlers))


def _private_folder() -> str:
    """As from `tempfile`, which takes longer to load than the command has to wait."""
    problem: OSError | None = None
    for place in (os.environ.get("TMPDIR"), os.environ.get("XDG_RUNTIME_DIR"), "/tmp"):
        folder = os.path.join(place or "/tmp", f"runwatch-exec-{os.urandom(6).hex()}")
        if len(folder) > LONGEST_FOLDER:
            continue
        try:
            os.mkdir(folder, 0o700)
            return folder
        except OSError as error:
            problem = error
    raise problem or OSError("no folder with a short name")


def _serve(line: socket.socket, handlers: Mapping[str, Handler]) -> None:
    if not _is_ours(line):
        return
    line.settimeout(SECONDS)
    try:
        question = json.loads(line.recv(MAX_MESSAGE) or b"{}")
    except (OSError, ValueError):
        return
    handler = handlers.get(str(question.get("kind"))) if isinstance(question, dict) else None
    answered = handler(question) if handler is not None else None
    if answered is None:
        return
    answer, descriptors = answered
    try:
        socket.send_fds(line, [json.dumps(answer).encode()], descriptors)
    except OSError:
        pass  # it did not wait
    finally:
        for each in descriptors:
            os.close(each)


def _is_ours(line: socket.socket) -> bool:
    raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", raw)
    return user in (0, os.getuid())
