"""Series as the HTTP API answers with them."""

from __future__ import annotations

from typing import Literal

from runwatch.head.http.types import Answer, LatestInfo, Number, PointInfo


class SeriesInfo(Answer):
    series: int
    metric: str
    unit: str
    rank: int
    host: str
    device: str
    attempt: int | None
    labels: dict[str, str]
    latest: PointInfo | None


class SeriesList(Answer):
    run: str
    series: list[SeriesInfo]
    total: int
    next_offset: int | None


class CurveInfo(Answer):
    """A series in buckets.  Each list has one entry per bucket that has points.  To draw the line,
    use `first`, `minimum`, `maximum` and `last`."""

    series: int
    label: str
    metric: str
    unit: str
    rank: int
    host: str
    device: str
    attempt: int | None
    width: int
    position: list[int]
    time_ns: list[int]
    first: list[Number]
    last: list[Number]
    minimum: list[Number | None]
    maximum: list[Number | None]
    mean: list[Number | None]
    count: list[int]
    nonfinite: list[int]


class CurveList(Answer):
    run: str
    axis: Literal["time", "step"]
    curves: list[CurveInfo]


class LatestList(Answer):
    run: str
    points: list[LatestInfo]


class ExportedPoint(Answer):
    run: str
    attempt: int | None
    host: str
    process: int
    device: str | None
    metric: str
    step: int | None
    time: str
    value: Number
