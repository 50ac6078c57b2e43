"""A run's timeline: tracks, nesting, pages, and what was cut short."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from runwatch.exports.perfetto import perfetto_text
from runwatch.exports.rows import export_batches
from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Points,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
    Spans,
)
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store

RUN = RunId("timeline")
START = 1_700_000_000_000_000_000
MS = 1_000_000
NAMES = ["step", "evaluation", "checkpoint_save", "compile/background"]
RANKS = 3


def spans(*edges: tuple[str, int, int, int]) -> Spans:
    """(name, span, edge, milliseconds)"""
    made = Spans()
    for name, span, edge, at in edges:
        made.append(NAMES.index(name) + 1, span, edge, START + at * MS, span)
    return made


EDGES = spans(
    ("step", 1, BEGIN, 10),
    ("evaluation", 2, BEGIN, 12),
    ("evaluation", 2, END, 14),
    ("step", 1, END, 20),
    ("step", 3, BEGIN, 20),  # at the moment when the other ends
    ("checkpoint_save", 4, BEGIN, 25),
    ("compile/background", 5, BEGIN, 26),
    ("compile/background", 5, END, 27),
    ("step", 3, END, 30),
    ("checkpoint_save", 4, END, 35),  # does not nest
    ("step", 6, BEGIN, 40),  # and then the process was killed
)


def batch(rank: int) -> Batch:
    points = Points()
    for step, value in enumerate((1.5, math.nan, math.inf, 0.5)):
        points.append(1, START + (50 + step) * MS, step, value)
    events = [
        Event(START + MS, "run_start", {"cwd": "x" * 5000, "nested": {"a": [1]}}, scope=1),
        Event(START + 2 * MS, "log", {"name": "note", "value": "all is well"}, 7, scope=1),
        Event(START + 9 * MS, "elapsed", {"name": "compile", "seconds": 0.004}, scope=1),
    ]
    definitions: list[Definition] = [
        RunScope(1, RUN, "name", rank=rank, world_size=RANKS),
        Series(1, "loss", scope=1),
        *(SpanName(n + 1, name, scope=1) for n, name in enumerate(NAMES)),
    ]
    return Batch(
        Origin(JournalId(f"j{rank}"), f"host-{rank % 2}", rank, START),
        Position(0),
        Position(1000),
        definitions,
        points,
        EDGES,
        events,
    )


def agent() -> Batch:
    points = Points()
    points.append(1, START + 60 * MS, NO_STEP, 97.0)
    series = Series(1, "gpu_utilization_percent", scope=1, device="GPU-1")
    origin = Origin(JournalId("agent"), "host-0", 1, START, role="agent")
    scope = RunScope(1, RUN, "name", rank=0)
    return Batch(origin, Position(0), Position(1000), [scope, series], points)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    opened.write([*(batch(rank) for rank in range(RANKS)), agent()])
    yield opened
    opened.close()


def trace(store: Store, page_rows: int = 50_000) -> list[dict[str, Any]]:
    text = "".join(perfetto_text(store, RUN, export_batches(store, RUN), page_rows=page_rows))
    made = json.loads(text)
    assert made["otherData"]["start_ns"] == START
    events: list[dict[str, Any]] = made["traceEvents"]
    return events


def slices(events: list[dict[str, Any]], rank: int) -> dict[str, tuple[float, float, bool]]:
    """Name -> begin and length in ms, and whether it is on the training line."""
    return {
        e["name"]: (e["ts"] / 1e3, e["dur"] / 1e3, e["tid"] == 0)
        for e in events
        if e["ph"] == "X" and e["pid"] == rank
    }


def test_steps_and_spans_lie_as_they_nest(store: Store) -> None:
    events = trace(store)
    for rank in range(RANKS):
        assert slices(events, rank) == {
            "step 1": (10, 10, True),
            "evaluation 2": (12, 2, True),
            "step 3": (20, 10, False),  # ends while another, begun within it, goes on
            "checkpoint_save 4": (25, 10, True),
            "compile/background 5": (26, 1, False),
            "step 6": (40, 13, True),
            "compile": (5, 4, False),
        }
    [cut] = [e for e in events if e["name"] == "step 6" and e["pid"] == 0]
    assert cut["args"] == {"step": 6, "cut_short": True}


def test_numbers_and_events(store: Store) -> None:
    events = trace(store)
    own = [e for e in events if e["pid"] == 1]
    assert [(e["ts"], e["args"]["value"]) for e in own if e["ph"] == "C"] == [
        (50_000, 1.5), (53_000, 0.5),
    ]  # fmt: skip
    instants = {e["name"]: e["args"] for e in own if e["ph"] == "i"}
    assert set(instants) == {"run_start", "note: all is well"}
    assert instants["note: all is well"]["step"] == 7
    assert len(instants["run_start"]["cwd"]) == 2000
    assert instants["run_start"]["nested"] == '{"a": [1]}'
    [device] = [e for e in events if e["ph"] == "C" and e["pid"] >= RANKS]
    assert device["name"] == "gpu_utilization_percent GPU-1"
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {
        0: "rank 0 (host-0)", 1: "rank 1 (host-1)", 2: "rank 2 (host-0)",
        device["pid"]: "host host-0",
    }  # fmt: skip


@pytest.mark.parametrize("page_rows", [1, 2, 3, 7, 20])
def test_pages_change_nothing(store: Store, page_rows: int) -> None:
    def content(events: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps({k: v for k, v in e.items() if k != "tid"}) for e in events)

    assert content(trace(store, page_rows)) == content(trace(store))


def test_a_run_without_records(store: Store) -> None:
    text = "".join(perfetto_text(store, RunId("none"), []))
    assert json.loads(text)["traceEvents"] == []


def test_a_useful_span_has_its_plain_name(store: Store) -> None:
    rollout = Spans()
    rollout.append(1, 1, BEGIN, START + 10 * MS, 1)
    rollout.append(1, 1, END, START + 14 * MS, 1)
    known: list[Definition] = [
        RunScope(1, RUN, "name", rank=7),
        SpanName(1, "rollout/useful", scope=1),
    ]
    origin = Origin(JournalId("j7"), "host-7", 7, START)
    store.write([Batch(origin, Position(0), Position(10), known, spans=rollout)])
    [found] = [e for e in trace(store) if e["ph"] == "X" and "rollout" in e["name"]]
    assert (found["name"], found["cat"]) == ("rollout 1", "rollout")
    assert found["args"] == {"step": 1, "useful": True}
