"""Records to messages and back.  An invalid message raises WireError."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterator
from typing import Any, Final

from runwatch.errors import WireError
from runwatch.record import (
    BEGIN,
    END,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Points,
    Position,
    Role,
    RunId,
    RunScope,
    Series,
    SpanName,
    Spans,
)
from runwatch.record.checks import LATEST_NS
from runwatch.record.door import (
    LONGEST_BODY,
    Rejected,
    definition_problem,
    edges_problem,
    event_problem,
    origin_problem,
)
from runwatch.wire import spine_pb2 as pb

OLDEST_VERSION: Final = 1
NEWEST_VERSION: Final = 2
SEVERAL_AT_ONCE: Final = 2
"""From this version on a message may hold several batches, or several cursors."""
MAX_MESSAGE_BYTES: Final = 8 << 20
MAX_JOURNAL_ID: Final = 200
_FARTHEST: Final = 1 << 63
_ROLES: Final[dict[str, Role]] = {"agent": "agent", "child": "child", "launcher": "launcher"}


def agree_on_version(oldest: int, newest: int) -> int:
    """The highest version that both sides speak.  WireError says which side is too old."""
    if oldest > NEWEST_VERSION:
        raise WireError(
            f"the agent speaks wire versions {oldest}–{newest}, this head {OLDEST_VERSION}–"
            f"{NEWEST_VERSION}: upgrade the head"
        )
    if newest < OLDEST_VERSION:
        raise WireError(
            f"the agent speaks wire versions {oldest}–{newest}, this head {OLDEST_VERSION}–"
            f"{NEWEST_VERSION}: upgrade the agent"
        )
    return min(newest, NEWEST_VERSION)


def check_journal_id(text: str) -> JournalId:
    plain = text[:1].isalnum() and all(c.isascii() and (c.isalnum() or c in "-.") for c in text)
    if not plain or len(text) > MAX_JOURNAL_ID:
        raise WireError(f"not a journal id: {text[:80]!r}")
    return JournalId(text)


def _column(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _array(typecode: str, data: bytes, what: str) -> array[Any]:
    column: array[Any] = array(typecode)
    if len(data) % column.itemsize:
        raise WireError(
            f"column {what} has {len(data)} bytes, which is not a multiple of {column.itemsize}"
        )
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def batch_to_message(batch: Batch) -> pb.Batch:
    origin = batch.origin
    message = pb.Batch(
        origin=pb.Origin(
            journal=origin.journal,
            host=origin.host,
            pid=origin.pid,
            start_ns=origin.start_ns,
            boot=origin.boot,
            process_start_ticks=origin.process_start_ticks,
            role=origin.role,
            version=origin.version,
        ),
        start=batch.start,
        end=batch.end,
        definitions=[_definition_to_message(d) for d in batch.definitions],
        skipped_records=batch.skipped_records,
        events=[
            pb.Event(
                time_ns=e.time_ns,
                kind=e.kind,
                body_json=json.dumps(e.body, separators=(",", ":")),
                step=e.step,
                scope=e.scope,
            )
            for e in batch.events
        ],
    )
    points, spans = batch.points, batch.spans
    if len(points):
        message.points.series = _column(points.series)
        message.points.time_ns = _column(points.time_ns)
        message.points.step = _column(points.step)
        message.points.value = _column(points.value)
    if len(spans):
        message.spans.name = _column(spans.name)
        message.spans.span = _column(spans.span)
        message.spans.edge = _column(spans.edge)
        message.spans.time_ns = _column(spans.time_ns)
        message.spans.step = _column(spans.step)
    return message


def _definition_to_message(definition: Definition) -> pb.Definition:
    if isinstance(definition, RunScope):
        return pb.Definition(
            run=pb.RunScope(
                id=definition.id,
                run=definition.run,
                name=definition.name,
                rank=definition.rank,
                world_size=definition.world_size,
                attempt_key=definition.attempt_key,
                group=definition.group,
            )
        )
    if isinstance(definition, Series):
        return pb.Definition(
            series=pb.Series(
                id=definition.id,
                metric=definition.metric,
                scope=definition.scope,
                unit=definition.unit,
                device=definition.device,
                labels=dict(definition.labels),
            )
        )
    return pb.Definition(
        span=pb.SpanName(id=definition.id, name=definition.name, scope=definition.scope)
    )


def batch_from_message(message: pb.Batch, *, host: str = "", now_ns: int = 0) -> Batch:
    """Malformed parts are left out and reported as a gap at `now_ns`.

    If no part is valid, the whole batch is a gap of a journal on `host`.  Raises WireError only if
    the message does not say which stretch of which journal it holds.
    """
    if not message.start < message.end < _FARTHEST:
        raise WireError(f"[{message.start}, {message.end}) is not a stretch of a journal")
    journal = check_journal_id(message.origin.journal)
    start, end = Position(message.start), Position(message.end)
    refused = Rejected()
    batch = Batch(Origin(journal, host, 0, now_ns), start, end)
    try:
        batch.origin = _origin(message.origin)
        batch.points = _points(message.points)
        batch.spans = _whole_spans(_spans(message.spans), refused)
    except WireError as error:
        batch.points, batch.spans = Points(), Spans()
        refused.add("batch", str(error))
    else:
        batch.definitions = list(_definitions(message, refused))
        batch.events = list(_events(message, refused))
    batch.skipped_records = min(message.skipped_records, LATEST_NS)
    refused.tell(batch, now_ns)
    return batch


def _definitions(message: pb.Batch, refused: Rejected) -> Iterator[Definition]:
    for item in message.definitions:
        try:
            definition = _definition(item)
        except WireError as error:
            refused.add("definition", str(error))
            continue
        if problem := definition_problem(definition):
            refused.add("definition", problem)
        else:
            yield definition


def _events(message: pb.Batch, refused: Rejected) -> Iterator[Event]:
    for item in message.events:
        try:
            event = _event(item)
        except WireError as error:
            refused.add(item.kind, str(error))
            continue
        if problem := event_problem(event):
            refused.add(event.kind, problem)
        else:
            yield event


def _origin(message: pb.Origin) -> Origin:
    origin = Origin(
        journal=check_journal_id(message.journal),
        host=message.host,
        pid=message.pid,
        start_ns=message.start_ns,
        boot=message.boot,
        process_start_ticks=message.process_start_ticks,
        role=_ROLES.get(message.role, "process"),
        version=message.version,
    )
    if problem := origin_problem(origin):
        raise WireError(f"its origin is impossible: {problem}")
    return origin


def _definition(message: pb.Definition) -> Definition:
    kind = message.WhichOneof("kind")
    if kind == "run":
        run = message.run
        return RunScope(
            run.id,
            RunId(run.run),
            run.name,
            run.rank,
            run.world_size,
            run.attempt_key,
            run.group,
        )
    if kind == "series":
        series = message.series
        return Series(
            series.id, series.metric, series.scope, series.unit, series.device, dict(series.labels)
        )
    if kind == "span":
        return SpanName(message.span.id, message.span.name, message.span.scope)
    raise WireError("a definition of a kind that this head does not know: upgrade the head")


def _points(message: pb.Points) -> Points:
    points = Points(
        _array("I", message.series, "points.series"),
        _array("q", message.time_ns, "points.time_ns"),
        _array("q", message.step, "points.step"),
        _array("d", message.value, "points.value"),
    )
    lengths = {len(points.series), len(points.time_ns), len(points.step), len(points.value)}
    if len(lengths) > 1:
        raise WireError(f"point columns of different lengths: {sorted(lengths)}")
    return points


def _spans(message: pb.Spans) -> Spans:
    spans = Spans()
    spans.name = _array("I", message.name, "spans.name")
    spans.span = _array("I", message.span, "spans.span")
    spans.edge = _array("B", message.edge, "spans.edge")
    spans.time_ns = _array("q", message.time_ns, "spans.time_ns")
    spans.step = _array("q", message.step, "spans.step")
    columns = (spans.name, spans.span, spans.edge, spans.time_ns, spans.step)
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise WireError(f"span columns of different lengths: {sorted(lengths)}")
    return spans


def _whole_spans(spans: Spans, refused: Rejected) -> Spans:
    problem = edges_problem(spans)
    if not problem:
        return spans
    whole = Spans()
    for row in zip(spans.name, spans.span, spans.edge, spans.time_ns, spans.step, strict=True):
        if row[2] in (BEGIN, END):
            whole.append(*row)
        else:
            refused.add("span", problem)
    return whole


def _event(message: pb.Event) -> Event:
    if len(message.body_json) > LONGEST_BODY:
        raise WireError(f"its body is longer than {LONGEST_BODY} characters")
    try:
        body: Any = json.loads(message.body_json)
    except (ValueError, RecursionError) as error:
        raise WireError(f"its body is not JSON: {error}") from error
    return Event(message.time_ns, message.kind, body, message.step, message.scope)
