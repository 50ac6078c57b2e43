"""Stand-ins for Google's two services, over loopback gRPC: they do what the services document.

`LoggingServiceV2.WriteLogEntries` keeps an entry once for each log, time and `insertId`, writes the
valid entries of a request that asks for that (`partial_success`), and says which were not.
`MetricService.CreateTimeSeries` takes one point of a series in a request, later than the last one
and not older than 25 hours, and says how many it took.

Each can be told to refuse, to be slow, or never to answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.cloud.logging_v2.types import (
    WriteLogEntriesPartialErrors,
    WriteLogEntriesRequest,
    WriteLogEntriesResponse,
)
from google.cloud.monitoring_v3 import CreateTimeSeriesRequest, CreateTimeSeriesSummary
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status  # type: ignore[import-untyped]

WRITE = "/google.logging.v2.LoggingServiceV2/WriteLogEntries"
CREATE = "/google.monitoring.v3.MetricService/CreateTimeSeries"
OLDEST_SECONDS = 25 * 3600

Fault = Callable[[Any, grpc.ServicerContext], None]


class CloudServices:
    def __init__(self) -> None:
        self.port = 0
        self.requests: list[str] = []
        """The method of every request that arrived, answered or not."""
        self.fault: Fault | None = None
        """What happens to every request, until it is None."""
        self.entries: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.repeats = 0
        """Entries that were there already."""
        self.is_bad: Callable[[dict[str, Any]], bool] = lambda entry: False
        self.says_which = True
        """Whether it says which entries of a request are bad."""
        self.points: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        """By metric, resource and labels: end time and value."""
        self.now: Callable[[], float] = time.time
        self.released = threading.Event()
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def payloads(self, log: str = "") -> list[dict[str, Any]]:
        """In order of time."""
        kept = sorted(self.entries.values(), key=lambda entry: entry["timestamp"])
        return [entry["jsonPayload"] for entry in kept if entry["logName"].endswith(log)]

    def named(self, metric: str) -> dict[tuple[Any, ...], list[tuple[float, float]]]:
        return {key: found for key, found in self.points.items() if key[0].endswith(metric)}

    def write(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._meet(WRITE, request, context)
        wrong: dict[int, Status] = {}
        with self._lock:
            for at, entry in enumerate(WriteLogEntriesRequest.pb(request).entries):
                shown = MessageToDict(entry)
                if self.is_bad(shown):
                    wrong[at] = Status(code=3, message="the entry is malformed")
                    continue
                key = shown["logName"], shown["timestamp"], shown["insertId"]
                self.repeats += key in self.entries
                self.entries.setdefault(key, shown)
        if wrong and self.says_which:
            errors = WriteLogEntriesPartialErrors.pb(WriteLogEntriesPartialErrors())
            for at, status in wrong.items():
                errors.log_entry_errors[at].CopyFrom(status)
            refuse(3, "some entries are malformed", errors)(request, context)
        elif wrong:
            refuse(3, "malformed")(request, context)
        return WriteLogEntriesResponse()

    def create(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._meet(CREATE, request, context)
        series = CreateTimeSeriesRequest.pb(request).time_series
        taken, seen = 0, set()
        with self._lock:
            for one in series:
                labels = tuple(sorted(one.metric.labels.items()))
                where = tuple(sorted(one.resource.labels.items()))
                key = one.metric.type, one.resource.type, where, labels
                assert key not in seen, "a request has one point of each series"
                seen.add(key)
                (point,) = one.points
                end = point.interval.end_time.seconds + point.interval.end_time.nanos / 1e9
                known = self.points.setdefault(key, [])
                if (known and end <= known[-1][0]) or end < self.now() - OLDEST_SECONDS:
                    continue
                kind = point.value.WhichOneof("value")
                known.append((end, getattr(point.value, kind)))
                taken += 1
        assert len(series) <= 200
        if taken < len(series):
            summary = CreateTimeSeriesSummary.pb(CreateTimeSeriesSummary())
            summary.total_point_count, summary.success_point_count = len(series), taken
            refuse(3, "Points must be written in order.", summary)(request, context)
        return Empty()

    def _meet(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        with self._lock:
            self.requests.append(method)
        if (fault := self.fault) is not None:
            fault(request, context)

    def never_answers(self, request: Any, context: grpc.ServicerContext) -> None:
        while not self.released.wait(0.02) and context.is_active():
            pass
        context.abort(grpc.StatusCode.CANCELLED, "the test is over")


def refuse(code: int, message: str, *details: Any) -> Fault:
    """`details`: messages that the error carries."""

    def fault(request: Any, context: grpc.ServicerContext) -> None:
        status = Status(code=code, message=message)
        for detail in details:
            packed = Packed()
            packed.Pack(detail)
            status.details.append(packed)
        context.abort_with_status(rpc_status.to_status(status))

    return fault


def over_quota(seconds: float) -> Fault:
    delay = Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
    return refuse(8, "Quota exceeded for write requests", RetryInfo(retry_delay=delay))


def handlers(services: CloudServices) -> tuple[grpc.GenericRpcHandler, ...]:
    def method(name: str, answer: Callable[..., Any], asked: Any, told: Any) -> Any:
        service, call = name.strip("/").split("/")
        handler = grpc.unary_unary_rpc_method_handler(answer, asked, told)
        return grpc.method_handlers_generic_handler(service, {call: handler})

    write = WriteLogEntriesRequest.deserialize, WriteLogEntriesResponse.serialize
    create = CreateTimeSeriesRequest.deserialize, Empty.SerializeToString
    return method(WRITE, services.write, *write), method(CREATE, services.create, *create)


@contextmanager
def cloud_services(port: int = 0, services: CloudServices | None = None) -> Iterator[CloudServices]:
    """The same `services` may be served again, at the same port."""
    services = services or CloudServices()
    services.released.clear()
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(handlers(services))
    services.port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield services
    finally:
        services.released.set()
        server.stop(None).wait()
