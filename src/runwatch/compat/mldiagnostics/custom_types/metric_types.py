"""Names and units of the metrics every training program has."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

from runwatch.sdk.values.units import UNITS


class MetricType(StrEnum):
    LEARNING_RATE = "learning_rate"
    LOSS = "loss"
    GRADIENT_NORM = "gradient_norm"
    TOTAL_WEIGHTS = "total_weights"
    STEP_TIME = "step_time"
    THROUGHPUT = "throughput"
    LATENCY = "latency"
    MFU = "mfu"
    TFLOPS = "tflops"
    TPU_DUTY_CYCLE = "tpu_duty_cycle"
    TPU_TENSORCORE_UTILIZATION = "tpu_tensorcore_utilization"
    HBM_UTILIZATION = "hbm_utilization"
    GPU_DUTY_CYCLE = "gpu_duty_cycle"
    GPU_UTILIZATION = "gpu_utilization"
    GPU_TENSORCORE_UTILIZATION = "gpu_tensorcore_utilization"
    VRAM_UTILIZATION = "vram_utilization"
    HOST_CPU_UTILIZATION = "host_cpu_utilization"
    HOST_MEMORY_UTILIZATION = "host_memory_utilization"
    STEP = "step"

    # The plain string's hash, in C: `MetricType.LOSS` and "loss" are the same key of a dict.
    __hash__ = str.__hash__


class AcceleratorType(Enum):
    TPU = "tpu"
    GPU = "gpu"
    CPU = "cpu"
    UNKNOWN = "unknown"


METRIC_UNITS: Final[dict[MetricType, str]] = {metric: UNITS[metric] for metric in MetricType}

SYSTEM_METRICS: Final = frozenset(
    m for m in MetricType if m.value.startswith(("tpu_", "gpu_", "hbm_", "vram_", "host_"))
)
