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
    _number("pixels", "merge pieces shorter than the window divided by this", 1500, 10_000),
    _number("events", "list at most this many events", 500, 5000, 0),
)
_METRICS: Final = Parameter(
    "metric", "string", "the metrics to draw", shortest=1, repeated=True, required=True
)
_HEATMAP: Final = (
    RUN,
    Parameter("metric", "string", "the metric to draw for each device", shortest=1, required=True),
    START,
    END,
    _number("columns", "at most this many columns", 600, 4000),
    _number("rows", "at most this many rows; neighbouring devices then share one", 256, 10_000),
    Parameter(
        "statistic",
        "string",
        "how to reduce the values of a cell",
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
                "A run's timeline in a window",
                answered(self._timelines.of),
                _TIMELINE,
                {JSON: TimelineInfo},
                errors,
            ),
            Operation(
                f"{of_run}/heatmap",
                "A metric of all devices of a run over time",
                answered(partial(heatmaps.heatmap, self._reading)),
                _HEATMAP,
                {JSON: HeatmapInfo},
                errors,
            ),
            Operation(
                f"{of_run}/heatmap/metrics",
                "The metrics of a run's devices",
                answered(partial(heatmaps.metrics, self._reading)),
                (RUN,),
                {JSON: HeatMetrics},
                (404, 409),
            ),
            Operation(
                f"{of_run}/metrics",
                "The metrics of a run and of its hosts",
                answered(partial(bands.metrics, self._reading)),
                (RUN,),
                {JSON: bands.MetricList},
                errors,
            ),
            Operation(
                f"{of_run}/bands",
                "Metrics over time, with all series of a metric together",
                answered(partial(bands.bands, self._reading)),
                (RUN, _METRICS, START, END, _number("buckets", "how many buckets", 800, 5000)),
                {JSON: bands.BandList},
                errors,
            ),
            Operation(
                f"{of_run}/spans",
                "A run's steps and spans",
                answered(partial(bands.spans, self._reading)),
                (RUN, START, END, limit(4000, 20_000)),
                {JSON: bands.SpanList},
                errors,
            ),
        ]
