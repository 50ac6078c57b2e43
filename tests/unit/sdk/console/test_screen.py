"""Bytes of a stream become the lines that a reader would see."""

from __future__ import annotations

import random

import pytest

from runwatch.sdk.console.screen import PAUSE_NS, Screen, cleaned


def told(*pieces: bytes) -> list[str]:
    screen = Screen()
    lines = [line for piece in pieces for line in screen.write(piece, 1)]
    return [cleaned(line) for line in lines + screen.end()]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ((b"one\ntwo\n",), ["one", "two"]),
        ((b"o", b"ne\nt", b"wo"), ["one", "two"]),
        ((b"one\r\ntwo\r\n",), ["one", "two"]),
        (
            (
                b"one\r",
                b"\ntwo",
            ),
            ["one", "two"],
        ),
        ((b"\n\n",), ["", ""]),
        ((b"\r 10%", b"\r 20%", b"\r100%\ndone\n"), ["100%", "done"]),
        ((b" 10%\r", b" 20%\r", b"100%\r", b"done\n"), ["done"]),
        ((b" 10%\r 20%\r 30%\n",), [" 30%"]),
        ((b"\r 50%", b"\r      \r", b"hello\n"), ["hello"]),
        ((b"\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\n",), ["red link"]),
        ((b"a\tb\x07\x00c\n",), ["a\tbc"]),
        ((b"caf\xc3\xa9 \xff\xfe\n",), ["café \ufffd\ufffd"]),
        ((b"caf\xc3", b"\xa9\n"), ["café"]),
        ((b"\x1b[3", b"2mgreen\x1b[0m\n"), ["green"]),
    ],
)
def test_lines(pieces: tuple[bytes, ...], lines: list[str]) -> None:
    assert told(*pieces) == lines


def test_a_long_line_is_cut_with_a_count() -> None:
    assert [cleaned(line) for line in Screen(10).write(b"x" * 25 + b"\ny\n", 1)] == [
        "xxxxxxxxxx … (15 bytes more)",
        "y",
    ]
    pieced = Screen(10)
    for _ in range(5):
        assert pieced.write(b"x" * 5, 1) == []
    assert [cleaned(line) for line in pieced.write(b"\n", 1)] == ["xxxxxxxxxx … (15 bytes more)"]
    assert pieced.cut_bytes == 15


def test_what_waits_for_its_end_is_told_now_and_then() -> None:
    screen, now = Screen(), 1
    assert screen.write(b"loading", now) == []
    assert screen.due(now) == []
    assert screen.due(now + PAUSE_NS) == [b"loading"]
    assert screen.due(now + 2 * PAUSE_NS) == [], "once"
    for percent in range(30):
        now += PAUSE_NS // 10
        screen.write(b"\r%d%%" % percent, now)
    assert screen.due(now + PAUSE_NS) == [b"29%"]
    assert screen.write(b" done\n", now) == [b"29% done"]


def test_nested_bars_are_a_line_each() -> None:
    """As tqdm writes them: a newline, the inner bar, and back up."""
    screen, now, lines = Screen(), 1, list[bytes]()
    for outer in range(3):
        lines += screen.write(b"\router %d/3" % outer, now)
        for inner in range(100):
            lines += screen.write(b"\n\rinner %d/100\x1b[A" % inner, now)
            now += PAUSE_NS // 100
            lines += screen.due(now)
    lines += screen.end()
    words = [line.decode() for line in lines]
    assert len(words) < 12
    assert words[-2:] == ["outer 2/3", "inner 99/100"]


def test_plain_lines_between_bars_are_kept() -> None:
    screen = Screen()
    lines = screen.write(b"\router\n\rinner\x1b[A", 1)
    for number in range(200):
        lines += screen.write(b"\r     \rnote %d\n\router\n\rinner\x1b[A" % number, 2)
    lines += screen.end()
    assert [line for line in lines if line.startswith(b"note")] == [
        b"note %d" % number for number in range(200)
    ]


def test_bars_end_and_lines_are_told_at_once_again() -> None:
    screen = Screen()
    screen.write(b"\ra\n\rb\x1b[A", 1)
    assert screen.due(1 + 2 * PAUSE_NS) == [b"a", b"b"]
    assert screen.write(b"\n\nplain\n", 1 + 2 * PAUSE_NS)[-1] == b"plain"


def test_lines_do_not_depend_on_how_bytes_are_cut() -> None:
    draw = random.Random(7)
    text = b"".join(
        draw.choice((b"word ", b"\n", b"\r\n", "é".encode(), b"\x1b[1m", b"12%\r", b"\r13%"))
        for _ in range(3000)
    )
    whole = told(text)
    for _ in range(20):
        cuts = sorted(draw.sample(range(len(text)), 50))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert told(*pieces) == whole
