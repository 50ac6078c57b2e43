"""A program for OpenTelemetry: all that an SDK can send, in one protocol.

sdk.py TRUTH.json {grpc, http}
"""

from __future__ import annotations

import importlib
import logging
import sys

from given import watch  # type: ignore[import-not-found]
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

truth, protocol = sys.argv[1:]
ROOT = f"opentelemetry.exporter.otlp.proto.{protocol}"
MetricExporter = importlib.import_module(f"{ROOT}.metric_exporter").OTLPMetricExporter
LogExporter = importlib.import_module(f"{ROOT}._log_exporter").OTLPLogExporter
SpanExporter = importlib.import_module(f"{ROOT}.trace_exporter").OTLPSpanExporter
watch({"metrics": MetricExporter, "logs": LogExporter, "traces": SpanExporter}, truth)

reader = PeriodicExportingMetricReader(MetricExporter(), export_interval_millis=60_000)
exponential = View(instrument_name="sizes", aggregation=ExponentialBucketHistogramAggregation())
measuring = MeterProvider([reader], views=[exponential])
metrics.set_meter_provider(measuring)
tracing = TracerProvider()
tracing.add_span_processor(BatchSpanProcessor(SpanExporter()))
trace.set_tracer_provider(tracing)
logging_to = LoggerProvider()
logging_to.add_log_record_processor(BatchLogRecordProcessor(LogExporter()))
_logs.set_logger_provider(logging_to)
logger = logging.getLogger("train")
logger.addHandler(LoggingHandler(logger_provider=logging_to))
logger.setLevel(logging.INFO)

meter, tracer = metrics.get_meter("train"), trace.get_tracer("train")
loss = meter.create_gauge("loss")
steps = meter.create_counter("steps")
free = meter.create_up_down_counter("free_slots")
waits = meter.create_histogram("wait_seconds", unit="s")
sizes = meter.create_histogram("sizes", unit="By")
for step in range(20):
    with tracer.start_as_current_span("evaluation", attributes={"step": step}):
        loss.set(1 / (step + 1), {"split": "train"})
        steps.add(1)
        free.add(-1 if step % 2 else 1)
        waits.record(step / 10)
        sizes.record(2**step)
    logger.info("step %d done", step)
    if step % 5 == 4:
        measuring.force_flush()
try:
    raise ValueError("one bad batch")
except ValueError:
    logger.exception("skipped")
print("done", flush=True)
