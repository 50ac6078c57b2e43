"""Units of the metrics that most training programs have, by their usual names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNITS: Final[Mapping[str, str]] = {
    "learning_rate": "1",
    "loss": "1",
    "gradient_norm": "1",
    "total_weights": "1",
    "step_time": "s",
    "throughput": "1/s",
    "latency": "s",
    "mfu": "%",
    "tflops": "TFLOPS",
    "tpu_duty_cycle": "%",
    "tpu_tensorcore_utilization": "%",
    "hbm_utilization": "%",
    "gpu_duty_cycle": "%",
    "gpu_utilization": "%",
    "gpu_tensorcore_utilization": "%",
    "vram_utilization": "%",
    "host_cpu_utilization": "%",
    "host_memory_utilization": "%",
    "step": "1",
}
