"""How many points a second a head takes by OTLP, stored and acknowledged, on one core.

    python benchmarks/otlp.py [--quick]

A head (`runwatch head`, pinned to one core) gets requests as OpenTelemetry's exporter writes them:
one gauge point a series with three attributes, by gRPC, from a loader on another core that has made
them beforehand.  A number of requests is under way at a time; the clock stops at the last answer,
and the store must hold exactly the points that were sent.  The head's own protocol is in
`ingest.py`: it sends columns, OTLP sends every point with its name and labels.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import deque
from typing import Any

import grpc
from ingest import BEGIN_NS, SECOND, Head, closed_bytes
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from report import Outcome, Table
from trial import METADATA, Options, TrialFailed, directory

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
SENDERS = 8
SERIES = 500
UNDER_WAY = 8


def requests(count: int, first: int) -> list[bytes]:
    """Each of one sender: a point of each of its series."""
    return [_request(number % SENDERS, first + number // SENDERS) for number in range(count)]


def _request(sender: int, second: int) -> bytes:
    request = ExportMetricsServiceRequest()
    part = request.resource_metrics.add()
    part.resource.attributes.extend(
        [_pair("service.name", "bench"), _pair("service.instance.id", str(sender))]
    )
    scope = part.scope_metrics.add()
    for number in range(SERIES // 10):
        metric = scope.metrics.add(name=f"metric_{number}", unit="s")
        for layer in range(10):
            point = metric.gauge.data_points.add(
                time_unix_nano=BEGIN_NS + second * SECOND, as_double=second + layer / 10
            )
            names = (("layer", str(layer)), ("kind", "forward"), ("part", "all"))
            point.attributes.extend(_pair(*each) for each in names)
    return bytes(request.SerializeToString())


def _pair(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))


def send(export: Any, prepared: list[bytes]) -> float:
    begin = time.perf_counter()
    under_way: deque[Any] = deque()
    for request in prepared:
        if len(under_way) >= UNDER_WAY:
            _answered(under_way.popleft())
        under_way.append(export.future(request, metadata=METADATA, timeout=60))
    for call in under_way:
        _answered(call)
    return time.perf_counter() - begin


def _answered(call: Any) -> None:
    try:
        if call.result():
            raise TrialFailed("some points were set aside")
    except grpc.RpcError as error:
        raise TrialFailed(f"the head refused a request: {error}") from error


def trial(count: int, rounds: int) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    with directory() as place:
        head = Head(place / "head", cores[0], [])
        os.sched_setaffinity(0, {cores[-1]})
        channel = grpc.insecure_channel(head.at.grpc)
        export = channel.unary_unary(METHOD)
        seconds, cpu = [], []
        try:
            send(export, requests(SENDERS * 2, 0))
            for number in range(rounds):
                prepared = requests(count, 2 + number * count // SENDERS)
                before = head.cpu_seconds()
                seconds.append(send(export, prepared))
                cpu.append(head.cpu_seconds() - before)
        finally:
            channel.close()
            head.close()
            os.sched_setaffinity(0, set(cores))
        points = count * SERIES
        stored = closed_bytes(place / "head" / "store")["stored_points"]
        if stored != points * rounds + SENDERS * 2 * SERIES:
            raise TrialFailed(f"{stored} points are stored, not what was sent")
        return {
            "points": points,
            "seconds": seconds,
            "cpu_seconds_per_million": [used / points * 1e6 for used in cpu],
        }


def measure(options: Options) -> Outcome:
    found = trial(*((200, 2) if options.quick else (800, 5)))
    speeds = [found["points"] / seconds for seconds in found["seconds"]]
    table = Table(
        "Head: OTLP by gRPC, stored and acknowledged, one core",
        ("points a request", "points/s, median (best)", "head CPU s per M points"),
    )
    cpu = statistics.median(found["cpu_seconds_per_million"])
    row = f"{statistics.median(speeds):,.0f} ({max(speeds):,.0f})"
    table.rows.append((f"{SERIES}", row, f"{cpu:.1f}"))
    table.notes.append(
        f"{SENDERS} senders × {SERIES} series with three attributes, {UNDER_WAY} requests at a "
        f"time, {len(speeds)} rounds of {found['points']:,} points; head and loader: a core each."
    )
    return Outcome([table], found)


def main() -> None:
    from command import run_one

    run_one(argparse.ArgumentParser(description=__doc__), None, measure)


if __name__ == "__main__":
    main()
