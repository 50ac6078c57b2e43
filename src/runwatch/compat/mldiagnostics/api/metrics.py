"""`metrics.record` and `metrics.record_metrics`: for programs that pass no run around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runwatch.sdk.guard import guarded, record, tally

__all__ = ["record", "record_metrics"]


def record_metrics(
    metrics_data: Iterable[Mapping[str, Any]],
    record_on_all_hosts: bool = False,
    step: int | None = None,
) -> None:
    """Record several: each a dict of `metric_name`, `value` and, if need be, `step`, `labels`.

    `step` is for those that have none of their own.  Never raises.
    """
    _record_all(metrics_data, record_on_all_hosts, step)


@guarded("record metrics")
def _record_all(
    items: Iterable[Mapping[str, Any]], record_on_all_hosts: bool, step: int | None
) -> None:
    for item in items:
        if not isinstance(item, Mapping) or "metric_name" not in item or "value" not in item:
            tally.count("metrics item", "record_metrics() takes dicts of metric_name and value")
            continue
        record(
            item["metric_name"],
            item["value"],
            item.get("step", step),
            item.get("labels"),
            record_on_all_hosts,
        )
