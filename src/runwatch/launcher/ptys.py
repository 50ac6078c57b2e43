"""A pseudo terminal for the command's output, where ours is a terminal.

The command keeps the user's terminal as its standard input and as its controlling terminal: Ctrl-C,
Ctrl-Z, job control and what is typed ahead are between those two, and we are not involved.  Only
what it writes goes through a terminal of ours, which changes no byte; it has the size of the real
one.  Some programs (those made with curses) set how keys are read by way of their stdout: `Mirror`
passes such changes on.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from contextlib import suppress
from typing import Any, Final

_SIZE: Final = struct.Struct("4H")
_FLAGS: Final = 4
"""The first fields of a terminal's settings: input, output, control and local flags."""
_OUTPUT: Final = 1
_LOCAL: Final = 3
_KEYS: Final = 6


def like(terminal: int) -> tuple[int, int]:
    """A pair (our end, the command's end) like that terminal."""
    source, inner = os.openpty()
    with suppress(termios.error, OSError):
        settings: list[Any] = termios.tcgetattr(terminal)
        settings[_OUTPUT] &= ~termios.OPOST  # the real one does that
        termios.tcsetattr(inner, termios.TCSANOW, settings)
        resize(terminal, source)
    return source, inner


def resize(terminal: int, source: int) -> bool:
    """Gives ours the size of the real one; returns whether it had another."""
    try:
        wanted = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(_SIZE.size))
        if fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(_SIZE.size)) == wanted:
            return False
        fcntl.ioctl(source, termios.TIOCSWINSZ, wanted)
    except OSError:
        return False
    return True


class Mirror:
    """What the command changes in the settings of our terminal, it means for the real one."""

    def __init__(self, terminal: int, source: int) -> None:
        """Before the command has it: what it is now is compared with what it will be."""
        self._terminal, self._source = terminal, source
        self._last = self._first = self._settings(source)

    @property
    def is_changed(self) -> bool:
        return self._last != self._first

    @property
    def is_raw(self) -> bool:
        """Whether a program reads single keys."""
        return self._last is not None and not self._last[_LOCAL] & termios.ICANON

    def look(self) -> None:
        now = self._settings(self._source)
        before, self._last = self._last, now or self._last
        if before is None or now is None or now == before:
            return
        real = self._settings(self._terminal)
        if real is None:
            return
        for at in range(_FLAGS):
            changed = before[at] ^ now[at]
            real[at] = real[at] & ~changed | now[at] & changed
        real[_KEYS] = now[_KEYS]
        with suppress(termios.error, OSError):
            termios.tcsetattr(self._terminal, termios.TCSANOW, real)
            if now[_OUTPUT] & termios.OPOST:
                now[_OUTPUT] &= ~termios.OPOST  # the real one does that, still
                termios.tcsetattr(self._source, termios.TCSANOW, now)

    def _settings(self, number: int) -> list[Any] | None:
        try:
            return termios.tcgetattr(number)
        except (termios.error, OSError):
            return None
