"""A table whose names can be copied, however narrow the terminal is.

The first column holds what a row is called by.  If a row does not fit the line, its name gets a
line of its own, and the others stand below it.  One column may be prose, which wraps.  Nothing is
cut: what still does not fit is longer than the line, and the terminal wraps it.  A pipe or a file
has no width.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from runwatch.terminal import shown

GAP: Final = 2
LEAST_NAME: Final = 8
"""With less room than this for names, all of them get lines of their own."""
LEAST_PROSE: Final = 16
INDENT: Final = 2
"""Of what stands below a name."""


class Table:
    def __init__(
        self, columns: Sequence[str], *, right: Sequence[str] = (), fold: str | None = None
    ) -> None:
        self._columns = tuple(columns)
        self._right = tuple(column in right for column in columns)
        self._fold = self._columns.index(fold) if fold in self._columns else None
        self._rows: list[tuple[Text, ...]] = []

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def add_row(self, *cells: str | Text) -> None:
        as_text = [cell if isinstance(cell, Text) else Text(shown(cell)) for cell in cells]
        as_text += [Text("")] * (len(self._columns) - len(as_text))
        self._rows.append(tuple(as_text))

    def rename(self, column: str, heading: str) -> None:
        self._columns = tuple(heading if name == column else name for name in self._columns)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_wide = not console.is_terminal and "COLUMNS" not in os.environ
        for line in self._lines(10**6 if is_wide else options.max_width):
            yield from line.render(console)
            yield Segment.line()

    def _lines(self, width: int) -> Iterator[Text]:
        header = tuple(Text(column, style="bold") for column in self._columns)
        widths = [
            max(cell_len(row[index].plain) for row in (header, *self._rows))
            for index in range(len(self._columns))
        ]
        name_width = self._fitted(widths, width)
        for row in (header, *self._rows):
            if name_width is not None and cell_len(row[0].plain) > name_width:
                yield row[0]
                # Below the others' column; if all names stand alone, there is no such column.
                indent = widths[0] if widths[0] else INDENT - GAP
                yield from self._row((Text(""), *row[1:]), [max(indent, 0), *widths[1:]])
            else:
                yield from self._row(row, widths)

    def _fitted(self, widths: list[int], width: int) -> int | None:
        """Make columns narrower until they fit.  Returns the most that a name on the row's own line
        may take; None: all fit."""
        excess = sum(widths) + GAP * (len(widths) - 1) - width
        if excess <= 0:
            return None
        if self._fold is not None:
            least = min(widths[self._fold], max(LEAST_PROSE, len(self._columns[self._fold])))
            less = min(excess, widths[self._fold] - least)
            widths[self._fold] -= less
            excess -= less
        if excess <= 0 or self._fold == 0 or widths[0] <= LEAST_NAME:
            return None
        room = widths[0] - excess
        widths[0] = room if room >= LEAST_NAME else 0
        return widths[0]

    def _row(self, row: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        cells = [[text] for text in row]
        if self._fold is not None:
            cells[self._fold] = _wrapped(row[self._fold], widths[self._fold])
        for number in range(max(len(lines) for lines in cells)):
            line = Text()
            for index, lines in enumerate(cells):
                text = lines[number] if number < len(lines) else Text("")
                padding = " " * (widths[index] - cell_len(text.plain))
                is_last = index == len(cells) - 1
                if self._right[index]:
                    line.append(padding).append_text(text)
                else:
                    line.append_text(text).append("" if is_last else padding)
                line.append("" if is_last else " " * GAP)
            line.rstrip()
            yield line


def _wrapped(text: Text, width: int) -> list[Text]:
    """At spaces; a word that is longer than the column stays whole."""
    lines: list[Text] = []
    for paragraph in text.split("\n", allow_blank=True):
        at, words = 0, paragraph.plain.split(" ")
        begin = end = 0
        for word in words:
            if end > begin and cell_len(paragraph.plain[begin : at + len(word)]) > width:
                lines.append(paragraph[begin:end])
                begin = at
            end = at + len(word)
            at = end + 1
        lines.append(paragraph[begin:end])
    return lines or [Text("")]
