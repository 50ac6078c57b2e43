"""What XProf is shown: profiles that the head has opened, and no path that others can change.

The head opens each file by the rules of `files.py` and sends the descriptor to the viewer's
process.  There the file's name leads to `/proc/self/fd/N`: to the file that was opened, whatever
somebody puts in its place later.  The folder is 0700 and goes away with the process, with all that
XProf writes beside profiles.

    {"folder": "RUN/plugins/profile/SESSION", "file": NAME}   with a descriptor: show it
    {"folder": "RUN/plugins/profile/SESSION"}                 without: show it no more

Each is answered by one byte: `+` it is done, `-` there is no descriptor left for it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

ANSWER_SECONDS: Final = 30.0
MOST_MESSAGE: Final = 1 << 16
DONE: Final = b"+"
NO_ROOM: Final = b"-"
File = TypeVar("File")


class Giver(Generic[File]):
    """The head's end.  `open_file`: a descriptor, or None if no viewer is given this file."""

    def __init__(self, ours: socket.socket, open_file: Callable[[File], int | None]) -> None:
        self._ours = ours
        self._ours.settimeout(ANSWER_SECONDS)
        self._open = open_file
        self._given: dict[str, dict[str, File]] = {}

    def show(self, wanted: Mapping[str, Mapping[str, File]]) -> int:
        """These files, by folder and name, and no others; how many had no room.

        Raises OSError when the viewer does not answer.
        """
        for folder in [f for f, files in self._given.items() if files.keys() - wanted.get(f, {})]:
            self._say({"folder": folder})
            del self._given[folder]
        left_out = 0
        for folder, files in wanted.items():
            for name, file in files.items():
                if self._given.get(folder, {}).get(name) == file:
                    continue
                if left_out or not self._show(folder, name, file):
                    left_out += 1
        return left_out

    def _show(self, folder: str, name: str, file: File) -> bool:
        fd = self._open(file)
        if fd is not None:
            try:
                if not self._say({"folder": folder, "file": name}, fd):
                    return False
            finally:
                os.close(fd)
        self._given.setdefault(folder, {})[name] = file
        return True

    def _say(self, message: Mapping[str, str], *fds: int) -> bool:
        socket.send_fds(self._ours, [json.dumps(message).encode()], fds)
        answer = self._ours.recv(1)
        if not answer:
            raise ConnectionResetError("the viewer has ended")
        return answer == DONE


class Taker:
    """The viewer's end, which fills `folder`."""

    def __init__(self, theirs: socket.socket, folder: Path) -> None:
        self._theirs = theirs
        self._folder = folder
        self._held: dict[str, dict[str, int]] = {}

    def follow(self) -> None:
        """Until the head is gone."""
        while (received := socket.recv_fds(self._theirs, MOST_MESSAGE, 1))[0]:
            text, fds, _, _ = received
            self._theirs.send(self._do(json.loads(text), fds))

    def _do(self, message: Mapping[str, Any], fds: list[int]) -> bytes:
        folder, name = message["folder"], message.get("file")
        if name is None:
            for fd in self._held.pop(folder, {}).values():
                os.close(fd)
            shutil.rmtree(self._folder / folder, ignore_errors=True)
            return DONE
        if not fds:
            return NO_ROOM
        os.set_inheritable(fds[0], False)
        held = self._held.setdefault(folder, {})
        old, held[name] = held.get(name), fds[0]
        path = self._folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(f"/proc/self/fd/{fds[0]}")
        if old is not None:
            os.close(old)
        return DONE
