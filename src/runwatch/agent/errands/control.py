"""Asking a training process something, through the socket that its SDK serves.

The other end is `sdk/control.py`.  A process that is stuck holding the interpreter's lock still
lets us connect (the kernel does that), but does not answer: that is worth knowing, not an error.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.files import Folder, journal_folder
from runwatch.identity import once_as
from runwatch.journal.control import SOCKET
from runwatch.record.message import Message

_PEER: Final = struct.Struct("3i")
MAX_ANSWER: Final = 16 << 20
M = TypeVar("M", bound=Message)


class NoAnswer(RunwatchError):
    """The process cannot be asked, or does not answer; the message says which."""


def ask_for(journal: Path, message: Message, answer: type[M], seconds: float) -> M:
    """The answer of the process whose journal this is.  Raises NoAnswer."""
    return answer.of(ask(journal, message.KIND, message.body(), seconds))


def ask(
    journal: Path,
    kind: str,
    body: Mapping[str, Any],
    seconds: float = 1.0,
    *,
    clock: Clock = system_clock,
) -> Mapping[str, Any]:
    """The answer's JSON object.  Raises NoAnswer."""
    deadline = clock.mono_ns() + int(seconds * 1e9)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(seconds)
        try:
            _connect(line, journal)
            line.sendall(json.dumps({"kind": kind, "body": dict(body)}).encode() + b"\n")
            answer = _answer(line, deadline, clock)
        except TimeoutError:
            raise NoAnswer(f"it does not answer within {seconds:g} s") from None
        except OSError as error:
            raise NoAnswer(f"its control socket fails: {error.strerror or error}") from error
    if (why := answer.get("error")) is not None:
        raise NoAnswer(str(why))
    return answer


def _connect(line: socket.socket, journal: Path) -> None:
    """To a socket of the journal's owner, who may have put anything in its place: a link to one
    that does what root says, or a pipe."""
    try:
        with journal_folder(journal) as folder:
            if not stat.S_ISSOCK(folder.stat(SOCKET).st_mode):
                raise NoAnswer("what lies in the place of its control socket is no socket")
            place = f"/proc/self/fd/{folder.fd}/{SOCKET}"
            # It asks who we are: only root and its own user are answered.
            once_as(os.geteuid() and folder.uid, partial(_connected, line, place, folder))
            peer = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            if not folder.is_of(_PEER.unpack(peer)[1]):
                raise NoAnswer("somebody else serves its control socket")
    except FileNotFoundError:
        raise NoAnswer("it serves no control socket (it has just begun, or has ended)") from None
    except ConnectionRefusedError:
        raise NoAnswer("nobody serves its control socket any more") from None


def _connected(line: socket.socket, place: str, folder: Folder) -> None:
    with folder.as_user():
        line.connect(place)


def _answer(line: socket.socket, deadline: int, clock: Clock) -> Mapping[str, Any]:
    read = bytearray()
    while not read.endswith(b"\n"):
        left = (deadline - clock.mono_ns()) / 1e9
        if left <= 0:
            raise TimeoutError
        line.settimeout(left)
        part = line.recv(1 << 16)
        if not part:
            raise NoAnswer("it hung up without an answer")
        read += part
        if len(read) > MAX_ANSWER:
            raise NoAnswer(f"its answer has more than {MAX_ANSWER >> 20} MiB")
    try:
        answer = json.loads(read)
    except ValueError as error:
        raise NoAnswer(f"its answer is not JSON: {error}") from error
    if not isinstance(answer, dict):
        raise NoAnswer("its answer is no object")
    return answer
