"""The order in which a relay passes on what the command and its ranks write."""

from __future__ import annotations

import array
import fcntl
import os
import termios
import threading

import pytest

from runwatch.launcher.outlets import Outlet, outlet
from runwatch.launcher.relay import Relay
from runwatch.testing import until

SECONDS = 60.0


class BlockedRelay:
    """A relay that cannot go on until `read`, since its target is full."""

    def __init__(self, ranks: int = 0) -> None:
        self.shown, self.target = os.pipe()
        self._source, self.command = self._outlet()
        self.relay = Relay(self._source, _ignore, lambda _: os.close(self.target))
        self.relay.start()
        self.ranks = list[int]()
        for _ in range(ranks):
            assert self.request().wait(SECONDS)
        self.flood = b"x" * (fcntl.fcntl(self.target, fcntl.F_GETPIPE_SZ) + 1)
        os.write(self.command, self.flood)
        until(self._is_blocked, what="the target is full")

    def request(self) -> threading.Event:
        """Asks for an outlet for another rank."""
        source, rank = self._outlet()
        self.ranks.append(rank)
        return self.relay.request((source, _ignore))

    def read(self) -> bytes:
        """What is passed on after the flood until all writers have ended."""
        for each in (self.command, *self.ranks):
            os.close(each)
        with os.fdopen(self.shown, "rb") as shown:
            return shown.read().removeprefix(self.flood)

    def _outlet(self) -> tuple[Outlet, int]:
        made = outlet("both", (1, 2), self.target)
        inner, made.inner = made.inner, -1
        return made, inner

    def _is_blocked(self) -> bool:
        unread = [_unread_bytes(self._source.source), _unread_bytes(self.shown)]
        return unread == [0, len(self.flood) - 1]


def _ignore(_: bytes) -> None:
    pass


def _unread_bytes(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def test_output_of_ranks_comes_before_later_output_of_the_command() -> None:
    blocked = BlockedRelay(ranks=3)
    os.write(blocked.ranks[1], b"rank ")
    os.write(blocked.command, b"command")
    assert blocked.read() == b"rank command"


def test_output_of_a_rank_comes_after_earlier_output_of_all() -> None:
    blocked = BlockedRelay(ranks=1)
    os.write(blocked.ranks[0], b"rank ")
    os.write(blocked.command, b"command ")
    passed = blocked.request()
    os.write(blocked.ranks[1], b"newcomer")
    assert blocked.relay.is_behind
    assert not passed.is_set()
    assert blocked.read() == b"rank command newcomer"
    assert passed.is_set()


def test_a_rank_that_writes_without_end_keeps_nobody_out() -> None:
    """What is there is passed on, not what comes meanwhile."""
    blocked = BlockedRelay(ranks=1)
    os.write(blocked.command, b"command")
    writer = threading.Thread(target=_write_until_refused, args=(blocked.ranks[0],))
    writer.start()
    with os.fdopen(blocked.shown, "rb") as shown:
        seen = b""
        while b"command" not in seen:
            seen = seen[-10:] + shown.read1(1 << 20)
    writer.join(SECONDS)
    assert not writer.is_alive()
    os.close(blocked.command)


def test_who_waits_is_answered_when_the_reader_has_gone() -> None:
    blocked = BlockedRelay(ranks=1)
    passed = blocked.request()
    os.close(blocked.shown)
    assert passed.wait(SECONDS)
    assert blocked.request().wait(SECONDS)
    for each in (blocked.command, *blocked.ranks):
        _write_until_refused(each)


def test_settings_that_change_before_a_read_apply_to_what_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after curses: the program makes line ends usual again, and at once writes a line."""
    shown, target = os.openpty()
    made = outlet("both", (1, 2), target)
    inner, read = made.inner, os.read

    def set_line_ends(are_usual: bool) -> None:
        settings = termios.tcgetattr(inner)
        settings[1] = settings[1] | termios.ONLCR if are_usual else settings[1] & ~termios.ONLCR
        termios.tcsetattr(inner, termios.TCSANOW, settings)

    def read_late(number: int, size: int) -> bytes:
        data = read(number, size)
        if data == b"drawn":
            set_line_ends(True)
            os.write(inner, b"\nend\n")
            while b"end" not in data:
                data += read(number, size)
        return data

    monkeypatch.setattr("runwatch.launcher.relay.os.read", read_late)
    relay = Relay(made, _ignore, lambda _: os.close(target))
    set_line_ends(False)
    os.write(inner, b"drawn")
    relay.start()
    seen = b""
    while b"end" not in seen:
        seen += read(shown, 100)
    made.close_inner()
    relay.join(SECONDS)
    os.close(shown)
    assert seen == b"drawn\r\nend\r\n"


def _write_until_refused(number: int) -> None:
    with pytest.raises(BrokenPipeError):
        while True:
            os.write(number, b"y" * 4096)
    os.close(number)
