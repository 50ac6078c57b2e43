"""`runwatch status` in a terminal: a line for each fact, and below it what needs attention.

It does not use the table library: importing that would take a third of the command's time.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from runwatch._version import __version__
from runwatch.cli.pictures.paint import Paint, is_coloured
from runwatch.cli.status.types import Section
from runwatch.terminal import shown

TITLES: Final = {
    "head": "head", "agent": "agent", "waiting": "to send", "disk": "disk", "dropins": "drop-ins",
    "release": "release", "webhook": "webhook", "operator": "operator", "nodes": "nodes",
    "pods": "pods",
}  # fmt: skip
_INDENT: Final = 13
"""The column where sentences begin, after mark, title and sign."""
_NARROWEST: Final = 40
_BOLD, _GREEN, _YELLOW, _CYAN = "1", "32", "33", "36"


def picture(
    whose: str, sections: Sequence[Section], *, width: int = 0, coloured: bool | None = None
) -> str:
    width = max(width or shutil.get_terminal_size().columns, _NARROWEST)
    paint = Paint(is_coloured(sys.stdout) if coloured is None else coloured)
    lines = [*_wrapped(f"Runwatch {__version__} {whose}", width), ""]
    lines[0] = lines[0].replace(f"Runwatch {__version__}", paint(f"Runwatch {__version__}", _BOLD))
    for section in sections:
        lines += _rows(section, width, paint)
    wrong = sum(len(section.problems) for section in sections)
    needs = f"{wrong} {'thing needs' if wrong == 1 else 'things need'} attention."
    unread = [TITLES[section.name] for section in sections if section.is_unread]
    last = paint(needs, _BOLD, _YELLOW) if wrong else paint("All is well.", _GREEN)
    if unread:
        last = f"{needs} " if wrong else ""
        last = paint(f"{last}Not all could be looked at: {', '.join(unread)}.", _BOLD, _YELLOW)
    return "\n".join([*lines, "", last])


def _rows(section: Section, width: int, paint: Paint) -> Iterator[str]:
    mark = paint("?", _BOLD, _YELLOW) if section.is_unread else paint("✔", _GREEN)
    if section.problems:
        mark = paint("▲", _BOLD, _YELLOW)
    title = TITLES[section.name]
    begin = f"{mark} {paint(title, _BOLD)}{' ' * (9 - len(title))}"
    for sign, colour, words in _sentences(section):
        for line in _wrapped(words, width - _INDENT):
            yield f"{begin}{paint(sign, *colour)} {paint(line, *colour)}"
            begin, sign = " " * 11, " "


def _sentences(section: Section) -> Iterator[tuple[str, tuple[str, ...], str]]:
    for words in section.lines:
        yield " ", (), words
    for problem in section.problems:
        yield "▲", (_YELLOW,), problem.what
        yield "→", (_CYAN,), problem.todo


def _wrapped(words: str, width: int) -> list[str]:
    """Texts of other users may hold control characters: `shown` makes them harmless."""
    plain = " ".join(shown(words).split())
    return textwrap.wrap(plain, width, break_on_hyphens=False) or [""]
