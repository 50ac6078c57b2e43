"""Series under /api/v1: the list, their curves, their newest points, and exports of all points."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from runwatch.exports.csv import csv_text
from runwatch.exports.json import json_text
from runwatch.exports.lifeline import Lifeline
from runwatch.exports.parquet import write_parquet
from runwatch.exports.perfetto import MEDIA_TYPE as TRACE
from runwatch.exports.perfetto import perfetto_text
from runwatch.exports.rows import export_batches
from runwatch.exports.stretches import MEDIA_TYPE as LINES
from runwatch.exports.stretches import stretch_lines
from runwatch.head.context import Context, Feature
from runwatch.head.features.series import answers
from runwatch.head.features.series.types import CurveList, ExportedPoint, LatestList, SeriesList
from runwatch.head.http import streams
from runwatch.head.http.access import CALLER
from runwatch.head.http.answering import answered
from runwatch.head.http.openapi import JSON, PARQUET, Operation
from runwatch.head.http.parameters import (
    END,
    METRIC,
    OFFSET,
    RUN,
    SERIES_FILTERS,
    START,
    Given,
    Parameter,
    limit,
)
from runwatch.head.http.patience import for_caller
from runwatch.record import RunId

_CURVES: Final = (
    RUN,
    Parameter("metric", "string", "the metrics to draw", shortest=1, repeated=True, required=True),
    *SERIES_FILTERS,
    Parameter(
        "axis", "string", "what the curve runs along", choices=("time", "step"), default="time"
    ),
    Parameter("start", "integer", "where the window starts: a time in ns, or a step"),
    Parameter("end", "integer", "where the window ends (not part of it): a time in ns, or a step"),
    Parameter("buckets", "integer", "how many buckets", minimum=1, maximum=10_000, default=1000),
)
_EXPORT: Final = (
    RUN,
    Parameter(
        "format",
        "string",
        "the file's format",
        choices=("csv", "json", "parquet", "perfetto", "series"),
        default="csv",
    ),
    METRIC,
    *SERIES_FILTERS,
    Parameter("series", "integer", "only these series, by their numbers", repeated=True),
    START,
    END,
)


class SeriesApi(Feature):
    def __init__(self, context: Context) -> None:
        self._reading = context.reading
        self._accounts = context.accounts

    def operations(self) -> Sequence[Operation]:
        of_run = "/api/v1/runs/{run}"
        return [
            Operation(
                f"{of_run}/series",
                "Its series, each with its newest point",
                answered(partial(answers.series, self._reading)),
                (RUN, METRIC, *SERIES_FILTERS, limit(1000, 10_000), OFFSET),
                {JSON: SeriesList},
                (404, 409),
            ),
            Operation(
                f"{of_run}/curves",
                "Series reduced to buckets along time or step",
                answered(partial(answers.curves, self._reading)),
                _CURVES,
                {JSON: CurveList},
                (404, 409, 422),
            ),
            Operation(
                f"{of_run}/latest",
                "The newest point of each series",
                answered(partial(answers.latest, self._reading)),
                (RUN, METRIC, *SERIES_FILTERS),
                {JSON: LatestList},
                (404, 409),
            ),
            Operation(
                f"{of_run}/export",
                "Every point, one row each",
                self._export,
                _EXPORT,
                {
                    "text/csv": None,
                    JSON: list[ExportedPoint],
                    PARQUET: None,
                    TRACE: None,
                    LINES: None,
                },
                (404, 409, 422),
            ),
        ]

    async def _export(self, request: Request, given: Given) -> Response:
        run = await run_in_threadpool(answers.run_id, self._reading, given)
        headers = {"Content-Disposition": f'attachment; filename="points.{given["format"]}"'}
        if given["format"] == "parquet":
            return await self._export_parquet(request, run, given, headers)
        if given["format"] == "series":
            lines = stretch_lines(
                self._reading.store,
                run,
                question=answers.exported(given),
                start_ns=given["start"],
                end_ns=given["end"],
            )
            return StreamingResponse(streams.streamed(request, lines, lines), media_type=LINES)
        batches = self._batches(run, given)
        if given["format"] == "perfetto":
            trace = perfetto_text(
                self._reading.store,
                run,
                batches,
                lifeline=lambda: self._lifeline(run, given),
                # Whoever has nothing but a link sees no logs (`http/guests.py`).
                logs=request.scope[CALLER].share is None,
                start_ns=given["start"],
                end_ns=given["end"],
            )
            named = {"Content-Disposition": 'attachment; filename="trace.json"'}
            pieces = streams.streamed(request, trace, batches)
            return StreamingResponse(pieces, media_type=TRACE, headers=named)
        as_json = given["format"] == "json"
        text = json_text(batches) if as_json else csv_text(batches)
        pieces, media = streams.streamed(request, text, batches), JSON if as_json else "text/csv"
        return StreamingResponse(pieces, media_type=media, headers=headers)

    def _lifeline(self, run: RunId, given: Given) -> Lifeline | None:
        with self._accounts.of(run) as goodput:
            return None if goodput is None else Lifeline.of(goodput, given["start"], given["end"])

    def _batches(self, run: RunId, given: Given) -> Iterator[Any]:
        return export_batches(
            self._reading.store,
            run,
            question=answers.exported(given),
            start_ns=given["start"],
            end_ns=given["end"],
        )

    async def _export_parquet(
        self, request: Request, run: RunId, given: Given, headers: dict[str, str]
    ) -> Response:
        """The engine writes the file whole, so it is made first; then it is sent."""

        def make() -> tuple[tempfile.TemporaryDirectory[str], Path]:
            scratch = tempfile.TemporaryDirectory(prefix="runwatch-export-")
            path = Path(scratch.name, "points.parquet")
            try:
                write_parquet(self._batches(run, given), path)
            except BaseException:
                scratch.cleanup()
                raise
            return scratch, path

        scratch, path = await for_caller(request, make)
        return StreamingResponse(
            streams.file(scratch, path),
            media_type=PARQUET,
            headers={**headers, "Content-Length": str(path.stat().st_size)},
        )
