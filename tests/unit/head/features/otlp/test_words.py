"""Log records as lines, spans as spans."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1 import logs_pb2 as pb
from opentelemetry.proto.trace.v1 import trace_pb2

from runwatch.head.features.otlp.words import LARGEST, Line, lines, spans
from runwatch.record.door import event_problem
from tests.otlp import pair

T = 1_700_000_000_000_000_000
NOW = T + 5


def read(*records: Any, of_wheel: bool = False) -> tuple[list[Line], list[str]]:
    part = pb.ResourceLogs(scope_logs=[pb.ScopeLogs(log_records=records)])
    wrong: list[str] = []
    found = list(lines(part, NOW, wrong.append, of_wheel=of_wheel))
    assert not any(event_problem(line.event) for line in found)
    return found, wrong


def record(text: str = "hello", **given: Any) -> pb.LogRecord:
    usual: dict[str, Any] = {"time_unix_nano": T, "body": AnyValue(string_value=text)}
    return pb.LogRecord(**usual | given)


def test_a_line_has_its_severity_its_attributes_and_its_step() -> None:
    said = [pair("k", 1), pair("step", 9)]
    ((line,), _) = read(record("a\nb\x1b[31m", severity_number=13, attributes=said))
    assert line.event.body["lines"] == ["WARN a", "b [31m k=1"]
    assert (line.event.time_ns, line.event.step, line.event.body["stream"]) == (T, 9, "out")
    ((line,), _) = read(record(severity_number=17, severity_text="Error"))
    assert line.event.body == {"stream": "err", "lines": ["Error hello"], "after_ms": []}


def test_an_exception_that_was_logged_is_text() -> None:
    said = [
        pair("exception.type", "ValueError"),
        pair("exception.message", "no"),
        pair("exception.stacktrace", "Traceback …\nValueError: no\n"),
        pair("code.line.number", 7),
    ]
    ((line,), _) = read(record("failed", attributes=said))
    assert line.event.body["lines"] == ["failed", "Traceback …", "ValueError: no"]
    ((line,), _) = read(record("failed", attributes=said[:2]))
    assert line.event.body["lines"] == ["failed", "ValueError: no"]


def test_times() -> None:
    (seen, none), wrong = read(
        record(time_unix_nano=0, observed_time_unix_nano=T - 1),
        record(time_unix_nano=0),
        record(time_unix_nano=2**63),
    )
    assert (seen.event.time_ns, seen.is_timed) == (T - 1, True)
    assert (none.event.time_ns, none.is_timed) == (NOW, False)
    assert len(wrong) == 1 and "time" in wrong[0]


def test_a_record_that_is_too_large_is_set_aside_alone() -> None:
    found, wrong = read(record("x" * LARGEST), record("y" * 100_000))
    assert len(found) == 1 and len(wrong) == 1
    assert found[0].event.body["left_out_bytes"] == 84_000


def test_the_wheels_configs_are_the_runs() -> None:
    values = AnyValue(kvlist_value=KeyValueList(values=[pair("lr", "0.1")]))
    told = KeyValueList(values=[KeyValue(key="userConfigs", value=values)])
    body = AnyValue(kvlist_value=told)
    given = record(body=body, attributes=[pair("namespace", "mlrun_configs")])
    ((line,), _) = read(given, of_wheel=True)
    assert line.event.body == {"part": "user", "values": {"lr": "0.1"}}
    ((line,), _) = read(given)
    assert line.event.kind == "console", "anybody else's is a line"


def test_spans() -> None:
    good = trace_pb2.Span(
        name="work", span_id=b"12345678", trace_id=b"t" * 16, start_time_unix_nano=T,
        end_time_unix_nano=T + 9, attributes=[pair("step", 4)], kind=2,  # type: ignore[arg-type]
        status=trace_pb2.Status(code=2, message="no"),  # type: ignore[arg-type]
    )  # fmt: skip
    backwards = trace_pb2.Span(
        name="w", span_id=b"1", start_time_unix_nano=T, end_time_unix_nano=T - 1
    )
    nameless = trace_pb2.Span(span_id=b"1", start_time_unix_nano=T, end_time_unix_nano=T)
    wrong: list[str] = []
    given = trace_pb2.ResourceSpans(
        scope_spans=[trace_pb2.ScopeSpans(spans=[good, backwards, nameless])]
    )
    (span,) = spans(given, wrong.append)
    assert len(wrong) == 2
    assert (span.name, span.start_ns, span.end_ns, span.step) == ("work", T, T + 9, 4)
    assert (span.told.kind, span.told.status, span.told.status_message) == ("server", "error", "no")
    assert span.told.span_id == b"12345678".hex()
