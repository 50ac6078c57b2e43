"""A program written for google-cloud-mldiagnostics, not changed for Runwatch."""

import logging
import math
import time

from google_cloud_mldiagnostics import machinelearning_run, metric_types, metrics

logging.basicConfig(level=logging.INFO)


def main() -> None:
    num_steps, batch_size = 100, 32
    run = machinelearning_run(
        name="mldiagnostics-program",
        run_group="examples",
        configs={"epochs": 1, "batch_size": batch_size},
        project="some-project",
        region="us-central1",
        gcs_path="gs://some-bucket",
    )
    logging.info(f"MLRun created: {run.name}")

    for step in range(num_steps):
        begin = time.perf_counter()
        loss = math.exp(-step / 30)
        time.sleep(0.002)
        step_time = time.perf_counter() - begin
        if (step + 1) % 10 == 0:
            # Model quality metrics
            metrics.record(metric_types.MetricType.LEARNING_RATE, 0.001, step=step + 1)
            metrics.record(metric_types.MetricType.LOSS, loss, step=step + 1)
            metrics.record(metric_types.MetricType.GRADIENT_NORM, loss / 2, step=step + 1)
            metrics.record(metric_types.MetricType.TOTAL_WEIGHTS, 1_000_000, step=step + 1)
            # Model performance metrics
            metrics.record_metrics(
                [
                    {"metric_name": metric_types.MetricType.STEP_TIME, "value": step_time},
                    {"metric_name": "throughput", "value": batch_size / step_time},
                ],
                step=step + 1,
            )


if __name__ == "__main__":
    main()
