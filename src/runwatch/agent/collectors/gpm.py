"""Counters of a Hopper or later GPU: how busy its parts were between two samples.

NVIDIA calls this GPM.  Two samples give averages over the time between them: nothing is missed,
however far apart they are.  The driver renews its counters every 100 ms, so closer samples would
say nothing.  This costs more than all other calls together (0.3 ms for a sample, milliseconds for
its numbers), so `Pace` keeps it within a share of one core.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from runwatch.agent.collectors.base import Due
from runwatch.agent.collectors.gpus import never
from runwatch.clock import Clock

LEAST_SECONDS: Final = 0.2
"""Twice the time between two renewals of the driver's counters."""
SHARE_AT_1_HZ: Final = 0.004
LARGEST_SHARE: Final = 0.025
_MEBIBYTE: Final = float(1 << 20)
_ONE_MEASURE_COUNTS: Final = 0.3


class Number(NamedTuple):
    id: int
    metric: str
    unit: str
    factor: float = 1.0


DRAM_BANDWIDTH: Final = 10
NUMBERS: Final = (
    Number(2, "gpu_sm_activity_percent", "%"),
    Number(3, "gpu_sm_occupancy_percent", "%"),
    Number(5, "gpu_tensor_activity_percent", "%"),
    Number(DRAM_BANDWIDTH, "gpu_dram_bandwidth_percent", "%"),
    Number(20, "gpu_pcie_tx_bytes_per_second", "B/s", _MEBIBYTE),
    Number(21, "gpu_pcie_rx_bytes_per_second", "B/s", _MEBIBYTE),
    Number(60, "gpu_nvlink_rx_bytes_per_second", "B/s", _MEBIBYTE),
    Number(61, "gpu_nvlink_tx_bytes_per_second", "B/s", _MEBIBYTE),
)
METRICS: Final = tuple(number.metric for number in NUMBERS)


def is_supported(library: Any, handle: Any) -> bool:
    """Raises NVMLError if the driver does not know the question."""
    return bool(library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)


class Gpm:
    """Two sample buffers of one GPU (or of one MIG instance of it), used in turn."""

    def __init__(self, library: Any, handle: Any, instance: int | None = None) -> None:
        self._library = library
        self._handle = handle
        self._instance = instance
        self._never = never(library)
        self._numbers = list(NUMBERS)
        self._request = library.c_nvmlGpmMetricsGet_t()
        self._request.version = library.NVML_GPM_METRICS_GET_VERSION
        self._older = library.nvmlGpmSampleAlloc()
        self._newer = library.nvmlGpmSampleAlloc()
        self._has_older = False

    def read(self) -> list[tuple[Number, float]]:
        """Averages since the last call; the first call gives none."""
        library = self._library
        had, self._has_older = self._has_older, False  # if this call fails, begin again
        if self._instance is None:
            library.nvmlGpmSampleGet(self._handle, self._newer)
        else:
            library.nvmlGpmMigSampleGet(self._handle, self._instance, self._newer)
        averages = list(self._between()) if had else []
        self._older, self._newer, self._has_older = self._newer, self._older, True
        return averages

    def _between(self) -> Iterator[tuple[Number, float]]:
        request = self._request
        request.sample1, request.sample2 = self._older, self._newer
        request.numMetrics = len(self._numbers)
        for place, number in enumerate(self._numbers):
            request.metrics[place].metricId = number.id
        self._library.nvmlGpmMetricsGet(request)
        for place, number in enumerate(self._numbers.copy()):
            answer = request.metrics[place]
            if answer.nvmlReturn in self._never:
                self._numbers.remove(number)
            elif not answer.nvmlReturn and math.isfinite(answer.value):
                yield number, answer.value * number.factor

    def close(self) -> None:
        for sample in (self._older, self._newer):
            self._library.nvmlGpmSampleFree(sample)


def dram_bytes_per_second(percent: float, memory_clock_hz: float, bus_bits: int) -> float:
    """A share of the memory's bandwidth in bytes.  The bus carries its width in bits on both
    edges of each tick of the memory clock, so its limit is clock × 2 × width / 8."""
    return percent / 100 * memory_clock_hz * 2 * bus_bits / 8


class Pace:
    """Chooses the time between samples so that reading all GPUs stays within a share of a core."""

    def __init__(
        self,
        period_seconds: float,
        clock: Clock,
        *,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self._period = period_seconds
        self._share = min(LARGEST_SHARE, SHARE_AT_1_HZ / period_seconds)
        self._cpu_seconds = cpu_seconds
        self._cost: float | None = None
        self._due = Due(self._rounded(LEAST_SECONDS), clock, round_seconds=period_seconds)

    @property
    def seconds(self) -> float:
        return self._due.seconds

    def is_due(self) -> bool:
        return self._due.is_due()

    def measure(self, begun_cpu_seconds: float) -> None:
        """Call after a round.  `begun_cpu_seconds`: the thread's CPU time when the round began."""
        spent = self._cpu_seconds() - begun_cpu_seconds
        before = spent if self._cost is None else self._cost
        self._cost = before + _ONE_MEASURE_COUNTS * (spent - before)
        self._due.seconds = self._rounded(max(LEAST_SECONDS, self._cost / self._share))

    def now(self) -> float:
        return self._cpu_seconds()

    def _rounded(self, seconds: float) -> float:
        """Round up to whole rounds: any other period would be late by varying amounts."""
        return self._period * max(1, math.ceil(seconds / self._period - 1e-9))
