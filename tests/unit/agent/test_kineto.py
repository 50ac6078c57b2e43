"""The daemon that PyTorch's profiler asks, spoken to as libkineto speaks."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.agent.errands import kineto
from runwatch.agent.errands.kineto import SETTLE_NS, STALE_NS, TICK_NS, KinetoDaemon, KinetoRequest
from runwatch.clock import system_clock
from runwatch.testing import until


class Program:
    """A process that asks, as far as the daemon can tell."""

    def __init__(self, folder: Path) -> None:
        self._daemon = str(folder / "dynolog")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "client"))
        self.socket.settimeout(100)

    def say(self, kind: bytes, body: bytes) -> None:
        self.socket.sendto(struct.pack("<Q32s", len(body), kind) + body, self._daemon)

    def ask(self, kinds: int = 3, pids: tuple[int, ...] = (7, 1)) -> str:
        self.say(b"req", struct.pack(f"<iiq{len(pids)}i", kinds, len(pids), 0, *pids))
        return self.heard(b"req").decode()

    def heard(self, kind: bytes) -> bytes:
        data = self.socket.recv(4096)
        size, said = struct.unpack_from("<Q32s", data)
        assert said.rstrip(b"\0") == kind and size == len(data) - 40
        return data[40:]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KinetoDaemon]:
    monkeypatch.setattr(kineto, "STALE_NS", 60 * 10**9)  # it may come late on a busy machine
    made = KinetoDaemon(folder=tmp_path)
    made.start()
    yield made
    made.stop()
    assert not (tmp_path / "dynolog").exists()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.socket.close()


def test_the_name_that_libkineto_knows() -> None:
    assert KinetoDaemon(folder=Path("/somewhere")).address == "/somewhere/dynolog"
    assert KinetoDaemon().address in (
        "\0dynolog\0",
        f"{os.environ.get('KINETO_IPC_SOCKET_DIR')}/dynolog",
    )


def test_an_order_is_given_once(daemon: KinetoDaemon, program: Program) -> None:
    assert program.ask() == ""
    (client,) = daemon.clients()
    assert (client.pid, client.own_pid, client.user) == (os.getpid(), 7, os.getuid())
    assert daemon.client([1, 2]) is None and daemon.client([1, os.getpid()]) == client
    start_ns = system_clock.wall_ns() + 60 * 10**9
    order = KinetoRequest("/tmp/x/trace.json", start_ns, 500)
    assert daemon.offer(client.pid, order)
    assert not daemon.offer(client.pid, KinetoRequest("/tmp/y.json"))
    said = dict(line.split("=") for line in program.ask().splitlines())
    assert said.pop("ACTIVITIES_LOG_FILE") == "/tmp/x/trace.json"
    assert said.pop("ACTIVITIES_WARMUP_PERIOD_SECS") == "1"
    begin, length = int(said.pop("PROFILE_START_TIME")), int(said.pop("ACTIVITIES_DURATION_MSECS"))
    asked_ms = start_ns / 1e6
    assert asked_ms - 1001 < begin <= asked_ms + 1 and said == {}
    assert begin + length == pytest.approx(asked_ms + 500, abs=1.1)
    assert order.taken.is_set() and order.written_file == "/tmp/x/trace_7.json"
    assert program.ask() == ""


def test_who_asks_too_late_begins_later(daemon: KinetoDaemon, program: Program) -> None:
    program.ask()
    order = KinetoRequest("/t.json", start_ns=1, duration_ms=5)
    daemon.offer(os.getpid(), order)
    before_ns = system_clock.wall_ns()
    text = program.ask()
    assert order.start_ns > before_ns + SETTLE_NS - TICK_NS
    assert f"PROFILE_START_TIME={round(order.start_ns / 1e6)}" in text


def test_the_start_lies_well_between_two_looks_of_the_program() -> None:
    """It begins to warm up at a look that is 1 to 2 s before the start: here, always 1.5 s."""
    for tick_ns in range(0, 3 * TICK_NS, 70_000_000):
        order = KinetoRequest("/t.json", 100 * TICK_NS, 500)
        order.text(90 * TICK_NS, tick_ns)
        assert (order.start_ns - tick_ns) % TICK_NS == pytest.approx(TICK_NS // 2, abs=1_000_000)
        assert 99 * TICK_NS < order.start_ns <= 100 * TICK_NS
        assert order.end_ns == 100 * TICK_NS + 500_000_000


def test_steps(daemon: KinetoDaemon, program: Program) -> None:
    program.ask()
    daemon.offer(os.getpid(), KinetoRequest("/t.json", steps=3))
    said = program.ask()
    assert "PROFILE_START_ITERATION_ROUNDUP=1\n" in said and "ACTIVITIES_ITERATIONS=3\n" in said
    daemon.offer(os.getpid(), KinetoRequest("/t.json", steps=3, at_step=50))
    assert "PROFILE_START_ITERATION=50\n" in program.ask()


def test_a_program_that_is_profiled_gets_no_order(daemon: KinetoDaemon, program: Program) -> None:
    program.ask(kinds=1)
    (client,) = daemon.clients()
    assert not client.free
    order = KinetoRequest("/t.json")
    daemon.offer(client.pid, order)
    assert program.ask(kinds=1) == ""
    daemon.withdraw(client.pid, order)
    assert program.ask() == ""
    daemon.has_ended(client.pid)
    assert [each.free for each in daemon.clients()] == [True]


def test_it_takes_its_file_along_however_busy_it_was(
    daemon: KinetoDaemon, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread notices by itself that it is to stop, before the one that stops it goes on."""
    thread = daemon._thread
    assert thread is not None
    busy, tell = threading.Event(), daemon._stop.set

    def answer(*_: object) -> None:
        busy.set()
        daemon._stop.wait(100)

    def set_and_wait() -> None:
        tell()
        thread.join(100)

    monkeypatch.setattr(daemon, "_answer", answer)
    monkeypatch.setattr(daemon._stop, "set", set_and_wait)
    program.say(b"req", b"")
    assert busy.wait(100)
    daemon.stop()
    assert not thread.is_alive() and not (daemon._folder or Path()).joinpath("dynolog").exists()


def test_gpus_are_counted(daemon: KinetoDaemon, program: Program) -> None:
    for _ in range(2):
        program.say(b"ctxt", struct.pack("<iiq", 3, 7, 0))
        assert struct.unpack("<i", program.heard(b"ctxt")) == (1,)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"\xff" * 39,
        struct.pack("<Q32s", 1 << 60, b"req"),
        struct.pack("<Q32sii", 8, b"req", 3, 1),
        struct.pack("<Q32siiq", 16, b"nonsense", 3, 0, 0),
    ],
)
def test_what_is_no_question_is_not_answered(
    daemon: KinetoDaemon, program: Program, tmp_path: Path, data: bytes
) -> None:
    program.socket.sendto(data, str(tmp_path / "dynolog"))
    assert program.ask() == ""
    # More processes than the message has room for, and fewer than none.
    for count in (10**9, -5):
        program.say(b"req", struct.pack("<iiqi", 3, count, 0, 9))
        assert program.heard(b"req") == b""


def test_a_question_that_waited_too_long_is_not_answered(tmp_path: Path) -> None:
    """Its program has given up: it would take the answer for that to its next question."""
    daemon = KinetoDaemon(folder=tmp_path)
    sent_ns = time.time_ns() - 2 * STALE_NS
    order = KinetoRequest("/t.json")
    daemon.offer(os.getpid(), order)
    known = {
        socket.SCM_CREDENTIALS: struct.pack("3i", os.getpid(), 0, 0),
        35: struct.pack("qq", *divmod(sent_ns, 10**9)),
    }
    question = struct.pack("<Q32siiqi", 20, b"req", 3, 1, 0, 7)
    assert daemon._answer(question, known) is None
    assert not order.taken.is_set() and [each.own_pid for each in daemon.clients()] == [7]


def test_another_daemon_is_left_alone(
    daemon: KinetoDaemon, program: Program, tmp_path: Path
) -> None:
    second = KinetoDaemon(folder=tmp_path)
    second.start()
    assert "another daemon" in second.problem
    second.stop()
    assert daemon.problem == "" and program.ask() == ""


def test_a_file_that_nobody_serves_is_taken(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind(str(tmp_path / "dynolog"))
    daemon = KinetoDaemon(folder=tmp_path)
    daemon.start()
    try:
        until(lambda: daemon.problem == "")
    finally:
        daemon.stop()


def test_a_socket_that_failed_is_made_again(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(kineto, "STALE_NS", 60 * 10**9)
    serve = KinetoDaemon._serve
    failed: list[socket.socket] = []

    def fail_once(daemon: KinetoDaemon, listening: socket.socket) -> None:
        if failed:
            serve(daemon, listening)
        failed.append(listening)

    monkeypatch.setattr(KinetoDaemon, "_serve", fail_once)
    daemon = KinetoDaemon(folder=tmp_path)
    daemon.start()
    try:
        until(lambda: failed and daemon._socket not in (None, failed[0]))
        assert program.ask() == ""
    finally:
        daemon.stop()
    assert len(failed) == 2


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    daemon = KinetoDaemon(folder=tmp_path / "none")
    daemon.start()
    assert "No such file" in daemon.problem and daemon.clients() == ()
    daemon.stop()
