"""A segment's file: whoever is cut short while it is made leaves nothing open."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from runwatch.journal.segment import Header
from runwatch.journal.segment_file import SegmentFile
from tests.unit.leftovers import open_files

HEADER = Header(0, 1 << 16, 0, 1, 1)
OURS = ("segment_file.py", "descriptor.py")


@pytest.fixture(autouse=True)
def little_to_collect() -> Iterator[None]:
    """Other tests have loaded whole frameworks: to look through them takes a tenth of a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def interrupted_at(place: int, call: Callable[[], object]) -> bool:
    """Whether the call was interrupted where a signal handler's exception may come for the nth
    time: when a function of ours begins, or one in C has returned."""
    seen = 0

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        if event in ("call", "c_return") and frame.f_code.co_filename.endswith(OURS):
            seen += 1
            if seen == place:
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


@pytest.mark.parametrize("mapped", [True, False])
def test_an_interrupt_while_it_is_made_leaves_nothing_open(mapped: bool, tmp_path: Path) -> None:
    made: list[SegmentFile] = []

    def make_one() -> None:
        made.append(SegmentFile(tmp_path / "00000000.seg", HEADER, mapped=mapped))
        made[0].close()

    place = 1
    while interrupted_at(place, make_one):
        made.clear()
        gc.collect()
        assert open_files(tmp_path) == [], f"interrupted at place {place}"
        place += 1
    assert place > 10


def test_an_interrupt_while_it_is_opened_again_leaves_nothing_open(tmp_path: Path) -> None:
    """The program has closed its descriptor."""
    made: list[SegmentFile] = []

    def go_on() -> None:
        os.close(made[0]._file.fd)
        assert made[0].holds(HEADER.length)
        made[0].close()

    place = 0
    interrupted = True
    while interrupted:
        place += 1
        made[:] = [SegmentFile(tmp_path / "00000000.seg", HEADER, mapped=False)]
        interrupted = interrupted_at(place, go_on)
        made.clear()
        gc.collect()
        assert open_files(tmp_path) == [], f"interrupted at place {place}"
    assert place > 5
