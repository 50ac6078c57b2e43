"""Metrics of OTLP as series: every kind of metric becomes plain numbers with names and labels.

A histogram `x` becomes `x_count`, `x_sum`, `x_min`, `x_max`, and `x_bucket` for each bound: how
many values were at most `le`.  Exponential buckets are merged until their bounds are powers of two,
which loses no count and keeps the bounds the same from one message to the next.  A summary becomes
`x_count`, `x_sum`, and `x` for each `quantile`.  Counters and histograms are kept as they were
sent; labels say whether a number counts from the start (cumulative) or from the last one (delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final, NamedTuple

from runwatch.record import NO_STEP
from runwatch.record.checks import INT64, LATEST_NS, LONGEST_TEXT
from runwatch.record.door import MOST_LABELS
from runwatch.wire.otlp_values import attributes, text

TEMPORALITY: Final = "otel.temporality"
MONOTONIC: Final = "otel.monotonic"
SCOPE: Final = "otel.scope.name"
STEPS: Final = "training_step"
"""google-cloud-mldiagnostics sends the step as a gauge beside each metric."""
_TEMPORALITY: Final = {1: "delta", 2: "cumulative"}
_NO_VALUE: Final = 1
"""The flag of a point that says: there was no value."""
_LONGEST_UNIT: Final = 200
_FARTHEST: Final = 1100
"""No double is larger than two to this."""
_OF_WHEEL: Final = ("node_id", "location", "unit")
"""Labels that say again what the run says, and the unit."""

Labels = tuple[tuple[str, str], ...]
Reject = Callable[[str], object]


class Number(NamedTuple):
    """A value of a series at a time."""

    metric: str
    unit: str
    labels: Labels
    time_ns: int
    step: int
    value: float


def numbers(part: Any, reject: Reject, *, of_wheel: bool = False) -> Iterator[list[Number]]:
    """The numbers of one resource, those of a point together.  `reject` is told of each point that
    is wrong, and why."""
    for scoped in part.scope_metrics:
        scope = {} if of_wheel or not scoped.scope.name else {SCOPE: scoped.scope.name}
        steps = _steps(scoped.metrics) if of_wheel else {}
        for metric in scoped.metrics:
            yield from _of_metric(metric, scope, steps, reject, of_wheel)


def _of_metric(
    metric: Any, scope: Mapping[str, str], steps: Mapping[Any, int], reject: Reject, of_wheel: bool
) -> Iterator[list[Number]]:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data, unit = getattr(metric, kind), metric.unit[:_LONGEST_UNIT]
    common = dict(scope)
    if kind != "gauge" and kind != "summary":
        common[TEMPORALITY] = _TEMPORALITY.get(data.aggregation_temporality, "unspecified")
    if kind == "sum":
        common[MONOTONIC] = "true" if data.is_monotonic else "false"
    read = _READERS[kind]
    for point in data.data_points:
        if point.flags & _NO_VALUE:
            continue
        said = attributes(point.attributes)
        rows = _wrong(metric.name, point, said) or read(point)
        if isinstance(rows, str):
            reject(rows)
            continue
        step, own_unit = NO_STEP, unit
        if of_wheel:
            own_unit = unit or text(said.get("unit", ""))[:_LONGEST_UNIT]
            step = _step(metric.name, point, said, steps)
            said = {name: value for name, value in said.items() if name not in _OF_WHEEL}
        labels = {n: v if type(v) is str else text(v) for n, v in said.items()} | common
        known, time_ns = tuple(sorted(labels.items())), point.time_unix_nano
        yield [
            Number(
                metric.name + ending,
                own_unit,
                tuple(sorted((labels | more).items())) if more else known,
                time_ns,
                step,
                value,
            )
            for ending, more, value in rows
        ]


def _wrong(name: str, point: Any, said: Mapping[str, Any]) -> str:
    if not name or len(name) > LONGEST_TEXT - 100:
        return "a metric without a name" if not name else "a metric's name is too long"
    if not 0 < point.time_unix_nano <= LATEST_NS:
        return f"a point of {name[:80]!r} has no time, or an impossible one"
    if len(said) > MOST_LABELS - 8:
        return f"a point of {name[:80]!r} has {len(said)} attributes"
    return ""


# ── steps ──────────────────────────────────────────────────────────────────────────────────────


def _steps(metrics: Iterable[Any]) -> dict[tuple[int, str], int]:
    """The step at each time and set of labels where it can be told to which metric it belongs.

    The SDK stamps every gauge with the time of the collection, and a gauge has only its last value.
    Beside one metric the step is that metric's.  Beside several, one of them may be older.
    """
    steps: dict[tuple[int, str], int] = {}
    beside: dict[tuple[int, str], int] = {}
    for metric in metrics:
        for point in metric.gauge.data_points:
            key = point.time_unix_nano, repr(attributes(point.attributes))
            if metric.name == STEPS:
                steps[key] = _whole(point)
            else:
                beside[key] = beside.get(key, 0) + 1
    return {key: step for key, step in steps.items() if beside.get(key) == 1}


def _step(name: str, point: Any, said: Mapping[str, Any], steps: Mapping[Any, int]) -> int:
    if name == STEPS:
        return _whole(point)
    return steps.get((point.time_unix_nano, repr(said)), NO_STEP)


def _whole(point: Any) -> int:
    value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
    return int(value) if math.isfinite(value) and abs(value) < INT64 else NO_STEP


# ── each kind ──────────────────────────────────────────────────────────────────────────────────

Rows = list[tuple[str, dict[str, str], float]]
"""The ending of the name, more labels, and the value."""


def _plain(point: Any) -> Rows | str:
    kind = point.WhichOneof("value")
    if kind is None:
        return "a point has no value"
    return [("", {}, float(getattr(point, kind)))]


def _whole_of(point: Any, names: Iterable[str]) -> Rows:
    """Count and sum, and what else there is: absent is not zero."""
    rows: Rows = [("_count", {}, float(point.count))]
    for name in names:
        if point.HasField(name):
            rows.append((f"_{name}", {}, getattr(point, name)))
    return rows


def _histogram(point: Any) -> Rows | str:
    rows = _whole_of(point, ("sum", "min", "max"))
    counts, bounds = point.bucket_counts, point.explicit_bounds
    if not counts and not bounds:
        return rows
    if len(counts) != len(bounds) + 1:
        return f"a histogram has {len(counts)} buckets and {len(bounds)} bounds"
    if any(not low < high for low, high in zip(bounds, bounds[1:], strict=False)):
        return "the bounds of a histogram do not rise"
    if any(math.isnan(bound) for bound in bounds):
        return "a bound of a histogram is not a number"
    return rows + _buckets(zip((*bounds, math.inf), counts, strict=True))


def _exponential(point: Any) -> Rows | str:
    if not -10 <= point.scale <= 20:
        return f"an exponential histogram has scale {point.scale}"
    rows = _whole_of(point, ("sum", "min", "max"))
    merged: dict[float, int] = {}
    for sign, side in ((-1, point.negative), (1, point.positive)):
        for index, count in enumerate(side.bucket_counts, side.offset):
            if count:
                power = _power(index, point.scale, upper=sign > 0)
                bound = sign * 2.0**power if power < 1024 else sign * math.inf
                merged[bound] = merged.get(bound, 0) + count
    if point.zero_count:
        merged[0.0] = merged.get(0.0, 0) + point.zero_count
    merged.setdefault(math.inf, 0)
    return rows + _buckets(sorted(merged.items()))


def _power(index: int, scale: int, *, upper: bool) -> int:
    """The power of two that bounds the bucket of this index: from above, or from below."""
    if scale >= 0:
        low, high = index >> scale, (index >> scale) + 1
    else:
        low, high = index << -scale, (index + 1) << -scale
    power = high if upper else low
    return max(-_FARTHEST, min(power, _FARTHEST))


def _buckets(counted: Iterable[tuple[float, int]]) -> Rows:
    pairs = list(counted)
    sums = accumulate(count for _, count in pairs)
    return [
        ("_bucket", {"le": _bound(bound)}, float(total))
        for (bound, _), total in zip(pairs, sums, strict=True)
    ]


def _bound(bound: float) -> str:
    if math.isinf(bound):
        return "+Inf" if bound > 0 else "-Inf"
    return str(int(bound)) if bound.is_integer() and abs(bound) < 1e15 else repr(bound)


def _summary(point: Any) -> Rows | str:
    rows: Rows = [("_count", {}, float(point.count)), ("_sum", {}, point.sum)]
    for each in point.quantile_values:
        rows.append(("", {"quantile": _bound(each.quantile)}, each.value))
    return rows


_READERS: Final[Mapping[str, Callable[[Any], Rows | str]]] = {
    "gauge": _plain,
    "sum": _plain,
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
