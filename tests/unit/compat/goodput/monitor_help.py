"""What the monitor's tests share: a log, a clock moved by hand, and real services on loopback."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from google.cloud import monitoring_v3
from google.cloud.monitoring_v3.services.metric_service.transports import (
    MetricServiceGrpcTransport,
)
from google.protobuf.empty_pb2 import Empty

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event

SECOND = 1_000_000_000
START = 1_700_000_000
PREFIX = "compute.googleapis.com/workload/"


class HandClock:
    """Stands still until moved; who waits is woken when the time has come."""

    def __init__(self, at: float = START) -> None:
        self.now = int(at * SECOND)

    def wall_ns(self) -> int:
        return self.now

    def mono_ns(self) -> int:
        return self.now

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        due = self.now + int(seconds * SECOND)
        while self.now < due:
            if wake(0.001):
                return True
        return False

    def move(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


class MemoryLog:
    """A back end that programs may pass in place of ours."""

    def __init__(self, job_name: str = "job") -> None:
        self.job_name = job_name
        self.entries: list[dict[str, Any]] = []
        self.problem: Exception | None = None
        self.read_again = False
        """Give everything once more: a log may show an entry after later ones."""

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)

    def read_cloud_logging_entries(
        self, start_time: Any = None, end_time: Any = None, last_entry_info: Any = None
    ) -> tuple[list[dict[str, Any]], Any]:
        if self.problem is not None:
            raise self.problem
        known = int(last_entry_info[1]) if last_entry_info and last_entry_info[1] else 0
        if self.read_again:
            known, self.read_again = 0, False
        count = len(self.entries)
        return self.entries[known:], (None, str(count))

    def flush(self) -> None:
        pass

    def add(self, **fields: Any) -> None:
        self.entries.append({"job_name": self.job_name, **fields})

    def start(self, at: float = 0) -> None:
        self.add(job_start_time=START + at)

    def end(self, at: float) -> None:
        self.add(job_end_time=START + at)

    def steps(self, first: int, last: int, *, at: float, seconds: float = 3.0) -> None:
        """Steps `first` to `last`; the first begins `at`."""
        for number in range(first, last + 1):
            self.add(step_count=number, step_start_time=START + at + (number - first) * seconds)


class Shown(NamedTuple):
    tag: str
    step: int
    value: float
    display_name: str


def event_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*tfevents*"))


def events_in(path: Path) -> list[Event]:
    """Every event of a file, each checksum compared; a torn or damaged frame is an error."""
    # Imported here: it loads torch, which few tests need.
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        head = data[at : at + 8]
        (length,) = struct.unpack("<Q", head)
        body = data[at + 12 : at + 12 + length]
        sums = data[at + 8 : at + 12] + data[at + 12 + length : at + 16 + length]
        assert struct.unpack("<II", sums) == (masked_crc32c(head), masked_crc32c(body))
        found.append(Event.FromString(body))
        at += length + 16
    assert not found or found[0].file_version == "brain.Event:2"
    return found


def shown(directory: Path) -> list[Shown]:
    """All scalars of all event files, in the order written."""
    return [
        Shown(value.tag, event.step, value.simple_value, value.metadata.display_name)
        for path in event_files(directory)
        for event in events_in(path)
        for value in event.summary.value
    ]


def tags(directory: Path, tag: str) -> list[tuple[int, float]]:
    return [(s.step, s.value) for s in shown(directory) if s.tag == tag]


class MetricService:
    """Google Cloud Monitoring's CreateTimeSeries; keeps what it was sent."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[Any] = []
        self.arrived = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.refuse: list[grpc.StatusCode] = []
        """Answers to the next requests, before it goes well again."""
        self.answer: Callable[[Any, Any], Empty] = self.create

    @property
    def series(self) -> list[Any]:
        return [series for request in list(self.requests) for series in request.time_series]

    def values(self, metric: str) -> list[float]:
        return [value_of(s) for s in self.series if s.metric.type == PREFIX + metric]

    def metrics(self) -> set[str]:
        return {s.metric.type.removeprefix(PREFIX) for s in self.series}

    def create(self, request: Any, context: Any) -> Empty:
        self.arrived.set()
        self.may_answer.wait(100)
        if self.refuse:
            context.abort(self.refuse.pop(0), "as the test wants it")
        self.requests.append(request)
        return Empty()


def value_of(series: Any) -> float:
    kind = monitoring_v3.TypedValue.pb(series.points[0].value).WhichOneof("value")
    return getattr(series.points[0].value, kind)  # type: ignore[no-any-return]


@contextmanager
def metric_service() -> Iterator[tuple[MetricService, Any]]:
    """A server on loopback and the library's own client of it."""
    service = MetricService()
    server = grpc.server(ThreadPoolExecutor(4))
    handler = grpc.unary_unary_rpc_method_handler(
        lambda request, context: service.answer(request, context),
        request_deserializer=monitoring_v3.CreateTimeSeriesRequest.deserialize,
        response_serializer=Empty.SerializeToString,
    )
    name = "google.monitoring.v3.MetricService"
    methods = {"CreateTimeSeries": handler}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, methods)])
    service.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{service.port}")
    transport = MetricServiceGrpcTransport(channel=channel)
    try:
        yield service, monitoring_v3.MetricServiceClient(transport=transport)
    finally:
        service.may_answer.set()
        channel.close()
        server.stop(0).wait()


class MetadataService(ThreadingHTTPServer):
    """The machine's metadata; answers what it is given to answer."""

    daemon_threads = True

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Metadata)
        self.values = dict(values)
        self.asked: list[str] = []
        self.flavor = "Google"
        self.failures = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Metadata(BaseHTTPRequestHandler):
    server: MetadataService

    def do_GET(self) -> None:
        path = self.path.removeprefix("/computeMetadata/v1/")
        self.server.asked.append(path)
        self.server.may_answer.wait(100)
        value = self.server.values.get(path)
        if self.headers.get("Metadata-Flavor") != "Google":
            self._answer(403, "")
        elif self.server.failures:
            self.server.failures -= 1
            self._answer(503, "")
        else:
            self._answer(404 if value is None else 200, value or "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Metadata-Flavor", self.server.flavor)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def metadata_service(values: Mapping[str, str]) -> Iterator[MetadataService]:
    service = MetadataService(values)
    thread = threading.Thread(target=service.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        service.may_answer.set()
        service.shutdown()
        thread.join()
        service.server_close()
