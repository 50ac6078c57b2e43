"""What the original is made of, under its names, does something true to the current run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runwatch.compat.mldiagnostics.api.mlrun import machinelearning_run
from runwatch.compat.mldiagnostics.clients.control_plane_client import ControlPlaneClient
from runwatch.compat.mldiagnostics.clients.logging_client import LoggingClient, NoOpLoggingClient
from runwatch.compat.mldiagnostics.clients.self_hosted_diagon_service_client import (
    SelfHostedDiagonServiceClient,
)
from runwatch.compat.mldiagnostics.core import global_manager, xprof, xprof_proxy
from runwatch.compat.mldiagnostics.core.create_mlrun import initialize_mlrun
from runwatch.compat.mldiagnostics.core.metrics import MetricsRecorderThread, metrics_recorder
from runwatch.compat.mldiagnostics.custom_types.exceptions import NoActiveRunError, ProfilingError
from runwatch.compat.mldiagnostics.custom_types.metric_types import AcceleratorType, MetricType
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import Framework, MLRun, RunPhase
from runwatch.compat.mldiagnostics.exporters.base_exporter import (
    BaseMetricsExporter,
    CompositeLogsExporter,
    CompositeMetricsExporter,
    LogEntry,
    MetricPoint,
)
from runwatch.compat.mldiagnostics.exporters.cloud_logging import (
    CloudLoggingLogsExporter,
    CloudLoggingMetricsExporter,
)
from runwatch.compat.mldiagnostics.utils import config_utils, gcp, host_utils, metric_utils
from runwatch.compat.mldiagnostics.utils.gpu_utils import gpu_metric
from runwatch.compat.mldiagnostics.utils.orchestrator_utils import detect_orchestrator
from runwatch.compat.mldiagnostics.utils.run_phase_utils import RunPhaseMonitor
from runwatch.testing import Story

Tell = Callable[[], Story]
WHERE = {"project_id": "p", "run_id": "n", "location": "us-central1"}


def test_the_recorder_records_and_keeps_means(story: Tell) -> None:
    machinelearning_run("n")
    metrics_recorder.record("mfu", 40.0, step=1)
    metrics_recorder.record(MetricType.MFU, 50.0, step=2)
    metrics_recorder.record("mfu", None)
    metrics_recorder.record_metrics([{"metric_name": "loss", "value": 2.5, "step": 2}])
    assert metrics_recorder.get_metric_tracker()["mfu"]["avg"] == 45.0
    metrics_recorder.stop()
    told = story()
    assert (told.values("mfu"), told.values("loss")) == ([40.0, 50.0], [2.5])


def test_a_thread_records_what_it_is_told_to_look_at(story: Tell) -> None:
    machinelearning_run("n")
    asked = threading.Event()

    def look() -> float:
        asked.set()
        return 7.0

    def fail() -> float:
        raise OSError("no such thing")

    thread = MetricsRecorderThread([("broken", fail, None), ("seen", look, {"a": "b"})], 60.0)
    thread.start()
    assert asked.wait(100)
    thread.stop()
    assert story().values("seen") == [7.0]


def test_clients_and_exporters_record_in_the_run(story: Tell) -> None:
    machinelearning_run("n", project="p")
    client = LoggingClient("p")
    client.write_metric("loss", 1.5, "n", "us-central1", step=3)
    with pytest.raises(ValueError, match="us-central1-a"):
        client.write_metric("loss", 1.5, "n", "us-central1-a")
    NoOpLoggingClient().write_metric("loss", 9.0, "n", "us-central1")
    CloudLoggingMetricsExporter(WHERE).export([MetricPoint("loss", 2.5, 4)])
    CloudLoggingLogsExporter(WHERE, client).export([LogEntry("hello", labels={"namespace": "x"})])
    manager = global_manager.get_global_run_manager()
    (exporter,) = manager.metrics_exporters
    exporter.export([MetricPoint("loss", 3.5, 5)])
    (logs,) = manager.logs_exporters
    logs.export([LogEntry({"a": 1})])
    told = story()
    assert told.values("loss") == [1.5, 2.5, 3.5]
    assert told.steps("loss") == [3, 4, 5]
    said = [(e.body["name"], e.body["value"]) for e in told.events if e.kind == "log"]
    assert said == [("x", "hello"), ("sdk_logs", {"a": 1})]


@pytest.mark.parametrize("missing", ["project_id", "run_id"])
def test_an_exporter_wants_to_know_the_run(missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        CloudLoggingMetricsExporter({**WHERE, missing: ""})


def test_an_exporter_that_fails_does_not_keep_the_others() -> None:
    seen: list[MetricPoint] = []

    class Fails(BaseMetricsExporter):
        def export(self, batch: Any) -> None:
            raise OSError("full")

    class Keeps(BaseMetricsExporter):
        def export(self, batch: Any) -> None:
            seen.extend(batch)

    both = CompositeMetricsExporter([Fails({}), Keeps({})], {})
    both.export([MetricPoint("a", 1)])
    both.shutdown()
    CompositeLogsExporter([], {}).force_flush()
    assert seen == [MetricPoint("a", 1)]


@pytest.mark.parametrize("phase", ["COMPLETED", "FAILED"])
def test_the_control_plane_answers_from_the_run_and_ends_it(phase: str) -> None:
    run = machinelearning_run("n", run_group="g", gcs_path="gs://b")
    manager = global_manager.get_global_run_manager()
    client = manager.control_plane_client
    assert client is not None and manager.last_updated_run == client.get_ml_run(run.name)
    told = client.get_ml_run(f"projects/p/locations/l/machineLearningRuns/{run.name}")
    assert (told["displayName"], told["runSet"]) == ("n", "g")
    assert (told["artifacts"], told["runPhase"]) == ({"gcsPath": "gs://b"}, "ACTIVE")
    assert client.get_ml_run("another") == {"name": "another"}
    client.update_ml_run("another", run_phase=phase)
    assert run.run_phase is RunPhase.PHASE_ACTIVE
    client.update_ml_run(run.name, run_phase=phase, configs={"lr": 2})
    assert (run.run_phase.value, run.config["lr"]) == (phase, 2)


def test_the_self_hosted_client_sends_nothing() -> None:
    client = SelfHostedDiagonServiceClient("http://127.0.0.1:1/", "c")  # nobody listens there
    made = client.create_ml_run("n", "N", "ACTIVE")
    assert made == {"name": "n", "displayName": "N", "runPhase": "ACTIVE"}
    assert isinstance(client, ControlPlaneClient)
    assert client.get_operation("o") == {"name": "o", "done": True}


def test_there_is_one_manager_and_it_begins_runs() -> None:
    manager = global_manager.GlobalRunManager("any", thing=1)
    assert manager is global_manager.GlobalRunManager.get_instance()
    assert manager is global_manager.get_global_run_manager()
    assert manager.metrics_exporters == [] and global_manager.get_logging_client() is None
    described = MLRun("n", configs={"lr": 1}, location="us-east1", project="p")
    assert global_manager.initialize_with_mlrun(described) is manager
    assert (manager.run_id, manager.location, manager.project_id) == ("n", "us-east1", "p")
    run = manager.run
    global_manager.register_run(run)
    assert manager.run is run and isinstance(run, MLRun)
    assert len({run, described.name}) == 2  # it can be in a set, as any run


def test_a_description_has_a_region() -> None:
    with pytest.raises(ValueError, match="us-central1-a"):
        MLRun("n", location="us-central1-a")


def test_initialize_takes_its_own_order() -> None:
    run = initialize_mlrun("n", "staging", False, run_group="g", region="us-east1")
    assert (run.display_name, run.environment, run.location) == ("n", "staging", "us-east1")


def test_cleanup_handlers_run_once_at_the_end_of_the_program(tmp_path: Path) -> None:
    program = """
        from google_cloud_mldiagnostics import machinelearning_run
        from google_cloud_mldiagnostics.utils.run_phase_utils import RunPhaseMonitor
        machinelearning_run("n")
        monitor = RunPhaseMonitor()
        monitor.start()
        assert RunPhaseMonitor.get_active_monitor() is monitor
        def fail():
            raise OSError("no")
        RunPhaseMonitor.register_cleanup_handler(fail)
        RunPhaseMonitor.register_cleanup_handler(lambda: print("first"))
        monitor.exit_cleanup()
        RunPhaseMonitor.register_cleanup_handler(lambda: print("second"))
        raise RuntimeError("ends so")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=_environment(tmp_path), text=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "first\nsecond\n", done.stderr
    assert "ends so" in done.stderr


def _environment(place: Path) -> dict[str, str]:
    return {**os.environ, "RUNWATCH_DIR": str(place), "RUNWATCH_AGENT": "off"}


def test_a_monitor_needs_a_run_and_may_end_it() -> None:
    with pytest.raises(NoActiveRunError):
        RunPhaseMonitor()
    run = machinelearning_run("n")
    RunPhaseMonitor().update_ml_run_with_phase(RunPhase.PHASE_FAILED)
    assert run.run_phase is RunPhase.PHASE_FAILED


def test_engines_profile_the_current_run(tmp_path: Path) -> None:
    engine = xprof.get_profiler_engine(Framework.PYTORCH)
    assert isinstance(engine, xprof.PyTorchProfilerEngine)
    assert isinstance(xprof.get_profiler_engine(Framework.JAX), xprof.JaxProfilerEngine)
    with pytest.raises(ProfilingError):
        engine.start_trace(str(tmp_path), "s1")
    machinelearning_run("n", gcs_path=str(tmp_path))
    profile = engine.start_trace(str(tmp_path), "s1")
    assert profile.session == "s1"
    engine.stop_trace(profile)
    engine.stop_trace(None)


def test_each_process_has_a_port_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    machinelearning_run("n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = xprof_proxy.OnDemandXprofProxyServer(port - 2, local_world_size=4)
    server.start()
    socket.create_connection(("127.0.0.1", port), timeout=100).close()
    server.stop()
    assert xprof_proxy.get_internal_port(3) == 10003
    xprof_proxy.OnDemandXprofProxyHandler(4).service(None)


def test_workloads_have_the_ids_of_either_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_utils.get_workload_details() is None
    identifier = {"metadata.name": "train", "metadata.kind": "JobSet", "namespace": "ns",
                  "clustername": "projects/p/locations/l/clusters/c_1"}  # fmt: skip
    metadata = {"creation-timestamp": "2026-01-02T03:04:05Z", "associated-labels": "a=b, c=d"}
    monkeypatch.setenv("GKE_DIAGON_IDENTIFIER", json.dumps(identifier))
    monkeypatch.setenv("GKE_DIAGON_METADATA", json.dumps(metadata))
    details = host_utils.get_workload_details()
    assert details is not None and details["labels"] == {"a": "b", "c": "d"}
    run = machinelearning_run("n")
    assert host_utils.get_identifier("GKE", details) == run.name
    older = host_utils.get_identifier("My_Run", details)
    assert older == "my-run-c-1-ns-jobset-train-20260102-030405"
    with pytest.raises(ValueError, match="GKE_DIAGON_IDENTIFIER"):
        host_utils.get_identifier("GKE", {**details, "cluster": ""})


def test_slurm_and_custom_workloads_have_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "big")
    monkeypatch.setenv("SLURM_JOB_START_TIME", "1767323045")
    run = machinelearning_run("n")
    details = host_utils.get_workload_details("SLURM")
    assert host_utils.get_identifier("SLURM", details) == run.name
    mine = host_utils.get_workload_details("CUSTOM", "w1")
    assert mine is not None and mine["display_name"] == "w1"
    same = host_utils.get_identifier("CUSTOM", mine)
    assert same == machinelearning_run("m", run_workload_id="w1").name
    assert host_utils.get_workload_targets("GKE") is None
    for kind in ("SLURM", "CUSTOM"):
        with pytest.raises(ValueError, match="lack"):
            host_utils.get_identifier(kind, {})


def test_what_this_machine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (host_utils.get_process_index(), host_utils.is_master_host()) == (3, False)
    assert not host_utils.is_local_master_process()
    assert host_utils.sanitize_identifier("_A b!c_") == "a-b-c"
    assert host_utils.effective_session_id("s") == "s"
    assert len(host_utils.effective_session_id().split("_")) == 3
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-16")
    assert host_utils.get_accelerator_type() is AcceleratorType.TPU
    tpu = config_utils.EnvVarTpuHardwareConfig()
    assert tpu.get_config()["devices_per_slice"] == "8"
    assert 0 <= (metric_utils.get_host_memory_utilization() or -1) <= 100
    assert metric_utils.get_tpu_duty_cycle() is None
    assert config_utils.sanitize_config({"a": None}) == {"a": "None"}


def test_off_google_s_cloud_nothing_is_known_and_nothing_invented() -> None:
    if gcp.get_instance_metadata("id") is not None:
        pytest.skip("this machine has a metadata service")
    assert gcp.get_project_id() is None and gcp.get_instance_region() is None
    assert gcp.get_tpu_accelerator_type() is None
    assert detect_orchestrator() == "CUSTOM"
    with pytest.raises(RuntimeError, match="instance id"):
        host_utils.get_instance_id()
    if not Path("/dev/nvidiactl").exists():
        assert gpu_metric.get_gpu_duty_cycle() == gpu_metric.get_vram_utilization() == []
        assert gpu_metric.get_gpu_device_info() == ("unknown", 0)
