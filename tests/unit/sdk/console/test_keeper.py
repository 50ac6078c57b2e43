"""Bytes in, records out: at once while they are few, within a budget, never waiting."""

from __future__ import annotations

import threading
from itertools import chain

from runwatch.record import Event
from runwatch.record.console import Console
from runwatch.record.door import event_problem
from runwatch.sdk.console.budget import Limits
from runwatch.sdk.console.keeper import BUNDLE_BYTES, LineKeeper
from runwatch.sdk.values.masking import MASK, LineMask
from runwatch.testing import FakeClock


class Desk:
    """A keeper, and what it told."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008
        self.clock = FakeClock()
        self.told: list[tuple[Console, int]] = []
        self.keeper = LineKeeper(self.tell, self.clock, limits=limits)

    def tell(self, console: Console, at_ns: int) -> None:
        self.told.append((console, at_ns))

    @property
    def lines(self) -> list[str]:
        return list(chain.from_iterable(console.lines for console, _ in self.told))

    @property
    def left_out_lines(self) -> int:
        return sum(console.left_out_lines for console, _ in self.told)

    @property
    def left_out_bytes(self) -> int:
        return sum(console.left_out_bytes for console, _ in self.told)


def test_a_line_is_told_at_once_with_its_stream_and_time() -> None:
    desk = Desk()
    desk.keeper.feed("err", b"a line\nand half")
    assert desk.told == [(Console("err", ("a line",), (0,)), desk.clock.mono)]
    desk.keeper.close()
    assert desk.lines == ["a line", "and half"]
    desk.keeper.close()
    assert len(desk.told) == 2, "closing again does nothing"


def test_many_lines_are_bundled_and_keep_their_times() -> None:
    desk = Desk()
    for _ in range(500):
        desk.keeper.feed("out", b"line\n")
        desk.clock.advance(0.004)
    desk.keeper.close()
    assert len(desk.lines) == 500 and len(desk.told) < 150
    spread = desk.told[-1][0].after_ms
    assert list(spread) == sorted(spread) and spread[-1] >= 4
    assert not desk.left_out_lines


def test_streams_are_told_apart() -> None:
    desk = Desk()
    desk.keeper.feed("out", b"half ")
    desk.keeper.feed("err", b"whole\n")
    desk.keeper.feed("out", b"line\n")
    assert [(c.stream, c.lines) for c, _ in desk.told] == [
        ("err", ("whole",)),
        ("out", ("half line",)),
    ]


def test_the_first_and_the_last_lines_of_a_flood_are_kept_and_the_rest_is_counted() -> None:
    desk = Desk()
    total = 200_000
    for number in range(0, total, 1000):
        desk.keeper.feed("out", b"".join(b"line %d\n" % n for n in range(number, number + 1000)))
    desk.keeper.close()
    assert desk.lines[:2000] == [f"line {n}" for n in range(2000)]
    last = desk.lines[2000:]
    assert 5_000 < len(last) < 20_000
    assert last == [f"line {n}" for n in range(total - len(last), total)]
    assert len(desk.lines) + desk.left_out_lines == total
    gap = next(console for console, _ in desk.told if console.left_out_lines)
    assert gap.lines[0] == last[0], "it is told with the first line after the gap"


def test_a_flood_that_lasts_is_told_in_readable_stretches() -> None:
    desk = Desk()
    number = 0
    for _ in range(60):
        for _ in range(50):
            desk.keeper.feed("out", b"".join(b"line %d\n" % n for n in range(number, number + 500)))
            number += 500
            desk.clock.advance(0.02)
        desk.keeper.tick()
    desk.keeper.close()
    assert 2_000 + 59 * 200 <= len(desk.lines) < 2_000 + 61 * 200 + 20_000
    assert len(desk.lines) + desk.left_out_lines == number
    numbers = [int(line.split()[1]) for line in desk.lines]
    breaks = sum(1 for a, b in zip(numbers, numbers[1:], strict=False) if b != a + 1)
    assert breaks <= 61
    assert numbers == sorted(numbers)


def test_after_the_first_megabytes_only_some_lines_a_day_are_kept() -> None:
    desk = Desk(Limits(bytes=10_000, bytes_per_second=100.0))
    for number in range(7_200):
        desk.keeper.feed("out", b"%05d %s\n" % (number, b"x" * 94))
        desk.clock.advance(1.0)
        desk.keeper.tick()
    desk.keeper.feed("err", b"the last word")
    desk.keeper.close()
    size = sum(len(line) for line in desk.lines)
    assert size < 10_000 + 7_200 * 100 + (128 << 10) + 10_000
    assert len(desk.lines) + desk.left_out_lines == 7_201
    assert desk.lines[0].startswith("00000") and desk.lines[-1] == "the last word"


def test_no_two_records_of_a_stream_have_one_time() -> None:
    desk = Desk()
    desk.keeper.feed("out", b"".join(b"line %d\n" % n for n in range(1_900)))
    desk.keeper.feed("out", b"more\n")
    times = [at_ns for _, at_ns in desk.told]
    assert len(times) > 3 and times == sorted(set(times))


def test_half_a_line_is_not_glued_to_another_after_a_gap() -> None:
    desk = Desk(Limits(lines=1, lines_per_second=0, held_bytes=20))
    desk.keeper.feed("out", b"one\nhalf of a ")
    desk.keeper.feed("out", b"line that is left out\nlast line\n")
    desk.keeper.close()
    assert desk.lines[0] == "one"
    assert desk.lines[-1] == "last line"
    assert not any("half" in line and "last" in line for line in desk.lines)


def test_megabytes_without_a_newline_are_one_line() -> None:
    desk = Desk()
    for _ in range(100):
        desk.keeper.feed("out", b"\0x" * 500_000)
    desk.keeper.close()
    (line,) = desk.lines
    assert line.startswith("xxxx") and line.endswith("bytes more)")
    assert desk.left_out_bytes == 100_000_000 - (8 << 10)


def test_records_pass_the_door_and_fit_into_the_store() -> None:
    desk = Desk()
    wide = "é" * 100 + "\x1b[1m\ud83d"
    for number in range(3_000):
        desk.keeper.feed("both", f"{number} {wide}\n".encode("utf-8", "surrogatepass"))
    desk.keeper.feed("both", bytes(range(256)) * 100)
    desk.keeper.close()
    for console, at_ns in desk.told:
        assert event_problem(Event(at_ns, Console.KIND, console.body())) == ""
        assert sum(map(len, console.lines)) < BUNDLE_BYTES + (9 << 10)


def test_what_a_signal_handler_writes_meanwhile_is_not_lost() -> None:
    """The handler finds the keeper at work in its own thread: it must not wait."""
    desk = Desk()
    inner = desk.keeper

    def tell(console: Console, at_ns: int) -> None:
        desk.tell(console, at_ns)
        if console.lines == ("outer",):
            inner.feed("out", b"inner\n")

    inner._tell = tell
    inner.feed("out", b"outer\n")
    assert desk.lines == ["outer", "inner"]


def test_the_last_lines_are_told_though_another_thread_is_at_work() -> None:
    desk, begun, go = Desk(), threading.Event(), threading.Event()

    def slowly(console: Console, at_ns: int) -> None:
        desk.tell(console, at_ns)
        if console.lines == ("first",):
            begun.set()
            go.wait(100)

    desk.keeper._tell = slowly
    thread = threading.Thread(target=desk.keeper.feed, args=("out", b"first\n"))
    thread.start()
    begun.wait(100)
    desk.keeper.feed("out", b"last")
    desk.keeper.close()
    assert desk.lines == ["first", "last"], "it waited a moment, and went on"
    go.set()
    thread.join()


def test_an_interruption_does_not_silence_it() -> None:
    desk = Desk()
    desk.keeper._busy.acquire()  # as if a KeyboardInterrupt had come just then
    desk.keeper.feed("out", b"last words\n")
    assert desk.lines == []
    desk.keeper.close()
    desk.keeper.feed("out", b"and more\n")
    assert desk.lines == ["last words", "and more"]


def test_threads_lose_nothing() -> None:
    desk = Desk(Limits(lines=10**6, bytes=10**9, events=10**6))

    def write(name: int) -> None:
        for number in range(2_000):
            desk.keeper.feed("out", b"%d-%d\n" % (name, number))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    desk.keeper.close()
    assert sorted(desk.lines) == sorted(f"{a}-{b}" for a in range(4) for b in range(2_000))


def test_a_forked_child_tells_only_its_own() -> None:
    desk = Desk(Limits(events=0, events_per_second=0))
    desk.keeper.feed("out", b"the parent's\nhalf")
    desk.keeper._busy.acquire()  # as if another thread of the parent had been at work
    desk.keeper.forget()
    desk.keeper.feed("out", b"the child's\n")
    desk.keeper.close()
    assert desk.lines == ["the child's"]


def test_secrets_are_masked() -> None:
    mask = LineMask({"MY_API_KEY": "correct-horse", "LANG": "correct-horse-battery"})
    assert mask("got correct-horse here") == f"got {MASK} here"
    assert mask("password=hunter2 lr=0.1") == f"password={MASK} lr=0.1"
    key = [
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1r",
        "ZXktdjE",
        "-----END OPENSSH PRIVATE KEY-----",
    ]
    assert [mask(line) for line in [*key, "epoch 1"]] == [MASK, MASK, MASK, MASK, "epoch 1"]


def test_what_is_no_secret_is_kept() -> None:
    mask = LineMask(
        {"WANDB_API_KEY": "short", "GIT_PASSWORD_FILE": "/run/secrets/git", "X_TOKEN": "12345678",
         "RUN_ID": "0a1b2c3d4e5f", "PASSWORD_STORE_DIR": "/home/me/store"}
    )  # fmt: skip
    for line in (
        "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        "run 7f9c2ba4-e88f-41d3-9f0b-1d2e3f4a5b6c is short",
        "12345678 tokens/s, 4096 max_tokens=4096",
        "reading /run/secrets/git and /home/me/store",
        "PRIVATE KEY handling is off",
        "a line", "run_id=0a1b2c3d4e5f", "sha256:e3b0c44298fc1c149afbf4c8996fb924",
    ):  # fmt: skip
        assert mask(line) == line
