"""Keys for a pager: it reads them from the terminal that it writes to, and that one is ours.

The command's standard input is the user's own terminal, so most programs get their keys without us.
A pager's standard input is the text: it looks up the name of the terminal behind its stderr, opens
that for reading, and takes it out of the line mode.  As long as both is so, keys go there.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

_NUMBER_OF_PTY: Final = 0x80045430  # TIOCGPTN
MOST_LOOKS: Final = 5
_KEYBOARD: Final = "/dev/tty"


class Keys:
    def __init__(self, source: int) -> None:
        self._source = source
        self.number = -1
        """The user's keyboard while we read it; -1 while we do not."""
        self._looks = 0

    def look(self, is_raw: bool, waiting: select.poll) -> None:
        """`is_raw`: a program has taken our terminal out of the line mode."""
        wanted = is_raw and (self.number >= 0 or self._is_read())
        if not is_raw:
            self._looks = 0
        if wanted and self.number < 0:
            with suppress(OSError):  # there is no keyboard
                self.number = os.open(_KEYBOARD, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
                waiting.register(self.number, select.POLLIN)
        elif not wanted and self.number >= 0:
            waiting.unregister(self.number)
            os.close(self.number)
            self.number = -1

    def _is_read(self) -> bool:
        """Whoever wants single keys and is no pager would cost us a look for ever."""
        self._looks += 1
        return self._looks <= MOST_LOOKS and is_read(self._source)

    def pass_on(self) -> None:
        with suppress(OSError):  # we are not in front now, or nobody reads any more
            os.write(self._source, os.read(self.number, 4096))


def is_read(source: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process has opened the other end for reading only, as no copy of a stdout is."""
    try:
        (number,) = struct.unpack("I", fcntl.ioctl(source, _NUMBER_OF_PTY, bytes(4)))
    except OSError:
        return False
    name = f"/dev/pts/{number}"
    return any(_reads(folder, name) for folder in proc.iterdir() if folder.name.isdigit())


def _reads(process: Path, name: str) -> bool:
    with suppress(OSError):  # it is another user's, or has just ended
        for each in os.listdir(process / "fd"):
            if int(each) > 2 and os.readlink(process / "fd" / each) == name:
                about = (process / "fdinfo" / each).read_text()
                flags = next(line for line in about.splitlines() if line.startswith("flags:"))
                if int(flags.split()[1], 8) & os.O_ACCMODE == os.O_RDONLY:
                    return True
    return False
