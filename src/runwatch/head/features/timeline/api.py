"""A run's timeline under /api/v1: its account, events, metrics, spans, and heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from runwatch.head.context import Context, Feature
from runwatch.head.features.timeline import bands, heatmaps
from runwatch.head.features.timeline.answers import Timelines
from runwatch.head.features.timeline.types import HeatmapInfo, HeatMetrics, TimelineInfo
from runwatch.head.http.answering import answered
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import END, RUN, START, Parameter, limit


def _number(name: str, words: str, default: int, most: int, least: int = 1) -> Parameter:
    return Parameter(name, "integer", words, minimum=least, maximum=most, default=default)


_TIMELINE: Final = (
    RUN,
    START,
    END,
    _number("pixels", "merge what is shorter than the window / this", 1500, 10_000),
    _number("events", "at most so many events", 500, 5000, 0),
)
_METRICS: Final = Parameter(
    "metric", "string", "the metrics to draw", shortest=1, repeated=True, required=True
)
_HEATMAP: Final = (
    RUN,
    Parameter("metric", "string", "of each device", shortest=1, required=True),
    START,
    END,
    _number("columns", "at most so many", 600, 4000),
    _number("rows", "at most so many; neighbours then share one", 256, 10_000),
    Parameter(
        "statistic",
        "string",
        "of what is in a cell",
        choices=heatmaps.STATISTICS,
        default="mean",
    ),
)


class TimelineApi(Feature):
    """A run's timeline, the metrics and spans on it, and heat maps of its devices."""

    def __init__(self, context: Context) -> None:
        self._reading = context.reading
        self._timelines = Timelines(context.reading, context.accounts, context.board)

    def operations(self) -> Sequence[Operation]:
        of_run = "/api/v1/runs/{run}"
        errors = (404, 409, 422)
        return [
            Operation(
                f"{of_run}/timeline",
                "All that its timeline shows of a window",
                answered(self._timelines.of),
                _TIMELINE,
                {JSON: TimelineInfo},
                errors,
            ),
            Operation(
                f"{of_run}/heatmap",
                "A metric of all its devices over time",
                answered(partial(heatmaps.heatmap, self._reading)),
                _HEATMAP,
                {JSON: HeatmapInfo},
                errors,
            ),
            Operation(
                f"{of_run}/heatmap/metrics",
                "Metrics that its devices have",
                answered(partial(heatmaps.metrics, self._reading)),
                (RUN,),
                {JSON: HeatMetrics},
                (404, 409),
            ),
            Operation(
                f"{of_run}/metrics",
                "What is recorded of it and around it",
                answered(partial(bands.metrics, self._reading)),
                (RUN,),
                {JSON: bands.MetricList},
                errors,
            ),
            Operation(
                f"{of_run}/bands",
                "Metrics over time, all their series together",
                answered(partial(bands.bands, self._reading)),
                (RUN, _METRICS, START, END, _number("buckets", "how many buckets", 800, 5000)),
                {JSON: bands.BandList},
                errors,
            ),
            Operation(
                f"{of_run}/spans",
                "Steps and spans",
                answered(partial(bands.spans, self._reading)),
                (RUN, START, END, limit(4000, 20_000)),
                {JSON: bands.SpanList},
                errors,
            ),
        ]
