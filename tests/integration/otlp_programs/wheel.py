"""A program for google-cloud-mldiagnostics, as its README writes them; the wheel is unmodified.

wheel.py TRUTH.json {ends, fails, hangs}
"""

from __future__ import annotations

import sys
import time

from given import POINTS, watch  # type: ignore[import-not-found]
from google_cloud_mldiagnostics import machinelearning_run, metric_types, metrics
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

truth, name, way = sys.argv[1:]
watch({"metrics": OTLPMetricExporter}, truth)
run = machinelearning_run(name=name, configs={"lr": 0.1, "layers": 3}, gcs_path="/tmp/nowhere")
print("run", run.name, flush=True)
sent = 0
for step in range(3):
    metrics.record(metric_types.MetricType.LOSS, 1.0 / (step + 1), step=step)
    metrics.record(metric_types.MetricType.STEP_TIME, 0.5, step=step)
    until = time.monotonic() + 100
    while len(POINTS) == sent and time.monotonic() < until:
        time.sleep(0.02)  # a gauge keeps its last value only: let each be sent
    sent = len(POINTS)
if way == "fails":
    raise RuntimeError("no more data")
while way == "hangs":
    time.sleep(1)
