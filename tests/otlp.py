"""Requests of OTLP, made by hand."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint

from runwatch.address import Listening

PROTOBUF = "application/x-protobuf"


def pair(name: str, value: str | int | float | bool) -> KeyValue:
    kind = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    said: dict[str, Any] = {kind[type(value)]: value}
    return KeyValue(key=name, value=AnyValue(**said))


def metrics_request(
    service: str, metrics: Iterable[Metric], **resource: str | int
) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    part = request.resource_metrics.add()
    part.resource.attributes.append(pair("service.name", service))
    for name, value in resource.items():
        part.resource.attributes.append(pair(name.replace("__", "."), value))
    part.scope_metrics.add().metrics.extend(metrics)
    return request


def gauge(name: str, points: Iterable[tuple[int, float]], **labels: str) -> Metric:
    pairs = [pair(label, value) for label, value in labels.items()]
    made = [NumberDataPoint(time_unix_nano=t, as_double=v, attributes=pairs) for t, v in points]
    return Metric(name=name, gauge=Gauge(data_points=made))


def gauge_request(
    service: str, name: str, points: Iterable[tuple[int, float]], **resource: str | int
) -> ExportMetricsServiceRequest:
    return metrics_request(service, [gauge(name, points)], **resource)


def post(
    at: Listening,
    path: str,
    body: bytes,
    *,
    kind: str = PROTOBUF,
    token: str | None = None,
    way: str = "",
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Status and answer.  Without a token given, with the head's own."""
    asked = urllib.request.Request(
        f"{at.http}{way}/v1/{path}", data=body if method != "GET" else None, method=method
    )
    asked.add_header("Content-Type", kind)
    shown = at.token if token is None else token
    if shown:
        asked.add_header("Authorization", f"Bearer {shown}")
    for name, value in (headers or {}).items():
        asked.add_header(name, value)
    try:
        with urllib.request.urlopen(asked, timeout=100) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
