"""OTLP: requests as protobuf or as JSON, answers and errors.

Messages are OpenTelemetry's own (`opentelemetry-proto`).  In OTLP's JSON the ids of traces and
spans are hexadecimal, where protobuf's JSON would have base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

from runwatch.errors import WireError
from runwatch.wire.otlp_values import LARGEST, PROTOBUF, Signal, TooLarge

_IDS: Final = frozenset(
    ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
)


@dataclass(frozen=True, slots=True)
class Form:
    """The messages of one signal."""

    request: Any
    response: Any
    partial: Any
    parts: str
    """The field of the request with a part for each resource."""
    rejected: str
    """The field of a partial success with how many were set aside."""
    service: str


FORMS: Final[Mapping[Signal, Form]] = {
    "metrics": Form(
        metrics.ExportMetricsServiceRequest,
        metrics.ExportMetricsServiceResponse,
        metrics.ExportMetricsPartialSuccess,
        "resource_metrics",
        "rejected_data_points",
        "opentelemetry.proto.collector.metrics.v1.MetricsService",
    ),
    "logs": Form(
        logs.ExportLogsServiceRequest,
        logs.ExportLogsServiceResponse,
        logs.ExportLogsPartialSuccess,
        "resource_logs",
        "rejected_log_records",
        "opentelemetry.proto.collector.logs.v1.LogsService",
    ),
    "traces": Form(
        traces.ExportTraceServiceRequest,
        traces.ExportTraceServiceResponse,
        traces.ExportTracePartialSuccess,
        "resource_spans",
        "rejected_spans",
        "opentelemetry.proto.collector.trace.v1.TraceService",
    ),
}


# ── requests ───────────────────────────────────────────────────────────────────────────────────


def parts_of(signal: Signal, body: bytes, kind: str = PROTOBUF) -> list[Any]:
    """The parts of a request, one for each resource.  Raises WireError."""
    form = FORMS[signal]
    if len(body) > LARGEST:
        raise TooLarge(f"the request has {len(body)} bytes; {LARGEST} are allowed")
    if kind == PROTOBUF:
        try:
            message = form.request.FromString(body)
        except DecodeError as error:
            raise WireError(f"a request of {len(body)} bytes is malformed: {error}") from error
    else:
        message = _from_json(form.request(), body)
    return list(getattr(message, form.parts))


def _from_json(message: Any, body: bytes) -> Any:
    try:
        given = json.loads(body)
        if not isinstance(given, dict):
            raise WireError("the request is not a JSON object")
        _in_base64(given)
        return json_format.ParseDict(given, message, ignore_unknown_fields=True)
    except (ValueError, RecursionError, json_format.Error) as error:
        raise WireError(f"the request is not OTLP in JSON: {str(error)[:300]}") from error


def _in_base64(given: Any) -> None:
    """Ids as protobuf's JSON has them; in place."""
    waiting = [given]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            for name in _IDS & each.keys():
                if isinstance(each[name], str):
                    each[name] = base64.b64encode(bytes.fromhex(each[name])).decode()
            waiting += each.values()


# ── answers ────────────────────────────────────────────────────────────────────────────────────


def response(signal: Signal, rejected: int = 0, why: str = "") -> Any:
    form = FORMS[signal]
    if not rejected and not why:
        return form.response()
    told = form.partial(**{form.rejected: rejected, "error_message": why[:1000]})
    return form.response(partial_success=told)


def as_bytes(message: Any, kind: str) -> bytes:
    if kind == PROTOBUF:
        return bytes(message.SerializeToString())
    return bytes(json_format.MessageToJson(message, indent=None).encode())


def status_bytes(code: int, message: str, retry_seconds: int = 0) -> bytes:
    """A google.rpc.Status, with a RetryInfo if the sender is to come again.

    Its stubs would be a package of their own, for three fields.
    """
    raw = b"\x08" + _varint(code) + _field(2, message.encode()[:1000])
    if retry_seconds:
        delay = Duration(seconds=retry_seconds).SerializeToString()
        info = AnyMessage(
            type_url="type.googleapis.com/google.rpc.RetryInfo", value=_field(1, delay)
        )
        raw += _field(3, info.SerializeToString())
    return raw


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
