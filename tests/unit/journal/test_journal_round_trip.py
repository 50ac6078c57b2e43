from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.errors import SegmentError
from runwatch.journal.reader import JournalReader, read_origin
from runwatch.journal.segment import MAX_RECORD
from runwatch.journal.writer import JournalWriter
from runwatch.record import BEGIN, END, NO_STEP, RunId, RunScope, Series, SpanName
from runwatch.testing import FakeClock
from tests.unit.journal.journal_help import (
    SMALL,
    Everything,
    origin,
    read_everything,
)

steps = st.one_of(st.just(NO_STEP), st.integers(-(2**63), 2**63 - 1))
metrics = st.text(min_size=1, max_size=20)
values = st.floats(width=64)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
bodies = st.dictionaries(st.text(max_size=9), json_values, max_size=4)
spans = st.integers(0, 2**32 - 1)
operations = st.one_of(
    st.tuples(st.just("point"), metrics, values, steps),
    st.tuples(st.just("points"), st.lists(st.tuples(metrics, values), max_size=40), steps),
    st.tuples(st.just("span"), metrics, spans, st.sampled_from((BEGIN, END)), steps),
    st.tuples(st.just("event"), st.text(max_size=20), bodies, steps),
    st.tuples(st.just("large"), st.integers(200_000, 400_000)),
)


def write(writer: JournalWriter, operation: Any, expected: Everything) -> None:
    match operation:
        case ("point", metric, value, step):
            writer.point(writer.series(metric), value, step)
            expected.points.append((metric, step, struct.pack("<d", value), 0))
        case ("points", row, step):
            writer.points([writer.series(m) for m, _ in row], [v for _, v in row], step)
            expected.points += [(m, step, struct.pack("<d", v), 0) for m, v in row]
        case ("span", name, span, edge, step):
            writer.span(writer.span_name(name), span, edge, step)
            expected.spans.append((name, span, edge, step))
        case ("event", kind, body, step):
            writer.event("user " + kind, body, step)
            expected.events.append(("user " + kind, body, step))  # type: ignore[arg-type]
        case ("large", size):  # a few of these fill a segment
            writer.event("user large", {"text": "x" * size})
            expected.events.append(("user large", {"text": "x" * size}, NO_STEP))  # type: ignore[arg-type]


def said_by_user(found: Everything) -> tuple[list[Any], list[Any], list[Any]]:
    points = [(name, step, value) for name, step, value, _ in found.points]
    events = [(e.kind, e.body, e.step) for e in found.events if e.kind.startswith("user")]
    return points, found.spans, events


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(operations, max_size=30), st.sampled_from((1, 64, 1000, 1 << 20)), st.booleans())
def test_what_goes_in_comes_out_in_any_batching_and_from_any_position(
    todo: list[Any], max_bytes: int, close_first: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        writer = JournalWriter(Path(root), origin(), segment_bytes=SMALL)
        expected = Everything()
        for operation in todo:
            write(writer, operation, expected)
        if close_first:
            writer.close()
        found = read_everything(writer.directory, max_bytes=max_bytes)
        points, spans, events = said_by_user(found)
        assert points == [(n, s, v) for n, s, v, _ in expected.points]
        assert spans == expected.spans
        assert events == expected.events
        assert found.skipped == 0
        assert "journal_gap" not in found.kinds()

        # A reader that is opened at any batch's end sees exactly what comes behind it.
        for end in found.ends[:: max(1, len(found.ends) // 8)]:
            rest = read_everything(writer.directory, start=end, names=found.names)
            behind = Everything(names=found.names)
            reader = JournalReader(writer.directory)
            while (batch := reader.read(final=True, max_bytes=max_bytes)) is not None:
                if batch.start >= end:
                    behind.add(batch)
            reader.close()
            assert said_by_user(rest) == said_by_user(behind)
            assert rest.skipped == 0
        writer.close()


def test_definitions_come_with_all_they_say(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    run = RunScope(0, RunId("r1"), "llama", 3, 8, "attempt", "sweep")
    scope = writer.scope(run)
    series = writer.series("loss", scope=scope, unit="nats", device="gpu0", labels={"a": "b"})
    span = writer.span_name("checkpoint", scope=scope)
    writer.close()

    reader = JournalReader(writer.directory)
    batch = reader.read()
    reader.close()

    assert batch is not None
    assert batch.origin == origin()
    assert batch.definitions == [
        RunScope(scope, RunId("r1"), "llama", 3, 8, "attempt", "sweep"),
        Series(series, "loss", scope, "nats", "gpu0", {"a": "b"}),
        SpanName(span, "checkpoint", scope),
    ]


def test_same_definition_same_id(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    first = writer.series("loss", device="gpu0", labels={"a": "1", "b": "2"})
    assert writer.series("loss", device="gpu0", labels={"b": "2", "a": "1"}) == first
    assert writer.series("loss", device="gpu1") != first
    writer.close()


def test_times_are_the_wall_clock_of_the_writer(tmp_path: Path) -> None:
    clock = FakeClock()
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, clock=clock)
    opened = clock.wall
    loss = writer.series("loss")
    clock.advance(1.5)
    writer.point(loss, 1.0)
    writer.points([loss], [2.0], 3, clock.mono - 500_000_000)
    writer.event("note", {}, mono_ns=clock.mono + 1)
    writer.close()

    found = read_everything(writer.directory)

    assert [time_ns - opened for _, _, _, time_ns in found.points] == [1_500_000_000, 1_000_000_000]
    assert [e.time_ns - opened for e in found.events if e.kind == "note"] == [1_500_000_001]


def test_more_points_than_one_record_holds(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    loss = writer.series("loss")
    count = MAX_RECORD // 12 * 3
    writer.points([loss] * count, [float(i) for i in range(count)], 1)
    writer.close()
    assert read_everything(writer.directory).values("loss") == [float(i) for i in range(count)]


def test_an_event_too_large_is_cut_and_says_so(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    writer.event("log", {"text": '"' * (2 * MAX_RECORD)})
    writer.close()
    (body,) = read_everything(writer.directory).bodies("log")
    assert body["truncated_bytes"] > 2 * MAX_RECORD
    assert body["text"].startswith('{"text":')


def test_odd_text_is_kept_or_replaced(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    writer.event("kind \ud800", {"text": "nul \0 and \ud800 and é"})
    writer.close()
    (event,) = read_everything(writer.directory).events
    assert event.kind == "kind ?"
    assert event.body == {"text": "nul \0 and \ud800 and é"}


def test_a_value_that_cannot_be_stored_raises_and_leaves_no_hole(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    loss = writer.series("loss")
    for i in range(3):
        with pytest.raises(struct.error):
            writer.point(loss, "much")  # type: ignore[arg-type]
        with pytest.raises(struct.error):
            writer.points([loss], [])
        writer.point(loss, float(i))
    found = read_everything(writer.directory)
    writer.close()
    assert found.values("loss") == [0.0, 1.0, 2.0]
    assert found.skipped == 0


def test_too_many_definitions_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    loss = writer.series("loss")
    with pytest.raises(SegmentError, match="too many"):
        for i in range(20_000):
            writer.series(f"metric-{i}-{'x' * 100}")
    for i in range(40_000):  # more than two segments, each with all definitions
        writer.point(loss, float(i))
    writer.event("large", {"text": "x" * (MAX_RECORD - 2000)})
    writer.close()
    found = read_everything(writer.directory)
    assert found.values("loss") == [float(i) for i in range(40_000)]
    assert len(found.bodies("large")) == 1
    assert writer.lost_records == 0


def test_no_journal_yet(tmp_path: Path) -> None:
    assert read_origin(tmp_path / "nowhere") is None
    reader = JournalReader(tmp_path / "nowhere")
    assert reader.read() is None
    writer = JournalWriter(tmp_path, origin("nowhere-1"), segment_bytes=SMALL)
    late = JournalReader(writer.directory)
    assert late.read() is not None  # its definitions and origin
    assert late.read() is None
    late.close()
    writer.close()
