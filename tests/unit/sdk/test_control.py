from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.errands.control import NoAnswer, ask
from runwatch.journal.control import SOCKET, socket_of
from runwatch.sdk.control import MAX_QUESTION, Control
from runwatch.testing import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    deep = tmp_path / ("long-" * 30)  # a path that no socket could have
    deep.mkdir()
    return deep


@pytest.fixture
def control(folder: Path) -> Iterator[Control]:
    served = Control(folder)
    served.start()
    yield served
    served.stop()


def test_a_question_is_answered(control: Control, folder: Path) -> None:
    control.serve("double", lambda body: {"twice": body["number"] * 2})
    assert ask(folder, "double", {"number": 21}, 20) == {"twice": 42}
    assert ask(folder, "ping", {}, 20) == {"pid": os.getpid()}


def test_what_it_does_not_know_is_said(control: Control, folder: Path) -> None:
    with pytest.raises(NoAnswer, match="'fly'"):
        ask(folder, "fly", {}, 20)


def test_a_handler_that_fails_is_an_answer_and_the_next_question_is_heard(
    control: Control, folder: Path
) -> None:
    control.serve("break", lambda body: {"never": body["missing"]})
    with pytest.raises(NoAnswer, match="break failed"):
        ask(folder, "break", {}, 20)
    assert ask(folder, "ping", {}, 20)["pid"] == os.getpid()


def test_nonsense_is_ignored(control: Control, folder: Path) -> None:
    for question in (b"\x00\xff\n", b"[]\n", b"{", b"x" * MAX_QUESTION):
        with socket.socket(socket.AF_UNIX) as line, socket_of(folder) as address:
            line.connect(address)
            line.sendall(question)
            line.shutdown(socket.SHUT_WR)
            line.settimeout(100)
            with contextlib.suppress(ConnectionResetError):  # it did not read to the end
                assert line.recv(100) == b""
    assert ask(folder, "ping", {}, 20)["pid"] == os.getpid()


def test_a_process_that_does_not_answer_is_given_up(control: Control, folder: Path) -> None:
    go_on = threading.Event()

    def stuck(body: Mapping[str, Any]) -> Mapping[str, Any]:
        go_on.wait(100)
        return {}

    control.serve("stick", stuck)
    with pytest.raises(NoAnswer, match=r"within 0\.2 s"):
        ask(folder, "stick", {}, 0.2)
    go_on.set()
    assert ask(folder, "ping", {}, 20)["pid"] == os.getpid()


def test_after_the_end_nobody_is_there(folder: Path) -> None:
    control = Control(folder)
    with pytest.raises(NoAnswer, match="serves no control socket"):
        ask(folder, "ping", {}, 1)
    control.start()
    control.stop()
    assert not (folder / SOCKET).exists()
    with pytest.raises(NoAnswer, match="serves no control socket"):
        ask(folder, "ping", {}, 1)
    with pytest.raises(NoAnswer, match="No such file|serves no"):
        ask(folder / "gone", "ping", {}, 1)


def test_a_forked_child_lets_go_of_the_socket(control: Control, folder: Path) -> None:
    ready, leave = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:  # the child stays until told; it must not keep the socket
        os.write(ready[1], b"1")
        os.read(leave[0], 1)
        os._exit(0)
    try:
        assert os.read(ready[0], 1) == b"1"
        with socket_of(folder) as address:
            control.stop()
            with socket.socket(socket.AF_UNIX) as line, pytest.raises(OSError):
                line.connect(address)
    finally:
        os.write(leave[1], b"1")
        os.waitpid(pid, 0)
        for fd in (*ready, *leave):
            os.close(fd)


def test_a_place_without_sockets_is_counted_and_costs_nothing(tmp_path: Path) -> None:
    control = Control(tmp_path / "absent")
    control.start()
    control.stop()
    until(lambda: not [t for t in threading.enumerate() if t.name == "runwatch-control"])
