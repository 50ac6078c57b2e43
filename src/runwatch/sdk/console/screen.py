"""Makes lines of the bytes of one stream, as a reader of a terminal would see them.

A program that writes `\\r` writes its line anew: a progress bar.  Only what the line shows at the
end is a line, and now and then what it shows meanwhile (`due`).  Several bars, one below the other,
move the cursor up (`ESC [ A`).  From then on the rows are a small screen: what they show is told
now and then, until nothing has moved the cursor up for a while.
"""

from __future__ import annotations

import re
from typing import Final

PAUSE_NS: Final = 5_000_000_000
"""A line that is not complete, or is written anew, is told no more often than this."""
MOST_ROWS: Final = 64

_UP: Final = re.compile(rb"\x1b\[(\d{0,3})A")
_CODES: Final = re.compile(
    r"""
    \x1b (?: \[ [0-?]* [ -/]* [@-~]            # colours, cursor
           | \] [^\x07\x1b]* (?: \x07 | \x1b\\ )?   # titles, links
           | [PX^_] [^\x1b]* (?: \x1b\\ )?
           | [ -/]* [0-~] )?
    | [\x00-\x08\x0b-\x1f\x7f-\x9f]               # other control characters, but not the tab
    """,
    re.VERBOSE,
)


def cleaned(line: bytes) -> str:
    """As text without codes for terminals.  Colours would hide what somebody seeks."""
    text = line.decode("utf-8", "replace")
    if not text.isprintable():
        text = _CODES.sub("", text)
    return text.rstrip()


class Screen:
    def __init__(self, line_bytes: int = 8 << 10) -> None:
        self._most = line_bytes
        self._partial = b""
        """The line that is not complete, from its last `\\r` on."""
        self._beyond = 0
        """Bytes of that line that were not kept."""
        self._changed = False
        """Whether it has changed since it was told."""
        self._told_ns = 0
        self._rows: dict[int, bytes] | None = None
        """The rows of a small screen; None while nobody moves the cursor."""
        self._row = 0
        self._moved_ns = 0
        self.cut_bytes = 0
        """Bytes of lines that were too long, since somebody last took them away."""

    def write(self, data: bytes, now_ns: int) -> list[bytes]:
        """The lines that are complete now."""
        if b"\x1b[" in data and _UP.search(data):
            self._moved_ns = now_ns
            if self._rows is None:
                self._rows, self._row = {}, 0
        if self._rows is not None:
            return self._draw(data)
        if self._partial or self._beyond:
            head, newline, data = data.partition(b"\n")
            self._grow(head, now_ns)
            if not newline:
                return []
            lines = [self._finish()]
        else:
            lines = []
        *complete, rest = data.split(b"\n")
        for line in complete:
            if len(line) > self._most or b"\r" in line:
                line = self._shortened(_shown(line))
            lines.append(line)
        if rest:
            self._grow(rest, now_ns)
        return lines

    def due(self, now_ns: int) -> list[bytes]:
        """What is worth telling though no line is complete: bars, and what waits for its end."""
        if self._rows is not None:
            over = now_ns - self._moved_ns >= 2 * PAUSE_NS
            if not over and now_ns - self._told_ns < PAUSE_NS:
                return []
            self._told_ns = now_ns
            rows = self._take_rows()
            if over:
                self._rows, self._partial = None, b""
            return rows
        if not self._changed or now_ns - self._told_ns < PAUSE_NS:
            return []
        self._changed, self._told_ns = False, now_ns
        shown = _shown(self._partial)
        return [shown] if shown.strip() else []

    def end(self) -> list[bytes]:
        """Nothing more will come."""
        rows = self._take_rows() if self._rows is not None else []
        if self._rows is None and (self._partial or self._beyond) and self._changed:
            rows.append(self._finish())
        self.forget()
        return rows

    def forget(self) -> None:
        """Of what came so far nothing is told any more: what comes next is a new line."""
        self._partial, self._beyond, self._changed, self._rows = b"", 0, False, None

    # ── one line ──────────────────────────────────────────────────────────────────────────────

    def _grow(self, data: bytes, now_ns: int) -> None:
        if not self._changed:
            self._changed = True
            self._told_ns = self._told_ns or now_ns  # a new line has its pause first
        if b"\r" in data:
            written = _from_last_return(self._partial + data)
            self._partial, self._beyond = written[: self._most], 0
            self._beyond = len(written) - len(self._partial)
            return
        room = self._most - len(self._partial)
        self._partial += data[: max(room, 0)]
        self._beyond += max(len(data) - max(room, 0), 0)

    def _finish(self) -> bytes:
        line, beyond = _shown(self._partial), self._beyond
        self._partial, self._beyond, self._changed, self._told_ns = b"", 0, False, 0
        return self._marked(line, beyond)

    def _shortened(self, line: bytes) -> bytes:
        return self._marked(line[: self._most], max(len(line) - self._most, 0))

    def _marked(self, line: bytes, beyond: int) -> bytes:
        if not beyond:
            return line
        self.cut_bytes += beyond
        return line + f" … ({beyond:,} bytes more)".encode()

    # ── several bars ──────────────────────────────────────────────────────────────────────────

    def _draw(self, data: bytes) -> list[bytes]:
        rows = self._rows
        assert rows is not None
        *complete, rest = (self._partial + data).split(b"\n")
        for piece in complete:
            self._move(piece, rows)
            self._row += 1
        self._partial = self._move(rest, rows)[: self._most]
        return self._take_rows() if len(rows) > MOST_ROWS else []

    def _move(self, piece: bytes, rows: dict[int, bytes]) -> bytes:
        """Writes a piece without newlines; returns what a next piece goes on with."""
        text, *moves = _UP.split(piece)  # text, (count, text)*
        self._put(text, rows)
        for count, text in zip(moves[::2], moves[1::2], strict=True):
            self._row -= int(count or 1)
            self._put(text, rows)
        return _from_last_return(text)

    def _put(self, text: bytes, rows: dict[int, bytes]) -> None:
        shown = _shown(text)
        if shown.strip():
            rows[self._row] = shown[: self._most]

    def _take_rows(self) -> list[bytes]:
        rows = self._rows or {}
        lines = [rows[number] for number in sorted(rows)]
        rows.clear()
        return lines


def _shown(line: bytes) -> bytes:
    """What is seen of a line that may have been written several times."""
    if b"\r" not in line:
        return line
    return next((part for part in reversed(line.split(b"\r")) if part.strip()), b"")


def _from_last_return(line: bytes) -> bytes:
    """From the last `\\r` on that something follows, or with which the text ends."""
    bare = line.rstrip(b"\r")
    return line[bare.rfind(b"\r") + 1 :]
