"""Every kind of metric as plain numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from runwatch.head.features.otlp.numbers import Number, numbers
from runwatch.record import NO_STEP
from runwatch.wire.otlp import parts_of
from runwatch.wire.otlp_values import JSON
from tests.otlp import gauge, metrics_request, pair

T = 1_700_000_000_000_000_000


def read(*metrics: Any, of_wheel: bool = False) -> tuple[list[Number], list[str]]:
    """The rows, by protobuf and by JSON the same, and what was set aside."""
    request = metrics_request("job", metrics)
    by_json = json_format.MessageToJson(request).encode()
    found = []
    for parts in (list(request.resource_metrics), parts_of("metrics", by_json, JSON)):
        wrong: list[str] = []
        rows = [
            row for point in numbers(parts[0], wrong.append, of_wheel=of_wheel) for row in point
        ]
        found.append((rows, wrong))
    assert repr(found[0]) == repr(found[1])
    return found[0]


def values(rows: list[Number]) -> dict[str, float]:
    return {f"{row.metric}{_le(row)}": row.value for row in rows}


def _le(row: Number) -> str:
    labels = dict(row.labels)
    which = labels.get("le") or labels.get("quantile")
    return f"[{which}]" if which else ""


def number(**given: Any) -> pb.NumberDataPoint:
    return pb.NumberDataPoint(**{"time_unix_nano": T} | given)


def test_a_gauge_with_labels_of_every_type() -> None:
    pairs = [pair("s", "text"), pair("b", True), pair("i", 7), pair("f", 1.5)]
    metric = pb.Metric(
        name="loss", unit="1", gauge=pb.Gauge(data_points=[number(as_int=3, attributes=pairs)])
    )
    labels = (("b", "true"), ("f", "1.5"), ("i", "7"), ("s", "text"))
    assert read(metric) == ([Number("loss", "1", labels, T, NO_STEP, 3.0)], [])


@pytest.mark.parametrize(("sent", "told"), [(1, "delta"), (2, "cumulative"), (0, "unspecified")])
def test_a_counter_is_kept_as_sent_and_says_how_it_counts(sent: int, told: str) -> None:
    summed = pb.Sum(
        data_points=[number(as_int=5), number(as_double=2.5, time_unix_nano=T + 1)],
        aggregation_temporality=sent,  # type: ignore[arg-type]
        is_monotonic=sent != 0,
    )
    rows, _ = read(pb.Metric(name="steps", sum=summed))
    assert [(row.time_ns, row.value) for row in rows] == [(T, 5.0), (T + 1, 2.5)]
    monotonic = "true" if sent else "false"
    assert dict(rows[0].labels) == {"otel.temporality": told, "otel.monotonic": monotonic}


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    point = pb.HistogramDataPoint(
        time_unix_nano=T,
        count=7,
        sum=12.5,
        min=0.5,
        bucket_counts=[1, 0, 6],
        explicit_bounds=[1, 2.5],
    )
    rows, wrong = read(pb.Metric(name="w", unit="s", histogram=pb.Histogram(data_points=[point])))
    assert not wrong and values(rows) == {
        "w_count": 7, "w_sum": 12.5, "w_min": 0.5, "w_bucket[1]": 1, "w_bucket[2.5]": 1,
        "w_bucket[+Inf]": 7,
    }  # fmt: skip
    assert {row.unit for row in rows} == {"s"}, "and no w_max: nobody said one"


def test_exponential_buckets_are_merged_to_powers_of_two() -> None:
    """Scale 1: bounds are powers of the square root of two."""
    point = pb.ExponentialHistogramDataPoint(
        time_unix_nano=T, count=21, sum=3.0, scale=1, zero_count=1, max=9.0,
        positive=pb.ExponentialHistogramDataPoint.Buckets(offset=-2, bucket_counts=[1, 2, 3, 4, 5]),
        negative=pb.ExponentialHistogramDataPoint.Buckets(offset=0, bucket_counts=[2, 3]),
    )  # fmt: skip
    metric = pb.Metric(name="x", exponential_histogram=pb.ExponentialHistogram(data_points=[point]))
    rows, wrong = read(metric)
    assert not wrong and values(rows) == {
        "x_count": 21, "x_sum": 3.0, "x_max": 9.0,
        "x_bucket[-1]": 5, "x_bucket[0]": 6, "x_bucket[1]": 9, "x_bucket[2]": 16,
        "x_bucket[4]": 21, "x_bucket[+Inf]": 21,
    }  # fmt: skip


def test_exponential_buckets_of_other_scales() -> None:
    def bounds(scale: int, index: int) -> list[str]:
        side = pb.ExponentialHistogramDataPoint.Buckets(offset=index, bucket_counts=[1])
        point = pb.ExponentialHistogramDataPoint(
            time_unix_nano=T, count=1, scale=scale, positive=side
        )
        data = pb.ExponentialHistogram(data_points=[point])
        rows, _ = read(pb.Metric(name="x", exponential_histogram=data))
        return [dict(row.labels)["le"] for row in rows if row.metric == "x_bucket"]

    assert bounds(0, 3) == ["16", "+Inf"], "(8, 16]"
    assert bounds(-1, 1) == ["16", "+Inf"], "(4, 16]"
    assert bounds(20, 2**20 * 3) == ["16", "+Inf"]
    assert bounds(3, -8) == ["1", "+Inf"]
    assert bounds(0, 2**31 - 1) == ["+Inf"], "beyond all numbers"


def test_a_summary_has_quantiles() -> None:
    quantiles = [
        pb.SummaryDataPoint.ValueAtQuantile(quantile=q, value=v) for q, v in ((0.5, 3), (1, 9))
    ]
    point = pb.SummaryDataPoint(time_unix_nano=T, count=4, sum=20, quantile_values=quantiles)
    rows, _ = read(pb.Metric(name="s", summary=pb.Summary(data_points=[point])))
    assert values(rows) == {"s_count": 4, "s_sum": 20, "s[0.5]": 3, "s[1]": 9}


def test_absent_is_not_zero_and_what_is_wrong_is_set_aside_alone() -> None:
    nan = number(as_double=math.nan)
    points = [
        number(as_double=1.0),
        number(flags=1),
        number(),
        number(as_double=2, time_unix_nano=0),
    ]
    rows, wrong = read(pb.Metric(name="g", gauge=pb.Gauge(data_points=[*points, nan])))
    assert [row.value for row in rows][0] == 1.0 and math.isnan(rows[1].value) and len(rows) == 2
    assert len(wrong) == 2 and "no value" in wrong[0] and "no time" in wrong[1]
    bad = [
        pb.HistogramDataPoint(time_unix_nano=T, bucket_counts=[1, 2], explicit_bounds=[1, 2]),
        pb.HistogramDataPoint(time_unix_nano=T, bucket_counts=[1, 2, 3], explicit_bounds=[2, 1]),
    ]
    rows, wrong = read(pb.Metric(name="h", histogram=pb.Histogram(data_points=bad)))
    assert not rows and len(wrong) == 2
    assert read(pb.Metric(name="nothing")) == ([], [])
    assert len(read(pb.Metric(name="", gauge=pb.Gauge(data_points=points[:1])))[1]) == 1


def test_a_step_of_the_wheel_belongs_to_a_metric_only_if_nobody_else_can_own_it() -> None:
    wheel = {"node_id": "id", "location": "here"}
    alone = gauge("loss", [(T, 0.5)], unit="1", **wheel)
    step = gauge("training_step", [(T, 7.0)], unit="1", **wheel)
    rows, _ = read(alone, step, of_wheel=True)
    assert [(r.metric, r.unit, r.labels, r.step) for r in rows] == [
        ("loss", "1", (), 7),
        ("training_step", "1", (), 7),
    ]
    beside = gauge("eval_loss", [(T, 0.9)], unit="1", **wheel)
    rows, _ = read(alone, beside, step, of_wheel=True)
    assert [r.step for r in rows] == [NO_STEP, NO_STEP, 7], "one of the two may be older"
    later = gauge("training_step", [(T + 1, 8.0)], unit="1", **wheel)
    assert read(alone, later, of_wheel=True)[0][0].step == NO_STEP
    assert [r.step for r in read(alone, step)[0]] == [NO_STEP, NO_STEP], "not the wheel's"
