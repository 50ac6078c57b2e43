"""OpenTelemetry collectors, over HTTP (protobuf) and gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from runwatch.exports.gauges import Gauge
from runwatch.exports.otlp import HEADERS, PATH, export_request
from runwatch.head.forward.forwarder import Trouble
from runwatch.head.telemetry.outlet import NotWanted, Taken
from runwatch.head.telemetry.post import Poster
from runwatch.head.telemetry.settings import without_password

_METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_PACKAGE_POINTS: Final = 2_000


class OtlpHttp:
    to = "otlp"
    package_points = _PACKAGE_POINTS

    def __init__(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        """An address without a path gets the usual one."""
        url = url if urlsplit(url).path.strip("/") else url.rstrip("/") + PATH
        self._poster = Poster(url, {**headers, **HEADERS}, timeout_seconds)
        self.name = f"OTLP to {self._poster.name}"
        self.interrupt = self._poster.interrupt
        self.close = self._poster.close

    def send(self, gauges: Sequence[Gauge]) -> Taken:
        answer = self._poster.post(export_request(gauges).SerializeToString())
        if 200 <= answer.status < 300:
            return _taken(answer.body)
        if answer.status in (400, 413):
            raise NotWanted(answer.words)
        todo = "give it a token in the headers" if answer.status in (401, 403) else ""
        raise Trouble(answer.words, todo, answer.retry_seconds)


class OtlpGrpc:
    to = "otlp"
    package_points = _PACKAGE_POINTS

    def __init__(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        parts = urlsplit(url)
        self._target = f"{parts.hostname}:{parts.port or 4317}"
        self._tls = parts.scheme == "grpcs"
        self._metadata = [(name.lower(), value) for name, value in headers.items()]
        self._timeout_seconds = timeout_seconds
        self._channel: grpc.Channel | None = None
        self._call: Any = None
        self.name = f"OTLP to {without_password(url)}"

    def send(self, gauges: Sequence[Gauge]) -> Taken:
        if self._channel is None:
            self._channel = self._connected()
        export = self._channel.unary_unary(
            _METHOD,
            request_serializer=ExportMetricsServiceRequest.SerializeToString,
            response_deserializer=ExportMetricsServiceResponse.FromString,
        )
        try:
            self._call = export.future(
                export_request(gauges), timeout=self._timeout_seconds, metadata=self._metadata
            )
            return _refusals(self._call.result())
        except grpc.FutureCancelledError as error:
            raise Trouble("this head ends") from error
        except grpc.RpcError as error:
            code = error.code()
            words = f"it answered {code.name}: {error.details()}"[:400]
            if code is grpc.StatusCode.INVALID_ARGUMENT:
                raise NotWanted(words) from error
            denied = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            todo = "give it a token in the headers" if code in denied else ""
            raise Trouble(words, todo, _asked_seconds(error)) from error

    def interrupt(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _connected(self) -> grpc.Channel:
        # The library must not pause longer than we do.
        options = [("grpc.max_reconnect_backoff_ms", 5_000)]
        if self._tls:
            return grpc.secure_channel(self._target, grpc.ssl_channel_credentials(), options)
        return grpc.insecure_channel(self._target, options)


def _taken(body: bytes) -> Taken:
    try:
        return _refusals(ExportMetricsServiceResponse.FromString(body))
    except DecodeError:  # it took them, and says so in its own way
        return Taken()


def _refusals(response: ExportMetricsServiceResponse) -> Taken:
    partial = response.partial_success
    return Taken(max(partial.rejected_data_points, 0), partial.error_message[:300])


def _asked_seconds(error: grpc.RpcError) -> float:
    """As HTTP's `Retry-After`.  A `google.rpc.RetryInfo` is not read: our own pauses do as well."""
    for key, value in error.trailing_metadata() or ():
        if key == "retry-after":
            try:
                return max(float(value), 0.0)
            except ValueError:
                return 0.0
    return 0.0
