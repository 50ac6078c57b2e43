"""Requests as protobuf and as JSON, packed and not, and what is wrong with some."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from runwatch.errors import WireError
from runwatch.wire.otlp import as_bytes, parts_of, response, status_bytes
from runwatch.wire.otlp_values import JSON, LARGEST, PROTOBUF, TooLarge, attributes, unpacked

TRUE = {"boolValue": True}
SPAN = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "a"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "name": "work",
                            "kind": 2,
                            "startTimeUnixNano": "1544712660000000000",
                            "endTimeUnixNano": "1544712661000000000",
                            "attributes": [
                                {"key": "traceId", "value": {"stringValue": "no id"}},
                                {"key": "n", "value": {"intValue": "9007199254740993"}},
                                {"key": "l", "value": {"arrayValue": {"values": [TRUE]}}},
                            ],
                            "somethingNew": 1,
                        }
                    ]
                }
            ],
        }
    ]
}  # fmt: skip


def test_json_has_ids_in_hexadecimal_and_large_numbers_as_texts() -> None:
    (part,) = parts_of("traces", json.dumps(SPAN).encode(), JSON)
    span = part.scope_spans[0].spans[0]
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert span.span_id.hex() == "eee19b7ec3c1b174" and not span.parent_span_id
    assert span.start_time_unix_nano == 1544712660000000000
    assert attributes(span.attributes) == {"traceId": "no id", "n": 2**53 + 1, "l": [True]}


def test_protobuf_and_json_are_the_same_request() -> None:
    from_json = parts_of("traces", json.dumps(SPAN).encode(), JSON)
    message = ExportTraceServiceRequest(resource_spans=from_json)
    assert parts_of("traces", message.SerializeToString(), PROTOBUF) == from_json


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"nonsense", b'{"resourceSpans": 3}', b"[" * 100_000, b'{"a": NaN', b"\xff",
     b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xyz"}]}]}]}'],
)  # fmt: skip
def test_what_is_no_json_of_otlp_is_an_error_with_words(body: bytes) -> None:
    with pytest.raises(WireError, match="JSON"):
        parts_of("traces", body, JSON)


def test_what_is_no_protobuf_is_an_error_and_nothing_is_an_empty_request() -> None:
    with pytest.raises(WireError, match="malformed"):
        parts_of("metrics", b"\xff\xff\xff")
    assert parts_of("metrics", b"") == []


def test_a_packed_body_is_no_larger_than_another() -> None:
    assert unpacked(gzip.compress(b"x" * 1000)) == b"x" * 1000
    with pytest.raises(TooLarge):
        unpacked(gzip.compress(b"\0" * (LARGEST + 1)))
    for wrong in (b"plain", gzip.compress(b"x" * 1000)[:-9]):
        with pytest.raises(WireError):
            unpacked(wrong)
    with pytest.raises(TooLarge):
        parts_of("logs", b"\0" * (LARGEST + 1))


def test_an_answer_says_what_was_set_aside() -> None:
    assert (
        as_bytes(response("metrics"), PROTOBUF) == b"" and as_bytes(response("logs"), JSON) == b"{}"
    )
    told: Any = json.loads(as_bytes(response("traces", 2, "no id"), JSON))
    assert told == {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no id"}}


def test_a_busy_head_says_when_to_come_again() -> None:
    """As OpenTelemetry's exporters read it."""
    status_pb2 = pytest.importorskip("google.rpc.status_pb2")
    error_details_pb2 = pytest.importorskip("google.rpc.error_details_pb2")
    status = status_pb2.Status.FromString(status_bytes(14, "much to do " * 30, 5))
    info = error_details_pb2.RetryInfo()
    assert (
        status.code == 14 and status.message.startswith("much") and status.details[0].Unpack(info)
    )
    assert json_format.MessageToDict(info) == {"retryDelay": "5s"}
    assert not status_pb2.Status.FromString(status_bytes(3, "no")).details
