"""Logs of OTLP as log lines, traces as spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from runwatch.record import NO_STEP, Event
from runwatch.record.checks import INT64, LATEST_NS
from runwatch.record.console import MOST_LINES, Console
from runwatch.record.life import Config
from runwatch.record.message import Message
from runwatch.record.otlp import SpanTold
from runwatch.wire.otlp_values import attributes, plain, text

ERRORS_FROM: Final = 17
"""Lines of this severity and above are shown with what went to the error output."""
LONGEST_LINE: Final = 16_000
LARGEST: Final = 200_000
"""Bytes of one log record or span, as a message.  A journal holds no larger ones either."""
_SEVERITIES: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_EXCEPTION: Final = ("exception.type", "exception.message", "exception.stacktrace")
_CONFIGS: Final = "mlrun_configs"
_WHERE: Final = "code."
"""Attributes that say which line of the program logged it."""
_KINDS: Final = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
_STATUS: Final = {1: "ok", 2: "error"}

Reject = Callable[[str], object]


class Line(NamedTuple):
    event: Event
    is_timed: bool
    """The sender said when."""


# ── logs ───────────────────────────────────────────────────────────────────────────────────────


def lines(part: Any, now_ns: int, reject: Reject, *, of_wheel: bool = False) -> Iterator[Line]:
    """Events, in the order in which they were sent."""
    for scoped in part.scope_logs:
        for record in scoped.log_records:
            time_ns = record.time_unix_nano or record.observed_time_unix_nano
            if time_ns > LATEST_NS:
                reject("a log record: its time is impossible")
                continue
            if record.ByteSize() > LARGEST:
                reject(f"a log record of {record.ByteSize()} bytes; {LARGEST} are allowed")
                continue
            said = attributes(record.attributes)
            step = _step(said.pop("step", None))
            message = _message(record, said, of_wheel)
            event = Event(time_ns or now_ns, message.KIND, message.body(), step, 1)
            yield Line(event, bool(time_ns))


def _message(record: Any, said: dict[str, Any], of_wheel: bool) -> Message:
    words = plain(record.body)
    if of_wheel and said.get("namespace") == _CONFIGS and isinstance(words, dict):
        values = words.get("userConfigs")
        if isinstance(values, dict):
            return Config("user", values)
    return _console(record, words, said)


def _console(record: Any, body: Any, said: dict[str, Any]) -> Console:
    severity = record.severity_text or _severity(record.severity_number)
    words = text(body) if body is not None else record.event_name
    # Whoever logs an exception has caught it: it is text, and no end of a program.
    exception = _traceback(*(text(said.pop(name, "")) for name in _EXCEPTION))
    shown = {name: value for name, value in said.items() if not name.startswith(_WHERE)}
    more = " ".join(f"{name}={text(value)}" for name, value in shown.items())
    whole = " ".join(each for each in (severity, words, more) if each)
    whole = "\n".join(each for each in (whole, exception) if each)
    every = [_line(each) for each in whole.split("\n")]
    kept = every[:MOST_LINES]
    return Console(
        "err" if record.severity_number >= ERRORS_FROM else "out",
        tuple(each[:LONGEST_LINE] for each in kept),
        left_out_lines=len(every) - len(kept),
        left_out_bytes=sum(max(0, len(each) - LONGEST_LINE) for each in every),
    )


def _traceback(type: str, message: str, trace: str) -> str:
    return trace.rstrip("\n") or ": ".join(each for each in (type, message) if each)


def _line(given: str) -> str:
    """Without what would move a terminal's cursor."""
    return "".join(c if c.isprintable() or c == "\t" else " " for c in given.rstrip("\r"))


def _severity(number: int) -> str:
    return _SEVERITIES[(number - 1) // 4] if 1 <= number <= 24 else ""


def _step(said: Any) -> int:
    is_step = type(said) is int and -INT64 < said < INT64
    return said if is_step else NO_STEP


# ── traces ─────────────────────────────────────────────────────────────────────────────────────


class Span(NamedTuple):
    name: str
    number: int
    """Of 32 bits, made of its id."""
    start_ns: int
    end_ns: int
    step: int
    told: SpanTold


def spans(part: Any, reject: Reject) -> Iterator[Span]:
    for scoped in part.scope_spans:
        for span in scoped.spans:
            start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
            if not span.name or not span.span_id:
                reject("a span without a name or an id")
            elif not 0 < start_ns <= end_ns <= LATEST_NS:
                reject(f"span {span.name[:80]!r}: its times are impossible")
            elif span.ByteSize() > LARGEST:
                reject(f"span {span.name[:80]!r}: {span.ByteSize()} bytes; {LARGEST} are allowed")
            else:
                said = attributes(span.attributes)
                yield Span(
                    span.name[:LONGEST_LINE],
                    int.from_bytes(span.span_id[:4].ljust(4, b"\0")),
                    start_ns,
                    end_ns,
                    _step(said.get("step")),
                    _told(span, said),
                )


def _told(span: Any, said: Mapping[str, Any]) -> SpanTold:
    return SpanTold(
        span.name[:LONGEST_LINE],
        span.trace_id.hex()[:64],
        span.span_id.hex()[:64],
        span.parent_span_id.hex()[:64],
        _KINDS.get(span.kind, ""),
        _STATUS.get(span.status.code, ""),
        span.status.message[:LONGEST_LINE],
        said,
    )
