"""The events of a Chrome trace, some thousands at a time, from a stream of any length.

The text is `{"key": value, …, "traceEvents": [event, …], …}`, or the array alone, which need not be
closed.  A buffer is cut between two events, and the part before the cut is decoded at once.  After
a cut in the wrong place (inside a string, or inside a list in an event) the text does not decode.
Then events are decoded one by one, which also finds where an error is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from runwatch.traces.opening import BadTrace, Limits

T = TypeVar("T")
_BETWEEN: Final = re.compile(rb"\}\s*,\s*\{")
_SEPARATOR: Final = re.compile(r"[\s,]*")
_BLANKS: Final = b" \t\r\n"
_COMMAS: Final = _BLANKS + b","
_TAIL: Final = 1 << 14
_TRIES: Final = 2
_MOST_FIELDS: Final = 1000


class Decoder(Protocol[T]):
    """Converts events to the reader's type."""

    def many(self, text: bytes) -> list[T] | None:
        """All events of a JSON array; None if it cannot be decoded."""

    def one(self, event: Mapping[str, Any]) -> T: ...


class EventStream(Generic[T]):
    """Iterate over it for the events.  Afterwards `fields` has the file's other values."""

    def __init__(
        self,
        name: str,
        read: Callable[[int], bytes],
        decoder: Decoder[T],
        limits: Limits,
        *,
        block: int = 2 << 20,
    ) -> None:
        self._block = block
        self._name = name
        self._read = read
        self._decoder = decoder
        self._limits = limits
        self._buffer = b""
        self._offset = 0
        self._is_over = False
        self._json = json.JSONDecoder(strict=False)
        self.fields: dict[str, Any] = {}
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Sequence[T]]:
        self._buffer = self._read(self._block)
        if self._buffer.startswith(b"\xef\xbb\xbf"):
            self._take(3)
        opening = self._next_letter()
        self._take(1)
        if opening == "[":
            yield from self._events(is_bare=True)
        elif opening == "{":
            yield from self._object()
        else:
            raise self._bad(f"a trace must begin with {{ or [, not {opening!r}")

    # ── the object around the events ───────────────────────────────────────────────────────────

    def _object(self) -> Iterator[Sequence[T]]:
        for _ in range(_MOST_FIELDS):
            if self._next_letter(_COMMAS) == "}":
                return
            key = self._value()
            if not isinstance(key, str) or self._next_letter() != ":":
                raise self._bad("expected a name and a colon")
            self._take(1)
            if key == "traceEvents" and self._next_letter() == "[":
                self._take(1)
                yield from self._events(is_bare=False)
            else:
                self.fields[key] = self._value()
        raise self._bad(f"more than {_MOST_FIELDS:,} fields besides the events")

    def _value(self) -> Any:
        """The next complete value."""
        while True:
            self._skip_blanks()
            text = self._buffer.decode("utf-8", "surrogateescape")
            try:
                value, end = self._json.raw_decode(text)
            except json.JSONDecodeError as error:
                self._more_or(error)
                continue
            except RecursionError:
                raise self._bad("nested too deeply") from None
            if not self._is_over and not text[end : end + 64].strip("+-.eE0123456789"):
                # A number may continue beyond the buffer.
                self._fill()
                continue
            self._take(len(text[:end].encode("utf-8", "surrogateescape")))
            return value

    # ── the events ─────────────────────────────────────────────────────────────────────────────

    def _events(self, *, is_bare: bool) -> Iterator[Sequence[T]]:
        while True:
            while not self._is_over and len(self._buffer) < self._block:
                self._fill()
            if is_bare and self._is_over and not self._buffer.strip():
                self.problems.append("the list of events has no end: the file may be truncated")
                return
            events = self._decode_many()
            if events is not None:
                yield events
                continue
            events, is_end = self._decode_singly()
            yield events
            if is_end:
                return

    def _decode_many(self) -> list[T] | None:
        """All complete events in the buffer but the last; None if they do not decode at once."""
        tail = max(0, len(self._buffer) - _TAIL)
        cuts = [match.start() + 1 for match in _BETWEEN.finditer(self._buffer, tail)]
        for cut in cuts[: -_TRIES - 1 : -1]:
            events = self._decoder.many(b"[" + self._buffer[:cut] + b"]")
            if events is not None:
                self._take(cut)
                self._take_comma()
                return events
        return None

    def _take_comma(self) -> None:
        if self._next_letter() == ",":
            self._take(1)

    def _decode_singly(self) -> tuple[list[T], bool]:
        """The complete events in the buffer, and whether the array has ended."""
        self._skip_blanks()
        text = self._buffer.decode("utf-8", "surrogateescape")
        position = 0
        events: list[T] = []
        while (letter := text[position : position + 1]) != "]":
            if letter == "," or letter.isspace():
                position = _SEPARATOR.match(text, position).end()  # type: ignore[union-attr]
                continue
            try:
                event, position = self._json.raw_decode(text, position)
            except json.JSONDecodeError as error:
                self._take_text(text, position)
                if not events:
                    self._more_or(error)
                return events, False
            except RecursionError:
                raise self._bad("an event is nested too deeply") from None
            events.append(self._event(event))
        self._take_text(text, position + 1)
        return events, True

    def _event(self, event: Any) -> T:
        if not isinstance(event, dict):
            raise self._bad(f"an event must be an object, not {str(event)[:40]!r}")
        return self._decoder.one(event)

    # ── the buffer ─────────────────────────────────────────────────────────────────────────────

    def _fill(self) -> None:
        # Doubling the buffer keeps the cost of searching it again below twice its size.
        data = self._read(max(self._block, len(self._buffer)))
        self._is_over = not data
        self._buffer += data

    def _more_or(self, error: json.JSONDecodeError) -> None:
        """Read more if the text may only be incomplete; else raise."""
        if not _may_be_cut(error):
            raise self._bad(error.msg) from None
        if self._is_over:
            raise self._bad("the file ends too early") from None
        if len(self._buffer) > self._limits.event_bytes:
            raise self._bad(
                f"one value is longer than {self._limits.event_bytes:,} bytes"
            ) from None
        self._fill()

    def _next_letter(self, skipped: bytes = _BLANKS) -> str:
        self._skip_blanks(skipped)
        return self._buffer[:1].decode("latin-1")

    def _skip_blanks(self, skipped: bytes = _BLANKS) -> None:
        while True:
            stripped = self._buffer.lstrip(skipped)
            self._offset += len(self._buffer) - len(stripped)
            self._buffer = stripped
            if stripped:
                return
            self._fill()
            if self._is_over:
                raise self._bad("the file ends too early")

    def _take(self, size: int) -> None:
        self._buffer = self._buffer[size:]
        self._offset += size

    def _take_text(self, text: str, end: int) -> None:
        self._take(len(text[:end].encode("utf-8", "surrogateescape")))

    def _bad(self, what: str) -> BadTrace:
        excerpt = self._buffer[:60].decode("utf-8", "replace")
        return BadTrace(f"{self._name}: at byte {self._offset:,}: {what} (near {excerpt!r})")


def _may_be_cut(error: json.JSONDecodeError) -> bool:
    """Whether more text could help: the decoder failed at the end, or in an open string."""
    is_near_end = error.pos >= len(error.doc.rstrip()) - len("-Infinity")
    return is_near_end or error.msg.startswith("Unterminated")
