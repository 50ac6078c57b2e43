from __future__ import annotations

import gc
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.goodput_utils import BadputType, GCPOptions
from runwatch.compat.goodput.monitor.monitor import GoodputMonitor
from runwatch.compat.goodput.monitor.monitor_elastic import ElasticGoodputMonitor
from runwatch.sdk.guard import tally
from runwatch.testing import until
from tests.unit.compat.goodput.monitor_help import (
    PREFIX,
    START,
    HandClock,
    MemoryLog,
    MetricService,
    event_files,
    metadata_service,
    metric_service,
    shown,
    tags,
    value_of,
)
from tests.unit.leftovers import open_files

GOODPUT = "goodput/goodput"
DEVIATION = "step_deviation"
CLOUD = GCPOptions("my-project", "us-central1-a", "0", "TPU-v5p")
NO_CLOUD = GCPOptions(enable_gcp_goodput_metrics=False, enable_gcp_step_deviation_metrics=False)


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "runwatch-goodput-monitor"]


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    tally.forget()
    yield
    until(lambda: not threads())
    assert open_files(tmp_path) == []


@pytest.fixture
def clock() -> HandClock:
    return HandClock(START + 100)


@pytest.fixture
def log() -> MemoryLog:
    """Ten steps of three seconds after ten seconds of preparation; it is now 100 s."""
    log = MemoryLog()
    log.start()
    log.add(tpu_init_start_time=START + 0.0)
    log.add(tpu_init_end_time=START + 5.0)
    log.steps(0, 9, at=10)
    return log


@pytest.fixture
def service() -> Iterator[tuple[MetricService, Any]]:
    with metric_service() as both:
        yield both


Make = Callable[..., GoodputMonitor]


@pytest.fixture
def make(tmp_path: Path, log: MemoryLog, clock: HandClock) -> Iterator[Make]:
    made: list[weakref.ref[GoodputMonitor]] = []

    def make(kind: type[GoodputMonitor] = GoodputMonitor, **options: Any) -> GoodputMonitor:
        given: dict[str, Any] = {
            "upload_interval": 30,
            "monitoring_enabled": True,
            "include_badput_breakdown": True,
            "include_step_deviation": True,
            "gcp_options": NO_CLOUD,
            "cloud_logger": log,
            "clock": clock,
        }
        monitor = kind("job", "logger", str(tmp_path), **given | options)
        made.append(weakref.ref(monitor))
        return monitor

    yield make
    for monitor in filter(None, (reference() for reference in made)):
        if monitor._uploads is not None:
            monitor._uploads.timetable.abandon()  # a failed test stops nothing itself


def at_rest(monitor: GoodputMonitor, clock: HandClock) -> None:
    """Until all that is due is done; a clock that is moved before has the next time left out."""
    assert monitor._uploads is not None
    errands = monitor._uploads.timetable._errands
    until(lambda: all(errand.due_ns > clock.now for errand in list(errands.values())))


def calculator(log: MemoryLog, clock: HandClock) -> GoodputCalculator:
    return GoodputCalculator("job", "logger", log, clock=clock)


# ── TensorBoard ───────────────────────────────────────────────────────────────────────────────


def test_goodput_is_shown_every_interval(
    make: Make, tmp_path: Path, log: MemoryLog, clock: HandClock
) -> None:
    monitor = make()
    monitor.start_goodput_uploader()
    assert shown(tmp_path) == []  # the first after one interval
    clock.move(30)
    until(lambda: len(tags(tmp_path, GOODPUT)) == 1)
    at_rest(monitor, clock)
    log.steps(10, 19, at=130)
    clock.move(30)
    until(lambda: len(tags(tmp_path, GOODPUT)) == 2)
    monitor.stop_goodput_uploader(skip_final_flush=True)

    (path,) = event_files(tmp_path)
    assert path.parent == tmp_path / "goodput"
    (first_step, first), (second_step, second) = tags(tmp_path, GOODPUT)
    assert (first_step, second_step) == (8, 18)
    assert first == pytest.approx(27 / 130 * 100)
    assert second == pytest.approx(calculator(log, clock).get_job_goodput()[0])


def test_badput_has_a_tag_for_each_kind(
    make: Make, tmp_path: Path, log: MemoryLog, clock: HandClock
) -> None:
    log.add(custom_badput_event_type="Eval Step", custom_badput_event_start_time=START + 20.0)
    log.add(custom_badput_event_type="Eval Step", custom_badput_event_end_time=START + 21.0)
    make().stop_goodput_uploader()
    _, badput, step = calculator(log, clock).get_job_goodput(True)
    plain = {f"badput/{kind.name.lower()}" for kind in badput} - {"badput/custom_badput_events"}
    found = {s.tag: s for s in shown(tmp_path)}
    assert set(found) == plain | {GOODPUT, "badput/custom_badput_events/eval_step"}
    assert {s.step for s in found.values()} == {step} == {8}
    assert found["badput/tpu_initialization"].value == pytest.approx(5.0)
    assert found["badput/custom_badput_events/eval_step"].value == pytest.approx(1.0)
    assert found["badput/tpu_initialization"].display_name == "tpu_initialization"


def test_badput_is_left_out_unless_asked_for(make: Make, tmp_path: Path) -> None:
    make(include_badput_breakdown=False).stop_goodput_uploader()
    assert [s.tag for s in shown(tmp_path)] == [GOODPUT]


def test_each_steps_deviation_is_written_once(
    make: Make, tmp_path: Path, log: MemoryLog, clock: HandClock
) -> None:
    monitor = make()
    monitor.start_step_deviation_uploader()
    for cycle in range(4):
        clock.move(10)
        until(lambda n=9 + 10 * cycle: len(tags(tmp_path, DEVIATION)) == n)
        at_rest(monitor, clock)
        log.steps(10 + 10 * cycle, 19 + 10 * cycle, at=40 + 30 * cycle)
    monitor.stop_step_deviation_uploader()
    assert [step for step, _ in tags(tmp_path, DEVIATION)] == list(range(49))
    assert {round(value, 6) for _, value in tags(tmp_path, DEVIATION)} == {0.0}


def test_a_monitor_started_again_does_not_repeat_what_is_there(
    make: Make, tmp_path: Path, log: MemoryLog, clock: HandClock
) -> None:
    make().stop_step_deviation_uploader()
    log.steps(10, 14, at=40)
    clock.move(60)
    make().stop_step_deviation_uploader()
    assert len(event_files(tmp_path)) == 2
    assert [step for step, _ in tags(tmp_path, DEVIATION)] == list(range(14))


def test_b03_uploaders_started_together_do_not_harm_each_other(
    make: Make, tmp_path: Path, log: MemoryLog, clock: HandClock
) -> None:
    monitor = make(upload_interval=10)
    monitor.start_goodput_uploader()
    monitor.start_step_deviation_uploader()
    monitor.start_rolling_window_goodput_uploader([60])
    assert len(threads()) == 1
    for cycle in range(5):
        clock.move(10)
        until(lambda n=cycle + 1: len(tags(tmp_path, GOODPUT)) == n)
        until(lambda n=9 + 5 * cycle: len(tags(tmp_path, DEVIATION)) == n)
        at_rest(monitor, clock)
        log.steps(10 + 5 * cycle, 14 + 5 * cycle, at=40 + 15 * cycle)
    monitor.stop_goodput_uploader(True)
    monitor.stop_step_deviation_uploader(True)
    assert len(threads()) == 1  # one is still to be served
    monitor.stop_rolling_window_goodput_uploader(True)
    until(lambda: not threads())
    assert len(event_files(tmp_path)) == 1
    assert len(tags(tmp_path, GOODPUT)) == 5


def test_without_a_directory_there_are_no_files(
    make: Make, tmp_path: Path, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    monitor = make(gcp_options=CLOUD, metrics_client=client)
    assert monitor._uploads is None
    no_board = GoodputMonitor("job", "l", "", 30, True, gcp_options=CLOUD, metrics_client=client,
                              cloud_logger=MemoryLog())  # fmt: skip
    no_board.stop_goodput_uploader()
    assert event_files(tmp_path) == []
    assert kept.requests == []  # a job that has not begun


# ── starting and stopping ─────────────────────────────────────────────────────────────────────


def test_disabled_it_does_nothing_at_all(make: Make, tmp_path: Path) -> None:
    monitor = make(monitoring_enabled=False)
    for name, method in inspect.getmembers(monitor, inspect.ismethod):
        if name.startswith(("start_", "stop_")):
            method([60]) if "rolling" in name and "start" in name else (
                method(60) if "start_goodput_interval" in name else method()
            )
    assert threads() == []
    assert list(tmp_path.iterdir()) == []
    assert tally.counts == {}


def test_stop_uploads_a_last_time(make: Make, tmp_path: Path, log: MemoryLog) -> None:
    monitor = make()
    monitor.start_goodput_uploader()
    log.end(100)
    monitor.stop_goodput_uploader()
    assert threads() == []
    [(step, share)] = tags(tmp_path, GOODPUT)
    assert step == 9 and share == pytest.approx(90.0)
    monitor.stop_goodput_uploader()  # again: there is nothing to stop
    assert len(tags(tmp_path, GOODPUT)) == 1


@pytest.mark.parametrize(
    ("always", "now", "uploads"),
    [(False, None, 1), (True, None, 0), (False, True, 0), (True, False, 1)],
)
def test_the_last_upload_can_be_skipped(
    make: Make, tmp_path: Path, always: bool, now: bool | None, uploads: int
) -> None:
    monitor = make(skip_final_flush=always)
    monitor.start_goodput_uploader()
    monitor.stop_goodput_uploader(skip_final_flush=now)
    assert len(tags(tmp_path, GOODPUT)) == uploads


def test_stop_without_start_uploads_once(make: Make, tmp_path: Path) -> None:
    monitor = make()
    monitor.stop_goodput_uploader()
    monitor.stop_step_deviation_uploader()
    monitor.stop_rolling_window_goodput_uploader()
    monitor.stop_goodput_interval_uploader()
    assert len(tags(tmp_path, GOODPUT)) == 1
    assert len(tags(tmp_path, DEVIATION)) == 9
    assert tally.counts == {}


def test_started_twice_it_runs_once(make: Make, tmp_path: Path, clock: HandClock) -> None:
    monitor = make()
    monitor.start_goodput_uploader()
    monitor.start_goodput_uploader()
    assert len(threads()) == 1
    clock.move(30)
    until(lambda: tags(tmp_path, GOODPUT))
    monitor.stop_goodput_uploader(skip_final_flush=True)
    assert len(tags(tmp_path, GOODPUT)) == 1
    assert tally.counts == {"goodput upload again": 1}


def test_stopped_and_started_again_it_goes_on(
    make: Make, tmp_path: Path, log: MemoryLog, clock: HandClock
) -> None:
    monitor = make()
    for number in range(3):
        monitor.start_goodput_uploader()
        clock.move(30)
        until(lambda n=number + 1: len(tags(tmp_path, GOODPUT)) == n)
        monitor.stop_goodput_uploader(skip_final_flush=True)
        until(lambda: not threads())
    assert len(event_files(tmp_path)) == 1


def test_step_deviation_is_only_for_those_who_asked(make: Make, tmp_path: Path) -> None:
    monitor = make(include_step_deviation=False)
    monitor.start_step_deviation_uploader()
    assert threads() == []
    monitor.stop_step_deviation_uploader()
    assert shown(tmp_path) == []


def test_a_monitor_that_is_dropped_ends_after_a_last_upload(make: Make, tmp_path: Path) -> None:
    monitor = make()
    monitor.start_goodput_uploader()
    assert len(threads()) == 1
    del monitor
    gc.collect()
    until(lambda: not threads())
    assert len(tags(tmp_path, GOODPUT)) == 1


def test_a_job_that_has_not_begun_is_no_trouble(
    make: Make, tmp_path: Path, clock: HandClock
) -> None:
    log = MemoryLog()
    monitor = make(cloud_logger=log)
    monitor.start_goodput_uploader()
    monitor.start_step_deviation_uploader()
    clock.move(30)
    monitor.stop_step_deviation_uploader()
    at_rest(monitor, clock)  # it does not see half of what comes now
    assert event_files(tmp_path) == []
    log.start()
    log.steps(0, 5, at=10)
    monitor.stop_goodput_uploader()
    assert len(tags(tmp_path, GOODPUT)) == 1
    assert tally.counts == {}


# ── trouble ───────────────────────────────────────────────────────────────────────────────────


def test_a_back_end_that_fails_is_asked_again(
    make: Make, tmp_path: Path, log: MemoryLog, clock: HandClock
) -> None:
    log.problem = ConnectionError("gone")
    monitor = make()
    monitor.start_goodput_uploader()
    clock.move(30)
    until(lambda: tally.counts)
    log.problem = None

    def has_come() -> bool:
        clock.move(30)  # as often as it takes: the failed turn may not be over yet
        return bool(tags(tmp_path, GOODPUT))

    until(has_come)
    monitor.stop_goodput_uploader(skip_final_flush=True)
    assert sum(tally.counts.values()) == 1


def test_an_outlet_that_fails_leaves_the_other(
    make: Make, tmp_path: Path, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    (tmp_path / "goodput").write_text("not a directory")
    make(gcp_options=CLOUD, metrics_client=client).stop_goodput_uploader()
    assert kept.metrics() >= {"goodput_time", "badput_time"}
    assert tally.counts == {"write TensorBoard files: FileExistsError": 1}

    (tmp_path / "goodput").unlink()
    tally.forget()
    kept.refuse = [grpc.StatusCode.PERMISSION_DENIED]
    make(gcp_options=CLOUD, metrics_client=client).stop_goodput_uploader()
    assert len(tags(tmp_path, GOODPUT)) == 1
    assert tally.counts == {"write to Google Cloud Monitoring: PermissionDenied": 1}


def test_a_stop_is_not_held_up_by_an_outlet_that_hangs(
    make: Make, tmp_path: Path, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    kept.may_answer.clear()
    monitor = make(gcp_options=CLOUD, metrics_client=client, final_flush_timeout_seconds=0.05)
    monitor.start_goodput_uploader()
    monitor.stop_goodput_uploader()
    assert kept.arrived.wait(100)
    assert kept.requests == []  # it hangs still, and we are here
    assert len(threads()) == 1
    assert tally.counts == {"goodput upload late": 1}
    kept.may_answer.set()
    until(lambda: not threads())
    assert len(tags(tmp_path, GOODPUT)) == 1


def test_a_stop_without_a_last_upload_does_not_wait_for_one_that_hangs(
    make: Make, clock: HandClock, service: tuple[MetricService, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("runwatch.compat.goodput.monitor.monitor._SKIP_SECONDS", 0.05)
    kept, client = service
    kept.may_answer.clear()
    monitor = make(gcp_options=CLOUD, metrics_client=client, final_flush_timeout_seconds=None)
    monitor.start_goodput_uploader()
    clock.move(30)
    assert kept.arrived.wait(100)
    monitor.stop_goodput_uploader(skip_final_flush=True)
    assert kept.requests == []
    kept.may_answer.set()


def test_arguments_that_make_no_sense_do_not_stop_a_program(make: Make, tmp_path: Path) -> None:
    monitor = make(
        upload_interval="soon",
        step_deviation_interval_seconds=-3,
        gcp_options="none",
        final_flush_timeout_seconds="long",
        configured_ideal_step_time="fast",
    )
    assert (monitor._upload_seconds, monitor._flush_seconds) == (30.0, 10.0)
    assert monitor._deviation_seconds > 0
    for windows in ([], None, [0], [-5], ["x"], [float("nan")]):
        monitor.start_rolling_window_goodput_uploader(windows)  # type: ignore[arg-type]
    monitor.start_goodput_interval_uploader(0)
    assert threads() == []
    monitor.stop_step_deviation_uploader()
    assert len(tags(tmp_path, DEVIATION)) == 9
    assert {"read an interval: ValueError", "rolling windows", "interval window"} <= set(
        tally.counts
    )


# ── Cloud Monitoring ──────────────────────────────────────────────────────────────────────────


def labels_of(series: Any, *names: str) -> tuple[str, ...]:
    return tuple(series.metric.labels.get(name, "") for name in names)


def test_the_job_so_far_in_cloud_monitoring(
    make: Make, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    log.add(data_loading_start_time=START + 6.0)
    log.add(data_loading_end_time=START + 8.0)
    options = GCPOptions("my-project", "us-central1-a", "3", "TPU-v5p", "my-cluster")
    make(gcp_options=options, metrics_client=client).stop_goodput_uploader()

    (request,) = kept.requests
    assert request.name == "projects/my-project"
    assert kept.values("goodput_time") == [pytest.approx(27.0)]
    assert kept.values("max_productive_steps") == [8]
    assert kept.values("disruptions") == [0]
    assert kept.values("total_elapsed_time") == [pytest.approx(100.0, abs=0.1)]
    assert kept.values("performance") == [pytest.approx(3.0)]
    assert kept.values("step_time_deviation") == [pytest.approx(0.0)]
    sources = {
        labels_of(s, "badput_source")[0]: value_of(s)
        for s in kept.series
        if s.metric.type == PREFIX + "badput_time"
    }
    assert "DATA_LOADING_ASYNC" not in sources
    assert sources["TPU_INITIALIZATION"] == pytest.approx(5.0)
    assert sources["DATA_LOADING_SYNC"] == pytest.approx(2.0)
    for series in kept.series:
        assert dict(series.resource.labels) == {
            "location": "us-central1-a", "workload_id": "job", "replica_id": "3",
        }  # fmt: skip
        known = ("TPU-v5p", "my-cluster")
        if series.metric.type != PREFIX + "performance":
            assert labels_of(series, "accelerator_type", "cluster_name") == known
        assert series.points[0].interval.end_time.timestamp() == clock.now / 1e9


def test_b22_each_metric_has_one_meaning_and_one_sender(
    make: Make, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    log.steps(10, 10, at=47)  # step 9 took 10 s: seven more than the others
    monitor = make(gcp_options=CLOUD, metrics_client=client)
    monitor.start_step_deviation_uploader()
    clock.move(10)
    until(lambda: kept.requests)
    assert kept.metrics() == {"step_time_deviation", "performance"}
    assert kept.values("performance") == [pytest.approx(3.0)]
    assert kept.values("step_time_deviation") == [pytest.approx(0.7)]

    monitor.stop_goodput_uploader()  # the job's own, while the other goes on
    assert kept.values("goodput_time") != []
    assert len(kept.values("performance")) == len(kept.values("step_time_deviation")) == 1
    monitor.stop_step_deviation_uploader()
    assert len(kept.values("performance")) == 2


@pytest.mark.parametrize(
    ("goodput", "step_times", "expected"),
    [
        (True, False, {"goodput_time", "interval_goodput"}),
        (False, True, {"performance", "step_time_deviation"}),
        (False, False, set()),
    ],
)
def test_b22_what_is_turned_off_is_off_everywhere(
    make: Make, clock: HandClock, service: tuple[MetricService, Any],
    goodput: bool, step_times: bool, expected: set[str],
) -> None:  # fmt: skip
    kept, client = service
    options = GCPOptions("p", "z", "0", "A", None, goodput, step_times)
    monitor = make(gcp_options=options, metrics_client=client)
    monitor.start_rolling_window_goodput_uploader([300])
    monitor.start_goodput_uploader()
    monitor.stop_goodput_uploader()
    monitor.stop_step_deviation_uploader()
    monitor.stop_rolling_window_goodput_uploader()
    others = {"badput_time", "interval_badput", "disruptions", "max_productive_steps",
              "total_elapsed_time"}  # fmt: skip
    assert kept.metrics() - others == expected
    assert bool(kept.metrics() & others) is goodput


def test_rolling_windows(
    make: Make, tmp_path: Path, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    monitor = make(gcp_options=CLOUD, metrics_client=client)
    monitor.start_rolling_window_goodput_uploader([300, 600])
    clock.move(30)
    until(lambda: kept.requests)
    monitor.stop_rolling_window_goodput_uploader(skip_final_flush=True)
    sizes = [labels_of(s, "rolling_window_size", "goodput_source") for s in kept.series
             if s.metric.type == PREFIX + "interval_goodput"]  # fmt: skip
    assert sizes == [("300", "TOTAL"), ("600", "TOTAL")]
    assert kept.metrics() == {"interval_goodput", "interval_badput"}
    assert kept.values("interval_goodput") == [pytest.approx(27 / 37 * 100)] * 2
    assert event_files(tmp_path) == []  # they are not for TensorBoard


def of_windows(kept: MetricService, metric: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {labels_of(s, *labels): value_of(s) for s in kept.series
            if s.metric.type == PREFIX + metric}  # fmt: skip


def test_b07_every_window_of_a_hang_has_a_value(
    make: Make, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    """The last entry is of 37 s, and it is 100 s.  The original says nothing of such windows."""
    kept, client = service
    monitor = make(gcp_options=CLOUD, metrics_client=client)
    monitor.start_rolling_window_goodput_uploader([60, 200])
    for uploads in range(1, 11):
        clock.move(30)
        until(lambda n=uploads: len(kept.requests) == n)
        at_rest(monitor, clock)
    monitor.stop_rolling_window_goodput_uploader(skip_final_flush=True)
    found: dict[str, list[float]] = {"60": [], "200": []}
    for series in kept.series:
        if series.metric.type == PREFIX + "interval_goodput":
            found[labels_of(series, "rolling_window_size")[0]].append(value_of(series))
    assert found["60"] == [0.0] * 10
    # While the window has two entries it is the original's value, of the time between them.
    assert found["200"] == [pytest.approx(27 / 37 * 100)] * 3 + [100.0] + [0.0] * 6
    assert tally.counts == {}


def test_b07_a_window_of_a_hang_tells_what_became_of_it(
    make: Make, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    clock.move(5000)
    monitor = make(gcp_options=CLOUD, metrics_client=client)
    monitor.start_rolling_window_goodput_uploader([60, 10_000])
    monitor.stop_rolling_window_goodput_uploader()
    badput = of_windows(kept, "interval_badput", "rolling_window_size", "badput_source")
    short = {source: share for (size, source), share in badput.items() if size == "60"}
    assert short.pop("OTHER") == 100.0
    assert short.keys() == {source for size, source in badput if size == "10000"} - {"OTHER"}
    assert set(short.values()) == {0.0}

    kept.requests.clear()
    monitor.start_goodput_interval_uploader(60)
    monitor.stop_goodput_interval_uploader()
    assert kept.values("interval_goodput") == kept.values("goodput_time") == [0.0]
    spent = of_windows(kept, "badput_time", "badput_source")
    assert spent["OTHER",] == pytest.approx(60.0)
    assert tally.counts == {}


def test_b07_a_step_that_is_longer_than_the_window_is_no_hang(
    make: Make, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    log = MemoryLog()
    log.start()
    log.steps(0, 9, at=10, seconds=200)
    clock.move(1800)  # in the middle of the last step
    monitor = make(gcp_options=CLOUD, metrics_client=client, cloud_logger=log)
    monitor.start_rolling_window_goodput_uploader([60])
    monitor.stop_rolling_window_goodput_uploader()
    assert kept.values("interval_goodput") == [pytest.approx(100.0)]


@pytest.mark.parametrize("steps", [0, 1])
def test_b07_a_job_that_hangs_before_its_first_step_is_done(
    make: Make, clock: HandClock, service: tuple[MetricService, Any], steps: int
) -> None:
    kept, client = service
    log = MemoryLog()
    log.start()
    log.steps(0, steps - 1, at=10)
    monitor = make(gcp_options=CLOUD, metrics_client=client, cloud_logger=log)
    monitor.start_rolling_window_goodput_uploader([60])
    monitor.stop_rolling_window_goodput_uploader()
    assert kept.values("interval_goodput") == [0.0]
    assert sum(kept.values("interval_badput")) == pytest.approx(100.0)


def test_b07_a_job_that_is_over_or_has_not_begun_has_no_windows(
    make: Make, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    log.end(40)
    for logger in (log, MemoryLog()):
        monitor = make(gcp_options=CLOUD, metrics_client=client, cloud_logger=logger)
        monitor.start_rolling_window_goodput_uploader([50])
        monitor.start_goodput_interval_uploader(50)
        monitor.stop_goodput_interval_uploader()
        monitor.stop_rolling_window_goodput_uploader()
    assert kept.requests == []
    assert tally.counts == {}


def test_the_first_generations_interval(
    make: Make, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    monitor = make(gcp_options=CLOUD, metrics_client=client)
    monitor.start_goodput_interval_uploader(window_size_seconds=300)
    clock.move(30)
    until(lambda: kept.requests)
    assert kept.metrics() == {
        "goodput_time", "badput_time", "interval_goodput", "interval_badput",
    }  # fmt: skip
    assert kept.values("goodput_time") == [pytest.approx(27.0)]
    assert kept.values("interval_goodput") == [pytest.approx(27 / 37 * 100)]

    kept.requests.clear()
    monitor.start_goodput_uploader()  # from here on these names carry the job's own
    monitor.stop_goodput_interval_uploader()
    assert kept.metrics() == {"interval_goodput", "interval_badput"}
    monitor.stop_goodput_uploader(skip_final_flush=True)


def test_b23_one_monitors_findings_are_not_anothers(
    make: Make, monkeypatch: pytest.MonkeyPatch, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    default = inspect.signature(GoodputMonitor).parameters["gcp_options"].default
    with metadata_service({}) as nowhere:
        monkeypatch.setenv("GCE_METADATA_HOST", nowhere.host)
        make(gcp_options=default, metrics_client=client).stop_goodput_uploader()
        assert nowhere.asked == ["project/project-id"]
    assert kept.requests == []
    machine = {"project/project-id": "found", "instance/zone": "projects/1/zones/z"}
    with metadata_service(machine) as somewhere:
        monkeypatch.setenv("GCE_METADATA_HOST", somewhere.host)
        make(gcp_options=default, metrics_client=client).stop_goodput_uploader()
    assert {request.name for request in kept.requests} == {"projects/found"}
    assert default == GCPOptions()


def test_the_constructor_asks_nobody_anything(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: MemoryLog
) -> None:
    log.problem = RuntimeError("not to be read yet")
    with metadata_service({}) as service:
        monkeypatch.setenv("GCE_METADATA_HOST", service.host)
        make(gcp_options=GCPOptions())
        assert service.asked == []
    assert threads() == []
    assert list(tmp_path.iterdir()) == []
    assert tally.counts == {}


# ── elastic ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def elastic_log(log: MemoryLog) -> MemoryLog:
    log.add(
        active_slices=2,
        total_slices=4,
        available_slices=4,
        elastic_slice_counts_timestamp=START + 0.0,
    )
    log.add(elastic_wait_event_type="elastic_scale_up", elastic_wait_start_time=START + 40.0)
    log.add(elastic_wait_event_type="elastic_scale_up", elastic_wait_end_time=START + 50.0)
    return log


def test_an_elastic_job_shows_its_slices(
    make: Make, tmp_path: Path, elastic_log: MemoryLog, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    monitor = make(
        ElasticGoodputMonitor,
        include_slice_efficiency=True,
        gcp_options=CLOUD,
        metrics_client=client,
    )
    monitor.stop_goodput_uploader()
    assert kept.values("stepping_slice_efficiency") == [pytest.approx(0.5)]
    assert kept.values("available_slice_efficiency") == [pytest.approx(1.0)]
    (stepping,) = (s for s in kept.series if s.metric.type.endswith("stepping_slice_efficiency"))
    assert labels_of(stepping, "window_type", "rolling_window_size") == ("CUMULATIVE", "0")
    [(step, share)] = tags(tmp_path, "badput/elastic_scale_up")
    assert step == 8 and share == pytest.approx(10.0)

    kept.requests.clear()
    monitor.start_rolling_window_goodput_uploader([300])
    monitor.stop_rolling_window_goodput_uploader()
    (stepping,) = (s for s in kept.series if s.metric.type.endswith("stepping_slice_efficiency"))
    assert labels_of(stepping, "window_type", "rolling_window_size") == ("INTERVAL", "300")


def test_slices_are_left_out_unless_asked_for(
    make: Make, elastic_log: MemoryLog, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    make(ElasticGoodputMonitor, gcp_options=CLOUD, metrics_client=client).stop_goodput_uploader()
    assert "goodput_time" in kept.metrics()
    assert not any(metric.endswith("slice_efficiency") for metric in kept.metrics())


def test_b24_an_elastic_monitor_needs_no_upload_interval(tmp_path: Path) -> None:
    monitor = ElasticGoodputMonitor(
        job_name="job", logger_name="logger", tensorboard_dir=str(tmp_path), monitoring_enabled=True
    )
    assert monitor._upload_seconds == 30
    assert list(inspect.signature(ElasticGoodputMonitor).parameters)[3] == "upload_interval"


def test_every_kind_of_badput_has_a_tag(make: Make, tmp_path: Path, elastic_log: MemoryLog) -> None:
    make(ElasticGoodputMonitor).stop_goodput_uploader()
    found = {s.tag.removeprefix("badput/").upper() for s in shown(tmp_path)}
    assert {kind.name for kind in BadputType} - {"CUSTOM_BADPUT_EVENTS"} <= found
