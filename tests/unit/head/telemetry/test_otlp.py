"""Collectors get every point once, whatever they do in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from runwatch.exports.prometheus import RunGoodput
from runwatch.head.forward.report import Report
from runwatch.head.reading import Reading
from runwatch.head.state.board import RunBoard
from runwatch.head.telemetry import outlet
from runwatch.head.telemetry.settings import TelemetrySettings
from runwatch.head.telemetry.telemetry import Telemetry
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock, until
from tests.integration.head_history import Producer, when
from tests.unit.head.telemetry import collectors
from tests.unit.head.telemetry.collectors import Collector, grpc_collector, http_collector

POINTS = [("loss", 10 + n / 8, n, 1 / (n + 1)) for n in range(20)]
Kind = Callable[[], AbstractContextManager[Collector]]


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


@contextmanager
def sending(
    store: Store, root: Path, collector: Collector, clock: FakeClock, **more: Any
) -> Iterator[Telemetry]:
    settings = TelemetrySettings(
        otlp_export=collector.url,
        **{"interval_seconds": 0.02, "retry_seconds": 0.05, "timeout_seconds": 0.4, **more},
    )
    board = RunBoard(Reading(store, clock=clock), told=False)
    telemetry = Telemetry(
        settings, root, store, board, lambda: [RunGoodput("run-1", 0.75)], clock=clock
    )
    telemetry.start()
    try:
        yield telemetry
    finally:
        telemetry.close()


def report(telemetry: Telemetry) -> Report:
    [one] = telemetry.reports()
    return one


def losses(collector: Collector) -> list[tuple[int, float]]:
    return [(at_ns, value) for name, at_ns, value in collector.points() if name == "loss"]


def expected(points: list[tuple[str, float, int, float]] = POINTS) -> list[tuple[int, float]]:
    return [(when(at), value) for _, at, _, value in points]


@pytest.mark.parametrize("kind", [http_collector, grpc_collector])
def test_a_collector_gets_points_and_the_state_of_runs(
    store: Store, tmp_path: Path, kind: Kind
) -> None:
    clock = FakeClock(when(9))
    more = {"otlp_headers": "X-Team=a b,api-key=k"}
    with kind() as collector, sending(store, tmp_path, collector, clock, **more) as telemetry:
        trainer = Producer(store, "j0", rank=3)
        telemetry.stored([trainer.write(POINTS, [("run_start", 10, {"name": "llama"})])])
        agent = Producer(store, "a0", role="agent", host="host-b")
        telemetry.stored([agent.write([("power_watts", 10, None, 300.0)], device="gpu0")])
        clock.now_ns = when(15)
        until(lambda: ("goodput_ratio", when(15), 0.75) in collector.points(), what="goodput")
        until(lambda: len(losses(collector)) == len(POINTS))
        until(lambda: collector.resources("power_watts"))
        assert losses(collector) == expected()
        assert collector.resources("loss")[0] == {
            "service.name": "llama", "runwatch.run_id": "run-1", "runwatch.run": "llama",
            "runwatch.rank": 3, "host.name": "host-a",
        }  # fmt: skip
        assert collector.resources("power_watts")[0] == {
            "service.name": "llama", "runwatch.run_id": "run-1", "runwatch.run": "llama",
            "host.name": "host-b",
        }  # fmt: skip
        lowered = {name.lower(): value for name, value in collector.headers[0].items()}
        assert (lowered["x-team"], lowered["api-key"]) == ("a b", "k")
        told = report(telemetry)
        assert (told.to, told.lost, told.problem) == ("otlp", 0, "")


PARTLY = ExportMetricsServiceResponse(
    partial_success=ExportMetricsPartialSuccess(rejected_data_points=4, error_message="too many")
).SerializeToString()
IN_THE_WAY = {
    "busy": collectors.answers(503, b"busy", Retry_After="0.2"),
    "told to wait for a date": collectors.answers(429, Retry_After="Thu, 01 Jan 1970 00:00:00 GMT"),
    "no token": collectors.answers(401, b"who are you?"),
    "elsewhere": collectors.answers(307, Location="http://127.0.0.1:1/"),
    "broken": collectors.answers(500),
    "silent": collectors.says_nothing,
    "trickling": collectors.trickles,
    "hanging up": collectors.hangs_up,
}


@pytest.mark.parametrize("trouble", IN_THE_WAY)
def test_a_collector_in_trouble_gets_everything_later(
    store: Store, tmp_path: Path, trouble: str
) -> None:
    clock = FakeClock(when(9))
    with http_collector() as collector:
        collector.misdeeds.append(IN_THE_WAY[trouble])
        with sending(store, tmp_path, collector, clock) as telemetry:
            trainer = Producer(store, "j0")
            telemetry.stored([trainer.write(POINTS[:10])])
            until(lambda: collector.asked, what="the first request")
            telemetry.stored([trainer.write(POINTS[10:])])
            until(lambda: len(losses(collector)) == len(POINTS), what="all points")
            assert losses(collector) == expected()
            until(lambda: not report(telemetry).problem, what="all to be well")
            assert report(telemetry).lost == 0


def test_a_collector_on_grpc_in_trouble_gets_everything_later(store: Store, tmp_path: Path) -> None:
    codes = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED]
    with grpc_collector() as collector:
        collector.misdeeds.extend(collectors.aborts(code, "busy") for code in codes)
        collector.misdeeds.append(lambda collector, context: collector.over.wait(100))
        with sending(store, tmp_path, collector, FakeClock(when(9))) as telemetry:
            telemetry.stored([Producer(store, "j0").write(POINTS)])
            until(lambda: len(losses(collector)) == len(POINTS), what="all points")
            assert losses(collector) == expected()


@pytest.mark.parametrize(
    ("refusal", "lost"), [(collectors.answers(200, PARTLY), 4), (collectors.answers(400), 0)]
)
def test_what_a_collector_refuses_is_counted(
    store: Store, tmp_path: Path, refusal: collectors.Misdeed, lost: int
) -> None:
    """The second time it may take what it refused as a whole."""
    with http_collector() as collector:
        collector.misdeeds.append(refusal)
        with sending(store, tmp_path, collector, FakeClock(when(9)),
                     interval_seconds=0.1) as telemetry:  # fmt: skip
            telemetry.stored([Producer(store, "j0").write(POINTS)])
            until(lambda: report(telemetry).sent + report(telemetry).lost >= len(POINTS))
            assert report(telemetry).lost == lost


def test_a_collector_that_wants_nothing_is_not_asked_for_ever(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "MOST_REFUSALS", 5)
    clock = FakeClock(when(9))
    with http_collector() as collector:
        with sending(store, tmp_path, collector, clock):
            pass  # from now on points are to be sent
        Producer(store, "j0").write(POINTS)
        collector.misdeeds.extend([collectors.answers(400, b"never")] * 10)
        with sending(store, tmp_path, collector, clock, interval_seconds=60.0) as telemetry:
            until(lambda: report(telemetry).lost == len(POINTS), what="all to be given up")
            assert collector.asked < 15 and "never" in report(telemetry).lost_why


def test_a_head_ends_soon_although_its_collector_is_silent(store: Store, tmp_path: Path) -> None:
    with http_collector() as collector:
        collector.misdeeds.extend([collectors.says_nothing] * 5)
        with sending(
            store, tmp_path, collector, FakeClock(when(9)), timeout_seconds=300.0
        ) as telemetry:
            telemetry.stored([Producer(store, "j0").write(POINTS)])
            until(lambda: collector.asked, what="the first request")
        # The block has ended: `close` did not wait for the answer.
        assert not collector.requests


def test_what_was_sent_is_not_sent_again_by_the_next_head(store: Store, tmp_path: Path) -> None:
    clock, trainer = FakeClock(when(9)), Producer(store, "j0")
    trainer.write([("loss", 5, 0, 9.0)])  # before it was first asked to send
    with http_collector() as collector:
        with sending(store, tmp_path, collector, clock) as telemetry:
            telemetry.stored([trainer.write(POINTS[:10])])
            until(lambda: len(losses(collector)) == 10, what="the first points")
            until(lambda: report(telemetry).sent >= 10)
        trainer.write(POINTS[10:])
        with sending(store, tmp_path, collector, clock) as telemetry:
            until(lambda: len(losses(collector)) == 20, what="the other points")
            until(lambda: report(telemetry).sent >= 20)
        assert losses(collector) == expected()
