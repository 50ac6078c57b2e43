from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from runwatch.compat.goodput import goodput_utils
from runwatch.compat.goodput.gcp_metrics import GCPMetrics, ValueType
from runwatch.compat.goodput.goodput_utils import (
    GCPOptions,
    get_accelerator_type,
    get_cluster_name,
    get_gcp_metadata,
    get_gcp_project_id,
    get_node_zone,
)
from runwatch.compat.goodput.monitor.cloud import CloudOutlet
from runwatch.exports.cloud_monitoring import (
    RESOURCE,
    Workload,
    in_sources,
    job_times,
    job_totals,
    slice_efficiencies,
    step_times,
    window_shares,
)
from runwatch.sdk.guard import tally
from runwatch.testing import until
from tests.unit.compat.goodput.monitor_help import (
    PREFIX,
    START,
    HandClock,
    MetadataService,
    MetricService,
    metadata_service,
    metric_service,
    value_of,
)

MACHINE = {
    "project/project-id": "my-project",
    "instance/zone": "projects/12345/zones/us-central1-a",
    "instance/machine-type": "projects/12345/machineTypes/ct5p-hightpu-4t",
    "instance/attributes/cluster-name": "my-cluster",
}
WORKLOAD = Workload("job", "us-central1-a", "0", "TPU-v5p")


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    tally.forget()


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataService]:
    with metadata_service(MACHINE) as service:
        monkeypatch.setenv("GCE_METADATA_HOST", service.host)
        yield service


@pytest.fixture
def service() -> Iterator[tuple[MetricService, Any]]:
    with metric_service() as both:
        yield both


# ── metadata ──────────────────────────────────────────────────────────────────────────────────


def test_the_machine_says_what_it_is(metadata: MetadataService) -> None:
    assert get_gcp_project_id() == "my-project"
    assert get_node_zone() == "us-central1-a"
    assert get_cluster_name() == "my-cluster"
    assert get_accelerator_type() == "TPU-v5p"
    assert metadata.asked == list(MACHINE)[:2] + list(MACHINE)[:1:-1]


@pytest.mark.parametrize(
    ("machine", "accelerator"),
    [
        ("tpu7x-standard-4t", "TPU-7x"),
        ("ct5lp-hightpu-8t", "TPU-v5e"),
        ("CT6E-standard-4t", "TPU-v6e"),
        ("a3-ultragpu-8g", "NVIDIA-H200"),
        ("a3-highgpu-8g", "NVIDIA-H100"),
        ("a2-ultragpu-1g", "NVIDIA-A100"),
        ("a4-highgpu-8g", "GPU"),
        ("n2-standard-4", "UNKNOWN"),
    ],
)
def test_the_accelerator_follows_from_the_machine_type(
    metadata: MetadataService, machine: str, accelerator: str
) -> None:
    metadata.values["instance/machine-type"] = f"projects/1/machineTypes/{machine}"
    assert get_accelerator_type() == accelerator


def test_what_the_service_does_not_know_is_none(metadata: MetadataService) -> None:
    metadata.values.clear()
    assert get_gcp_metadata("instance", "attributes/nothing") is None
    assert get_node_zone() is None
    assert get_accelerator_type() == "UNKNOWN"
    assert len(metadata.asked) == 3  # no answer is better for asking again


def test_a_service_in_trouble_is_asked_again(metadata: MetadataService) -> None:
    metadata.failures = 2
    assert get_gcp_project_id() == "my-project"
    metadata.failures = 3
    assert get_gcp_project_id() is None


def test_another_clouds_service_at_the_same_address_is_not_believed(
    metadata: MetadataService,
) -> None:
    metadata.flavor = "Amazon"
    assert get_gcp_project_id() is None


def test_a_service_that_does_not_answer_is_not_asked_twice(
    metadata: MetadataService, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata.may_answer.clear()
    with monkeypatch.context() as patch:
        patch.setattr(goodput_utils, "_REQUEST_SECONDS", 0.05)
        assert get_gcp_metadata("project", "project-id", timeout=60, retries=3) is None
    until(lambda: metadata.asked)  # it may hear the question after we have given up
    metadata.may_answer.set()
    assert get_gcp_project_id() == "my-project"
    assert metadata.asked == ["project/project-id"] * 2


def test_where_nothing_listens_the_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and never listening
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{taken.getsockname()[1]}")
        assert get_gcp_project_id() is None


@pytest.mark.parametrize(("product", "is_asked"), [("Google Compute Engine\n", True), ("x", False)])
def test_a_machine_of_another_maker_is_not_asked(
    metadata: MetadataService, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, product: str,
    is_asked: bool,
) -> None:  # fmt: skip
    (tmp_path / "product_name").write_text(product)
    monkeypatch.setattr(goodput_utils, "_PRODUCT_NAME", tmp_path / "product_name")
    monkeypatch.setattr(goodput_utils, "_METADATA_HOST", metadata.host)
    monkeypatch.delenv("GCE_METADATA_HOST")
    assert get_gcp_project_id() == ("my-project" if is_asked else None)
    assert bool(metadata.asked) is is_asked


def test_a_proxy_is_not_asked_about_this_machine(
    metadata: MetadataService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert get_gcp_project_id() == "my-project"


# ── series ────────────────────────────────────────────────────────────────────────────────────


def test_series_have_the_names_and_labels_that_dashboards_know() -> None:
    badput: dict[str, float | dict[str, float]] = {
        "TPU_INITIALIZATION": 5.0,
        "DATA_LOADING_ASYNC": 9.0,
        "CUSTOM_BADPUT_EVENTS": {"EVAL_STEP": 1.0},
    }
    accelerator = {"accelerator_type": "TPU-v5p"}
    found = [
        *job_times(WORKLOAD, 86.0, badput),
        *job_totals(WORKLOAD, disruptions=2, max_step=28, elapsed_seconds=200.0),
        *step_times(WORKLOAD, ideal_seconds=3.0, deviation_seconds=0.5),
        *window_shares(WORKLOAD, 300, 71.5, {"OTHER": 28.5, "DATA_LOADING_ASYNC": 3.0}),
        *slice_efficiencies(WORKLOAD, 0.5, 1.0),
        *slice_efficiencies(WORKLOAD, 0.25, None, 600),
    ]
    cumulative = accelerator | {"window_type": "cumulative"}
    since_start = accelerator | {"window_type": "CUMULATIVE", "rolling_window_size": "0"}
    window = accelerator | {"rolling_window_size": "300"}
    assert [(s.metric, s.value, dict(s.labels)) for s in found] == [
        ("goodput_time", 86.0, accelerator | {"goodput_source": "TOTAL"}),
        ("badput_time", 5.0, accelerator | {"badput_source": "TPU_INITIALIZATION"}),
        ("badput_time", 1.0, accelerator | {"badput_source": "CUSTOM_BADPUT_EVENTS.EVAL_STEP"}),
        ("disruptions", 2, cumulative),
        ("max_productive_steps", 28, accelerator),
        ("total_elapsed_time", 200.0, cumulative),
        ("step_time_deviation", 0.5, accelerator),
        ("performance", 3.0, {}),
        ("interval_goodput", 71.5, window | {"goodput_source": "TOTAL"}),
        ("interval_badput", 28.5, window | {"badput_source": "OTHER"}),
        ("stepping_slice_efficiency", 0.5, since_start),
        ("available_slice_efficiency", 1.0, since_start),
        (
            "stepping_slice_efficiency",
            0.25,
            accelerator | {"window_type": "INTERVAL", "rolling_window_size": "600"},
        ),
    ]
    assert {s.metric for s in found if s.value_type == "int64_value"} == {
        "disruptions",
        "max_productive_steps",
    }


def test_waits_for_machines_are_the_originals_infrastructure_recovery() -> None:
    recovery = "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"
    waits = {"infrastructure_recovery": 1.0, "scheduling_wait": 20.0, "pod_startup": 300.0}
    found = in_sources({"productive": 5.0, "stall": 7.0, **waits})
    assert {name: amount for name, amount in found.items() if amount} == {
        recovery: 321.0, "OTHER": 7.0,
    }  # fmt: skip
    assert list(in_sources({"productive": 5.0})).count(recovery) == 1


def test_the_cluster_is_named_where_it_is_known() -> None:
    workload = Workload("job", "us-central1-a", "0", "TPU-v5p", "my-cluster")
    for series in job_totals(workload, disruptions=0, max_step=1, elapsed_seconds=1.0):
        assert series.labels["cluster_name"] == "my-cluster"


def test_step_times_that_are_not_known_are_left_out() -> None:
    assert step_times(WORKLOAD, ideal_seconds=0.0, deviation_seconds=None) == []
    assert step_times(WORKLOAD, ideal_seconds=None, deviation_seconds=float("nan")) == []


# ── the client ────────────────────────────────────────────────────────────────────────────────


def request(metric: str, value: float, kind: ValueType = ValueType.DOUBLE) -> dict[str, Any]:
    return {
        "metric_type": PREFIX + metric,
        "value": value,
        "value_type": kind,
        "metric_labels": {"accelerator_type": "TPU-v5p"},
        "resource_type": RESOURCE,
        "resource_labels": {"location": "z", "workload_id": "job", "replica_id": "0"},
    }


def test_series_arrive_with_time_type_labels_and_resource(
    service: tuple[MetricService, Any],
) -> None:
    kept, client = service
    clock = HandClock()
    clock.move(0.25)
    metrics = GCPMetrics("my-project", client=client, clock=clock)
    without_labels = request("performance", 3.5)
    del without_labels["metric_labels"]
    metrics.send_metrics([request("disruptions", 2, ValueType.INT), without_labels])

    (arrived,) = kept.requests
    assert arrived.name == "projects/my-project"
    disruptions, performance = arrived.time_series
    assert (disruptions.metric.type, value_of(disruptions)) == (PREFIX + "disruptions", 2)
    assert dict(disruptions.metric.labels) == {"accelerator_type": "TPU-v5p"}
    assert (performance.metric.type, value_of(performance)) == (PREFIX + "performance", 3.5)
    assert dict(performance.metric.labels) == {}
    for series in arrived.time_series:
        assert series.resource.type == "compute.googleapis.com/Workload"
        assert dict(series.resource.labels) == {
            "location": "z", "workload_id": "job", "replica_id": "0",
        }  # fmt: skip
        assert series.points[0].interval.end_time.timestamp() == START + 0.25


def test_a_request_carries_two_hundred_series_at_most(service: tuple[MetricService, Any]) -> None:
    kept, client = service
    metrics = GCPMetrics("p", client=client)
    metrics.send_metrics([request("badput_time", float(i)) for i in range(450)])
    assert [len(request.time_series) for request in kept.requests] == [200, 200, 50]
    assert kept.values("badput_time") == [float(i) for i in range(450)]
    metrics.send_metrics([])
    assert len(kept.requests) == 3


def test_the_client_tries_again_while_the_service_is_away(
    service: tuple[MetricService, Any],
) -> None:
    kept, client = service
    kept.refuse = [grpc.StatusCode.UNAVAILABLE]
    GCPMetrics("p", client=client).send_metrics([request("goodput_time", 1.0)])
    assert kept.values("goodput_time") == [1.0]
    assert tally.counts == {}


def test_a_refused_request_is_counted_and_the_next_still_goes(
    service: tuple[MetricService, Any],
) -> None:
    kept, client = service
    kept.refuse = [grpc.StatusCode.INVALID_ARGUMENT]
    many = [request("badput_time", float(i)) for i in range(201)]
    GCPMetrics("p", client=client).send_metrics(many, {"job_name": "job"})
    assert kept.values("badput_time") == [200.0]
    assert tally.counts == {"write to Google Cloud Monitoring: InvalidArgument": 1}


def test_a_time_series_can_be_made_without_sending(service: tuple[MetricService, Any]) -> None:
    kept, client = service
    labels = {"location": "z"}
    series = GCPMetrics("p", client=client).create_time_series(
        "m", True, ValueType.BOOL, {"a": "b"}, RESOURCE, labels, 12, 34
    )
    assert value_of(series) is True
    assert series.points[0].interval.end_time.timestamp_pb().nanos == 34
    assert kept.requests == []


# ── the outlet ────────────────────────────────────────────────────────────────────────────────


def test_what_is_not_given_is_asked_of_the_machine_and_never_shared(
    metadata: MetadataService, service: tuple[MetricService, Any]
) -> None:
    kept, client = service
    options = GCPOptions()
    outlet = CloudOutlet("job", options, client=client)
    assert metadata.asked == []  # not before there is something to send
    assert outlet.takes_goodput
    assert outlet.workload == Workload("job", "us-central1-a", "0", "TPU-v5p")
    assert options == GCPOptions()
    outlet.send(job_times(WORKLOAD, 5.0, {}))
    assert [request.name for request in kept.requests] == ["projects/my-project"]


def test_what_is_given_is_not_asked_for(
    metadata: MetadataService, service: tuple[MetricService, Any]
) -> None:
    options = GCPOptions("p", "z", "7", "A", "c")
    outlet = CloudOutlet("job", options, client=service[1])
    assert outlet.takes_goodput
    assert outlet.workload == Workload("job", "z", "7", "A", "c")
    assert metadata.asked == []


def test_off_google_cloud_it_stays_silent_and_asks_again_later(
    metadata: MetadataService, service: tuple[MetricService, Any]
) -> None:
    clock = HandClock()
    values, metadata.values = metadata.values, {}
    outlet = CloudOutlet("job", GCPOptions(), client=service[1], clock=clock)
    assert not outlet.takes_goodput
    assert not outlet.takes_step_times
    assert metadata.asked == ["project/project-id"]
    outlet.send(job_times(WORKLOAD, 5.0, {}))
    assert service[0].requests == []
    metadata.values = values
    clock.move(60)
    assert outlet.takes_goodput
    assert tally.counts == {}


@pytest.mark.parametrize("goodput", [True, False])
@pytest.mark.parametrize("step_times", [True, False])
def test_what_is_turned_off_is_not_taken(
    metadata: MetadataService, service: tuple[MetricService, Any], goodput: bool, step_times: bool
) -> None:
    options = GCPOptions(
        enable_gcp_goodput_metrics=goodput, enable_gcp_step_deviation_metrics=step_times
    )
    outlet = CloudOutlet("job", options, client=service[1])
    assert outlet.takes_goodput is goodput
    assert outlet.takes_step_times is step_times
    assert bool(metadata.asked) is (goodput or step_times)


def test_numbers_that_are_none_are_left_out(service: tuple[MetricService, Any]) -> None:
    kept, client = service
    outlet = CloudOutlet("job", GCPOptions("p", "z", "0", "A"), client=client)
    assert outlet.takes_goodput
    outlet.send(job_times(WORKLOAD, float("nan"), {"OTHER": 1.0}))
    assert kept.metrics() == {"badput_time"}


def test_without_the_library_one_warning_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.monitoring_v3", None)  # as if not installed
    monkeypatch.delattr("google.cloud.monitoring_v3", raising=False)
    clock = HandClock()
    outlet = CloudOutlet("job", GCPOptions("p", "z", "0", "A"), clock=clock)
    for _ in range(3):
        assert not outlet.takes_goodput
        clock.move(3600)
    assert [r.message for r in caplog.records if "runwatch[gcp]" in r.message] == [
        "runwatch could not reach Google Cloud Monitoring: UsageError: google-cloud-monitoring is "
        'not installed: pip install "runwatch[gcp]" (logged once; repeats are only counted)'
    ]
