"""Collectors made of OpenTelemetry's own protocol, over HTTP and gRPC, that misbehave on demand."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as services
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

Point = tuple[str, int, float]
"""Metric, time, value."""
Misdeed = Callable[["Collector", Any], bool]
"""Gets the handler of a request; whether the request is dealt with."""


class Collector:
    def __init__(self) -> None:
        self.url = ""
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.misdeeds: deque[Misdeed] = deque()
        self.asked = 0
        self.over = threading.Event()

    def points(self) -> list[Point]:
        return [
            (metric.name, point.time_unix_nano, point.as_double)
            for request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.gauge.data_points
        ]

    def resources(self, name: str) -> list[dict[str, Any]]:
        return [
            {each.key: getattr(each.value, str(each.value.WhichOneof("value")))
             for each in resource.resource.attributes}
            for request in self.requests
            for resource in request.resource_metrics
            if any(m.name == name for scope in resource.scope_metrics for m in scope.metrics)
        ]  # fmt: skip


@contextmanager
def http_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked += 1
            if collector.misdeeds and collector.misdeeds.popleft()(collector, self):
                return
            assert self.path == "/v1/metrics"
            assert self.headers["Content-Type"] == "application/x-protobuf"
            collector.headers.append(dict(self.headers.items()))
            collector.requests.append(ExportMetricsServiceRequest.FromString(body))
            self.answer(200, ExportMetricsServiceResponse().SerializeToString())

        def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def answers(status: int, body: bytes = b"", **headers: str) -> Misdeed:
    def misdeed(collector: Collector, handler: Any) -> bool:
        handler.answer(status, body, **headers)
        return True

    return misdeed


def says_nothing(collector: Collector, handler: Any) -> bool:
    collector.over.wait(100)
    handler.close_connection = True
    return True


def trickles(collector: Collector, handler: Any) -> bool:
    """A byte now and then: no socket's timeout ends that."""
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while not collector.over.is_set():
        try:
            handler.wfile.write(b"x")
        except OSError:
            break
        time.sleep(0.02)
    return True


def hangs_up(collector: Collector, handler: Any) -> bool:
    handler.close_connection = True
    return True


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    collector = Collector()

    class Service(services.MetricsServiceServicer):
        def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
            collector.asked += 1
            if collector.misdeeds:
                collector.misdeeds.popleft()(collector, context)
            collector.headers.append(dict(context.invocation_metadata()))
            collector.requests.append(request)
            return ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    services.add_MetricsServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
    collector.url = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        collector.over.set()
        server.stop(None).wait()


def aborts(code: grpc.StatusCode, words: str) -> Misdeed:
    def misdeed(collector: Collector, context: Any) -> bool:
        context.abort(code, words)
        return True

    return misdeed
