"""Runwatch's own account beside the figures that the original's monitor uploads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.goodput_utils import GCPOptions
from runwatch.compat.goodput.monitor.monitor import GoodputMonitor
from runwatch.compat.goodput.monitor.monitor_elastic import ElasticGoodputMonitor
from runwatch.exports.cloud_monitoring import (
    ACCOUNT_PREFIX,
    Workload,
    account_shares,
)
from runwatch.exports.event_files import account_scalars
from runwatch.sdk.guard import tally
from tests.unit.compat.goodput.monitor_help import (
    START,
    HandClock,
    MemoryLog,
    MetricService,
    metric_service,
    shown,
    value_of,
)

CLOUD = GCPOptions("my-project", "us-central1-a", "3", "TPU-v5p", "my-cluster")
NO_CLOUD = GCPOptions(enable_gcp_goodput_metrics=False, enable_gcp_step_deviation_metrics=False)
VARIABLE = "RUNWATCH_GOODPUT_ACCOUNT"
GOODPUT = "runwatch/goodput"
SPENT = "runwatch/spent_seconds/"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    tally.forget()


@pytest.fixture
def clock() -> HandClock:
    return HandClock(START + 400)


@pytest.fixture
def log() -> MemoryLog:
    """Ten steps of three seconds, an evaluation in one; then a hang.  It is now 400 s."""
    log = MemoryLog()
    log.start()
    log.steps(0, 4, at=10)
    log.add(custom_badput_event_type="Eval Step", custom_badput_event_start_time=START + 23.0)
    log.add(custom_badput_event_type="Eval Step", custom_badput_event_end_time=START + 24.0)
    log.steps(5, 9, at=25)
    return log


@pytest.fixture
def service() -> Iterator[tuple[MetricService, Any]]:
    with metric_service() as both:
        yield both


def monitor(
    board: Path, log: MemoryLog, clock: HandClock, kind: Any = GoodputMonitor, **options: Any
) -> GoodputMonitor:
    cloud = options.pop("gcp_options", NO_CLOUD)
    made: GoodputMonitor = kind(
        "job", "logger", str(board), upload_interval=30, monitoring_enabled=True,
        include_badput_breakdown=True, gcp_options=cloud, cloud_logger=log, clock=clock, **options,
    )  # fmt: skip
    return made


def own(kept: MetricService, metric: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(series.metric.labels.get(name, "") for name in labels): value_of(series)
        for series in kept.series
        if series.metric.type == ACCOUNT_PREFIX + metric
    }


def others(kept: MetricService) -> list[tuple[str, dict[str, str], float]]:
    return [
        (series.metric.type, dict(series.metric.labels), value_of(series))
        for series in kept.series
        if not series.metric.type.startswith(ACCOUNT_PREFIX)
    ]


def test_a_variable_is_enough(
    tmp_path: Path, log: MemoryLog, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "on")
    monitor(tmp_path, log, clock).stop_goodput_uploader()
    account = GoodputCalculator("job", "logger", log, clock=clock).get_account()
    found = {s.tag: s for s in shown(tmp_path)}
    classes = {tag.removeprefix(SPENT): s.value for tag, s in found.items() if SPENT in tag}
    assert classes.keys() == {
        name.replace("custom:eval step", "custom/eval_step") for name in account.spent_ns
    }
    assert classes["stall"] > 300 and classes["custom/eval_step"] == pytest.approx(1.0)
    assert sum(classes.values()) == pytest.approx(400.0, abs=1e-3)
    assert account.goodput is not None
    assert found[GOODPUT].value == pytest.approx(account.goodput * 100)
    assert {s.step for s in found.values()} == {8}  # that of the original's figures
    assert found[SPENT + "stall"].display_name == "stall"


@pytest.mark.parametrize(
    ("variable", "given", "expected"),
    [
        (None, None, False),
        ("", None, False),
        ("off", None, False),
        ("perhaps", None, False),
        ("on", None, True),
        (" TRUE ", None, True),
        ("on", False, False),
        (None, True, True),
        ("off", True, True),
    ],
)
@pytest.mark.parametrize("kind", [GoodputMonitor, ElasticGoodputMonitor])
def test_the_argument_wins_over_the_variable(
    tmp_path: Path, log: MemoryLog, clock: HandClock, monkeypatch: pytest.MonkeyPatch,
    kind: Any, variable: str | None, given: bool | None, expected: bool,
) -> None:  # fmt: skip
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    monitor(tmp_path, log, clock, kind, include_account=given).stop_goodput_uploader()
    assert any(s.tag.startswith("runwatch/") for s in shown(tmp_path)) is expected


def test_the_originals_figures_stay_as_they_are(
    tmp_path: Path, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    scalars, series = [], []
    for given in (False, True):
        board = tmp_path / str(given)
        asked = monitor(
            board, log, clock, gcp_options=CLOUD, metrics_client=client, include_account=given
        )
        asked.start_rolling_window_goodput_uploader([60, 1000])
        asked.stop_goodput_uploader()
        asked.stop_rolling_window_goodput_uploader()
        scalars.append([s for s in shown(board) if not s.tag.startswith("runwatch/")])
        series.append(others(kept))
        assert (len(kept.series) > len(series[-1])) is given
        kept.requests.clear()
    assert scalars[0] == scalars[1] != []
    assert series[0] == series[1] != []


def test_in_cloud_monitoring_it_has_names_and_labels_like_the_originals(
    tmp_path: Path, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    monitor(
        tmp_path, log, clock, gcp_options=CLOUD, metrics_client=client, include_account=True
    ).stop_goodput_uploader()
    account = GoodputCalculator("job", "logger", log, clock=clock).get_account()
    goodput = own(kept, "goodput_time", "goodput_source", "accelerator_type", "cluster_name")
    assert goodput == {
        ("TOTAL", "TPU-v5p", "my-cluster"): pytest.approx(account.spent_ns["productive"] / 1e9)
    }
    badput = own(kept, "badput_time", "badput_source")
    assert badput["STALL",] == pytest.approx(account.spent_ns["stall"] / 1e9)
    assert badput["CUSTOM.EVAL STEP",] == pytest.approx(1.0)
    assert {name for (name,) in badput} == {
        name.replace(":", ".").upper() for name in account.spent_ns
    } - {"PRODUCTIVE", "EXCLUDED"}
    parts = sum(goodput.values()) + sum(badput.values()) + sum(own(kept, "excluded_time").values())
    assert own(kept, "total_elapsed_time", "window_type") == {("cumulative",): pytest.approx(parts)}
    assert parts == pytest.approx(400.0)
    for series in kept.series:
        if series.metric.type.startswith(ACCOUNT_PREFIX):
            assert series.resource.type == "generic_task"
            assert dict(series.resource.labels) == {
                "location": "us-central1-a", "namespace": "runwatch", "job": "job", "task_id": "3",
            }  # fmt: skip


def test_windows_have_it_too(
    tmp_path: Path, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    asked = monitor(
        tmp_path, log, clock, gcp_options=CLOUD, metrics_client=client, include_account=True
    )
    asked.start_rolling_window_goodput_uploader([60, 1000])
    asked.stop_rolling_window_goodput_uploader()
    goodput = own(kept, "interval_goodput", "rolling_window_size", "goodput_source")
    assert goodput.keys() == {("60", "TOTAL"), ("1000", "TOTAL")}
    assert goodput["60", "TOTAL"] == 0.0 < goodput["1000", "TOTAL"]
    badput = own(kept, "interval_badput", "rolling_window_size", "badput_source")
    assert badput["60", "STALL"] == 100.0
    kept.requests.clear()
    asked.start_goodput_interval_uploader(60)
    asked.stop_goodput_interval_uploader()
    assert own(kept, "interval_goodput", "rolling_window_size") == {("60",): 0.0}


def test_an_account_that_is_refused_leaves_the_others(
    tmp_path: Path, log: MemoryLog, clock: HandClock, service: tuple[MetricService, Any]
) -> None:
    kept, client = service

    def refuse(request: Any, context: Any) -> Any:
        if any(s.metric.type.startswith(ACCOUNT_PREFIX) for s in request.time_series):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such metric here")
        return kept.create(request, context)

    kept.answer = refuse
    monitor(
        tmp_path, log, clock, gcp_options=CLOUD, metrics_client=client, include_account=True
    ).stop_goodput_uploader()
    assert kept.values("goodput_time") != []
    assert own(kept, "goodput_time") == {}
    assert tally.counts == {"write to Google Cloud Monitoring: InvalidArgument": 1}
    assert GOODPUT in {s.tag for s in shown(tmp_path)}


def test_a_job_of_which_the_original_has_no_figures_has_an_account(
    tmp_path: Path, clock: HandClock
) -> None:
    """Nobody recorded that it began."""
    log = MemoryLog()
    log.steps(0, 9, at=10)
    monitor(tmp_path, log, clock, include_account=True).stop_goodput_uploader()
    tags = {s.tag for s in shown(tmp_path)}
    assert GOODPUT in tags and not any(tag.startswith(("goodput", "badput")) for tag in tags)


def test_nothing_is_said_of_a_job_that_nobody_knows(tmp_path: Path, clock: HandClock) -> None:
    monitor(tmp_path, MemoryLog(), clock, include_account=True).stop_goodput_uploader()
    assert shown(tmp_path) == []
    assert tally.counts == {}


def test_without_time_that_counts_there_is_no_share() -> None:
    spent = {"productive": 0.0, "excluded": 5.0, "of_a_later_release": 0.0}
    assert account_shares(Workload("job", "z"), 60, spent) == []
    found = {s.tag: s.value for s in account_scalars(None, spent, 3)}
    assert found == {SPENT + name: seconds for name, seconds in spent.items()}
