"""Collectors and the table of device metrics name the same."""

from __future__ import annotations

import re
from pathlib import Path

from runwatch.agent.collectors import gpm, nvml, tpu
from runwatch.views import devices
from runwatch.views.device_metrics import DEVICE_METRICS

UNITS = {metric.name: metric.unit for metric in DEVICE_METRICS}
RECORDED = Path(__file__).parents[2] / "fixtures" / "replay"


def test_what_collectors_ask_for_is_in_the_table() -> None:
    asked = [(each.metric, each.unit) for each in (*nvml.QUICK, *nvml.FIELDS, *gpm.NUMBERS)]
    asked += [(metric, unit) for _, metric, unit in tpu.QUESTIONS]
    assert dict(asked) == {metric: UNITS.get(metric) for metric, _ in asked}


def test_what_a_gpu_was_recorded_to_say_is_in_the_table() -> None:
    said = set()
    for path in RECORDED.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            said |= set(re.findall(r'"((?:gpu|tpu)_[a-z_]+)"', line)) - {"gpu_xid"}
    assert said and said <= UNITS.keys()


def test_what_a_device_is_made_of_is_in_the_table() -> None:
    assert set(devices.METRICS) <= UNITS.keys()
    assert len(UNITS) == len(DEVICE_METRICS)
