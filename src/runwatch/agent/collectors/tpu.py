"""TPU chips, through libtpu's monitoring library.

The library gives one text per chip of this host and question, and none while no program uses the
chips.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from runwatch.agent.collectors.base import (
    DeviceCollector,
    Devices,
    Held,
    Labels,
    Owners,
    Sample,
)

LEAST_SECONDS: Final = 1.0
"""libtpu renews its numbers no more often than this."""
_PATTERNS: Final = ("accel*", "vfio/[0-9]*")
NODES: Final = ("/dev/accel", "/dev/vfio/")
VARIABLES: Final = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
QUESTIONS: Final = (
    ("duty_cycle_pct", "tpu_duty_cycle_percent", "%"),
    ("tensorcore_util", "tpu_tensorcore_utilization_percent", "%"),
    ("hbm_capacity_usage", "tpu_hbm_used_bytes", "B"),
    ("hbm_capacity_total", "tpu_hbm_total_bytes", "B"),
)


def present(dev: Path = Path("/dev")) -> bool:
    """/dev/vfio may belong to other hardware: then libtpu is not installed, or finds no chips."""
    return any(True for pattern in _PATTERNS for _ in dev.glob(pattern))


def open_collectors(devices: Devices, library: Any = None) -> Sequence[DeviceCollector]:
    if library is None:
        try:
            library = importlib.import_module("libtpu.sdk.tpumonitoring")
        except ImportError:
            return ()
    period = max(LEAST_SECONDS, devices.period_seconds)
    return (TpuCollector(library, devices.owners, period_seconds=period),)


class TpuCollector:
    name = "tpu"

    def __init__(self, library: Any, owners: Owners, *, period_seconds: float = 1.0) -> None:
        self.period_seconds = period_seconds
        self._library = library
        self._owners = owners
        self._questions = self._supported()
        self._labels: list[Labels] = []

    def _supported(self) -> list[tuple[str, str, str]]:
        known = {str(name) for name in self._library.list_supported_metrics()}
        return [question for question in QUESTIONS if question[0] in known]

    def collect(self) -> Iterator[Sample]:
        answers = [(metric, unit, self._ask(name)) for name, metric, unit in self._questions]
        self._know(max((len(chips) for _, _, chips in answers), default=0))
        for metric, unit, chips in answers:
            for chip, value in enumerate(chips):
                if value is not None:
                    owner = self._owners.of(f"tpu{chip}")
                    labels = self._labels[chip].with_owner(owner)
                    yield Sample(metric, value, unit, f"tpu{chip}", labels, owner.scope)

    def close(self) -> None:
        self._owners.tell(self.name, ())

    def _ask(self, question: str) -> list[float | None]:
        try:
            data = self._library.get_metric(question).data()
        except RuntimeError:
            return []  # the program that used the chips has just ended
        return [_number(text) for text in data or ()]

    def _know(self, chips: int) -> None:
        while len(self._labels) < chips:
            self._labels.append(Labels({"index": str(len(self._labels))}))
        held = [
            # libtpu does not say which program uses a chip.
            Held(f"tpu{chip}", chip, "", None, NODES, VARIABLES)
            for chip in range(chips)
        ]
        self._owners.tell(self.name, held)


def _number(text: object) -> float | None:
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
