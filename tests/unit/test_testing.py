"""What users test with, and the page that shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runwatch.testing import FakeClock, until

PAGE = Path(__file__).parents[2] / "docs/testing.md"


def test_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    for number, block in enumerate(blocks):
        (tmp_path / f"test_example_{number}.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(1_000, 50)
    assert not clock.wait(9.0, lambda seconds: seconds > 0)
    assert (clock.wall_ns(), clock.mono_ns()) == (1_000, 50)
    clock.advance(1e-6)
    assert (clock.wall_ns(), clock.mono_ns(), clock.now_ns) == (2_000, 1_050, 2_000)
    clock.wall -= 500  # somebody sets it
    assert clock.mono_ns() == 1_050


def test_a_clock_that_jumps_is_there_at_once() -> None:
    clock = FakeClock(0, 0, jumps=True)
    assert clock.wait(2.0, lambda seconds: True)
    assert clock.mono_ns() == 2 * 10**9


def test_until_gives_the_value_or_says_what_did_not_come() -> None:
    numbers = iter((0, 0, 7))
    assert until(lambda: next(numbers)) == 7
    with pytest.raises(AssertionError, match=r"not within .* s: the moon"):
        until(lambda: False, 0.01, "the moon")
