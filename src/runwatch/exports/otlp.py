"""OTLP metrics: numbers as gauges, under the resource that they are about.

A resource is one rank of a run on a host, a host, or a run as a whole.  Its attributes:
`service.name` (the run's name, or runwatch), `runwatch.run_id`, `runwatch.run`,
`runwatch.rank` and `host.name`.  What else is known of a series is among its points' attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric, NumberDataPoint

from runwatch._version import __version__
from runwatch.exports.gauges import Gauge

HEADERS: Final = {"Content-Type": "application/x-protobuf"}
PATH: Final = "/v1/metrics"
_OF_RESOURCE: Final = {
    "run": "runwatch.run_id",
    "run_name": "runwatch.run",
    "rank": "runwatch.rank",
    "host": "host.name",
}
_ENDED: Final = int(DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)


def export_request(gauges: Iterable[Gauge]) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    scopes = {}
    metrics: dict[tuple[object, ...], Metric] = {}
    for gauge in gauges:
        resource = tuple((name, gauge.labels.get(name, "")) for name in _OF_RESOURCE)
        if resource not in scopes:
            about = request.resource_metrics.add()
            about.resource.attributes.extend(_resource(dict(resource)))
            scopes[resource] = about.scope_metrics.add()
            scopes[resource].scope.name = "runwatch"
            scopes[resource].scope.version = __version__
        key = (resource, gauge.name, gauge.unit)
        if key not in metrics:
            metrics[key] = scopes[resource].metrics.add(name=gauge.name, unit=gauge.unit)
        metrics[key].gauge.data_points.extend(_points(gauge))
    return request


def _resource(labels: Mapping[str, str]) -> Iterable[KeyValue]:
    yield _text("service.name", labels["run_name"] or "runwatch")
    for name, attribute in _OF_RESOURCE.items():
        value = labels[name]
        if name == "rank" and value:
            yield KeyValue(key=attribute, value=AnyValue(int_value=int(value)))
        elif value:
            yield _text(attribute, value)


def _points(gauge: Gauge) -> Iterable[NumberDataPoint]:
    attributes = [
        _text(name, value) for name, value in gauge.labels.items() if name not in _OF_RESOURCE
    ]
    for time_ns, value in zip(gauge.time_ns, gauge.value, strict=True):
        point = NumberDataPoint(time_unix_nano=time_ns, attributes=attributes)
        if gauge.ends:
            point.flags = _ENDED
        else:
            point.as_double = value
        yield point


def _text(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))
