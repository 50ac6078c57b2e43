from __future__ import annotations

import logging
import subprocess
import sys

from runwatch.logs import Sparing
from runwatch.testing import FakeClock


def said(filter: Sparing, words: str, *args: object, name: str = "x") -> str | None:
    record = logging.LogRecord(name, logging.ERROR, "", 0, words, args, None)
    return record.getMessage() if filter.filter(record) else None


def test_a_thousand_lines_of_a_kind_are_a_few() -> None:
    sparing = Sparing(burst=3, clock=FakeClock())
    lines = [said(sparing, "refused %s", i) for i in range(1000)]
    assert [line for line in lines if line] == ["refused 0", "refused 1", "refused 2"]
    assert said(sparing, "another") == "another"
    assert said(sparing, "refused %s", 1, name="y") == "refused 1"


def test_what_was_held_back_is_counted() -> None:
    time = FakeClock()
    sparing = Sparing(burst=3, clock=time)
    for i in range(10):
        said(sparing, "refused %s", i)
    time.advance(61)
    assert said(sparing, "refused %s", "%d") == "refused %d (and 7 more like this since)"
    assert said(sparing, "refused %s", 8) == "refused 8"


def test_kinds_without_end_take_no_memory_without_end() -> None:
    sparing = Sparing(clock=FakeClock())
    for i in range(5000):
        said(sparing, f"words {i}")
    assert len(sparing._said) <= 1000


def test_words_that_always_differ_are_bounded_by_their_logger() -> None:
    time = FakeClock()
    sparing = Sparing(most=10, clock=time)
    lines = [said(sparing, f"future: <Task {i}>") for i in range(1000)]
    assert [line for line in lines if line] == [f"future: <Task {i}>" for i in range(10)]
    assert said(sparing, "words", name="y") == "words"
    time.advance(61)
    assert said(sparing, "words") == "words (and 990 others since)"


def test_a_command_holds_back_as_well() -> None:
    script = (
        "import logging, sys\n"
        "from runwatch.cli.__main__ import main\n"
        "main(['config'])\n"
        "for i in range(100): logging.getLogger('x').warning('journal %s is \\x1b[2J', i)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [line for line in done.stderr.splitlines() if "journal" in line]
    assert len(lines) == 5 and not any("\x1b" in line for line in lines)
