"""Programs for google-cloud-mldiagnostics, in processes that know only the drop-in's names."""

from __future__ import annotations

import json
from pathlib import Path

from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program

# Recorded from google-cloud-mldiagnostics 1.0.10.
SIGNATURES = {
    "machinelearning_run": [
        "name", "run_group=''", "configs=None", "gcs_path=None", "base_url=None",
        "cluster_id=None", "project=None", "region='us-central1'",
        "metrics_record_interval_sec=10.0", "on_demand_xprof=False", "log_system_metrics=False",
        "environment='prod'", "framework=<Framework.JAX>", "serving_engine=<ServingEngine.NONE>",
        "run_workload_id=None", "metric_only_run=False", "metrics_exporter_config=None",
        "accelerator_orchestrator=<AcceleratorOrchestrator.NONE>",
        "application_framework=<ApplicationFramework.NONE>",
        "rl_orchestrator=<RlOrchestrator.NONE>",
    ],
    "metrics.record": [
        "metric_name", "value", "step=None", "labels=None", "record_on_all_hosts=False",
    ],
    "metrics.record_metrics": ["metrics_data", "record_on_all_hosts=False", "step=None"],
}  # fmt: skip

METRIC_TYPES = {
    "LEARNING_RATE": "learning_rate",
    "LOSS": "loss",
    "GRADIENT_NORM": "gradient_norm",
    "TOTAL_WEIGHTS": "total_weights",
    "STEP_TIME": "step_time",
    "THROUGHPUT": "throughput",
    "LATENCY": "latency",
    "MFU": "mfu",
    "TFLOPS": "tflops",
    "TPU_DUTY_CYCLE": "tpu_duty_cycle",
    "TPU_TENSORCORE_UTILIZATION": "tpu_tensorcore_utilization",
    "HBM_UTILIZATION": "hbm_utilization",
    "GPU_DUTY_CYCLE": "gpu_duty_cycle",
    "GPU_UTILIZATION": "gpu_utilization",
    "GPU_TENSORCORE_UTILIZATION": "gpu_tensorcore_utilization",
    "VRAM_UTILIZATION": "vram_utilization",
    "HOST_CPU_UTILIZATION": "host_cpu_utilization",
    "HOST_MEMORY_UTILIZATION": "host_memory_utilization",
    "STEP": "step",
}


def test_signatures_and_types_are_the_originals(tmp_path: Path) -> None:
    done = run_program(
        """
        import enum, inspect, json
        from google_cloud_mldiagnostics import machinelearning_run, metrics, metric_types
        def shown(default):
            if isinstance(default, enum.Enum):
                return f"<{type(default).__name__}.{default.name}>"
            return repr(default)
        def signature(function):
            return [p.name if p.default is p.empty else f"{p.name}={shown(p.default)}"
                    for p in inspect.signature(function).parameters.values()]
        print(json.dumps({
            "machinelearning_run": signature(machinelearning_run),
            "metrics.record": signature(metrics.record),
            "metrics.record_metrics": signature(metrics.record_metrics),
        }))
        print(json.dumps({m.name: m.value for m in metric_types.MetricType}))
        print([t.value for t in metric_types.AcceleratorType])
        """,
        tmp_path,
    )
    signatures, types, accelerators = done.stdout.splitlines()
    assert json.loads(signatures) == SIGNATURES
    assert json.loads(types) == METRIC_TYPES
    assert accelerators == "['tpu', 'gpu', 'cpu', 'unknown']"


def test_the_other_names_a_program_may_import(tmp_path: Path) -> None:
    done = run_program(
        """
        import google_cloud_mldiagnostics as mld
        from google_cloud_mldiagnostics._version import get_version
        from google_cloud_mldiagnostics.api import metrics, mlrun
        from google_cloud_mldiagnostics.core import global_manager
        from google_cloud_mldiagnostics.custom_types import exceptions, metric_types, mlrun_types
        assert mld.metrics is metrics and mld.metric_types is metric_types
        assert issubclass(exceptions.MLRunConfigurationError, ValueError)
        assert issubclass(exceptions.RecordingError, ValueError)
        manager = global_manager.get_global_run_manager()
        assert not manager.has_active_run() and global_manager.get_current_run() is None
        run = mlrun.machinelearning_run("names", project="p", run_group="g")
        assert isinstance(run, mlrun_types.MLRun)
        assert global_manager.get_current_run() is run
        assert global_manager.get_current_run_id() == run.name == manager.run_id
        assert (manager.run_group, manager.project_id) == ("g", "p")
        assert manager.location == "us-central1"
        manager.clear()
        assert not manager.is_initialized()
        print(run.run_phase.value, get_version())
        """,
        tmp_path,
    )
    assert done.stdout == "COMPLETED 1.0.10\n", done.stderr


def test_the_metrics_loop_of_the_originals_guide(tmp_path: Path) -> None:
    done = run_program(
        """
        from google_cloud_mldiagnostics import machinelearning_run, metrics
        from google_cloud_mldiagnostics import metric_types
        machinelearning_run(name="guide", run_group="g", configs={"epochs": 100})
        num_steps = 20
        step_size, loss, gradient, total_weights = 0.1, 0.2, 0.3, 4
        step_time, throughput, latency, tflops, mfu = 0.5, 6, 0.7, 8, 9
        for step in range(num_steps):
          if (step + 1) % 10 == 0:
            # Model quality metrics
            metrics.record(metric_types.MetricType.LEARNING_RATE, step_size, step=step+1)
            metrics.record(metric_types.MetricType.LOSS, loss, step=step+1)
            metrics.record(metric_types.MetricType.GRADIENT_NORM, gradient, step=step+1)
            metrics.record(metric_types.MetricType.TOTAL_WEIGHTS, total_weights, step=step+1)
            # Model performance metrics
            metrics.record(metric_types.MetricType.STEP_TIME, step_time, step=step+1)
            metrics.record(metric_types.MetricType.THROUGHPUT, throughput, step=step+1)
            metrics.record(metric_types.MetricType.LATENCY, latency, step=step+1)
            metrics.record(metric_types.MetricType.TFLOPS, tflops, step=step+1)
            metrics.record(metric_types.MetricType.MFU, mfu, step=step+1)
        """,
        tmp_path,
    )
    (story,) = read_stories(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(story.numbers) == 18
    assert story.steps("mfu") == [10, 20]
    assert {n.metric: (n.value, n.unit) for n in story.numbers} == {
        "learning_rate": (0.1, "1"),
        "loss": (0.2, "1"),
        "gradient_norm": (0.3, "1"),
        "total_weights": (4.0, "1"),
        "step_time": (0.5, "s"),
        "throughput": (6.0, "1/s"),
        "latency": (0.7, "s"),
        "tflops": (8.0, "TFLOPS"),
        "mfu": (9.0, "%"),
    }
    assert story.end["status"] == "completed"


def test_two_thousand_records_and_a_sudden_exit(tmp_path: Path) -> None:
    run_program(
        """
        import os
        from google_cloud_mldiagnostics import machinelearning_run, metrics
        machinelearning_run(name="exit")
        for i in range(2000):
            metrics.record("loss", i / 2, step=i)
        os._exit(0)
        """,
        tmp_path,
    )
    (story,) = read_stories(tmp_path)
    assert story.values("loss") == [i / 2 for i in range(2000)]


def test_every_rank_of_a_workload_has_the_same_run(tmp_path: Path) -> None:
    identifier = {
        "metadata.name": "train", "metadata.kind": "JobSet", "namespace": "ns",
        "clustername": "projects/p/locations/l/clusters/c",
    }  # fmt: skip
    for rank in range(3):
        run_program(
            """
            from google_cloud_mldiagnostics import machinelearning_run, metrics
            machinelearning_run(name="workload")
            metrics.record("loss", 1.0)
            metrics.record("everywhere", 2.0, record_on_all_hosts=True)
            """,
            tmp_path,
            GKE_DIAGON_IDENTIFIER=json.dumps(identifier),
            GKE_DIAGON_METADATA=json.dumps({"creation-timestamp": "2026-01-02T03:04:05Z"}),
            JOB_COMPLETION_INDEX=str(rank),
        )
    stories = read_stories(tmp_path)
    assert len({s.scopes[0].run for s in stories}) == 1
    assert [s.scopes[0].rank for s in stories] == [0, 1, 2]
    assert [s.values("loss") for s in stories] == [[1.0], [], []]
    assert [s.values("everywhere") for s in stories] == [[2.0]] * 3
