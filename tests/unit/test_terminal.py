"""What others recorded reaches a terminal as text and nothing else."""

from __future__ import annotations

import io
import logging
import unicodedata

import pytest
from rich.text import Text

from runwatch.cli.pictures.plain import Plain
from runwatch.cli.pictures.tables import console as tables_console
from runwatch.cli.pictures.tables import table
from runwatch.terminal import Formatter, shown, shown_all

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31mred\x7f\r\x08\u202eback\u2066"


def obeyed(text: str) -> list[str]:
    kinds = ("Cc", "Cf")
    return [c for c in text if unicodedata.category(c) in kinds and c not in "\n\t"]


def test_no_control_character_is_left_and_no_word_is_lost() -> None:
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) == "Cc":
            assert not obeyed(shown(chr(code))), hex(code)
    assert obeyed(shown(EVIL)) == []
    assert all(word in shown(EVIL) for word in ("owned", "red", "back"))
    assert shown("a\tb\nc äöü 漢字 🙂") == "a\tb\nc äöü 漢字 🙂"
    assert shown_all({EVIL: [EVIL, 1, None, {"x": (EVIL,)}]}) == {
        shown(EVIL): [shown(EVIL), 1, None, {"x": [shown(EVIL)]}]
    }


def test_a_table_is_coloured_by_us_alone() -> None:
    out = io.StringIO()
    made = table("name")
    made.add_row(Text(EVIL, style="red"))
    console = Plain(file=out, force_terminal=True, width=100)
    console.print(made)
    console.print(f"{EVIL}: why", markup=False, highlight=False)
    text = out.getvalue()
    assert "\x1b[31m" in text  # ours
    assert "\x07" not in text and "\x1b]0" not in text and "\x1b[2J" not in text


def test_a_log_line_is_shown() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "journal %s", (EVIL,), None)
    assert obeyed(Formatter("%(message)s").format(record)) == []


def test_recorded_texts_are_no_styles_and_no_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    """`KeyError: '[/INST]'` made `runwatch runs` fail, and `[red]` was not seen."""
    text = "KeyError: '[/INST]' [red]x[/] :smile:"
    shown = table("why")
    shown.add_row(text)
    tables_console().print(text)
    tables_console().print(shown)
    assert capsys.readouterr().out.count(text) == 2
