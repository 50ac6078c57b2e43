"""A run's timeline: tracks, nesting, pages, and what was cut short."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from runwatch.exports.lifeline import Lifeline
from runwatch.exports.perfetto import perfetto_text
from runwatch.exports.rows import export_batches
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.accounts import Accounts
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
from runwatch.testing import FakeClock

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


def trace(store: Store, page_rows: int = 50_000, **more: Any) -> list[dict[str, Any]]:
    batches = export_batches(store, RUN)
    text = "".join(perfetto_text(store, RUN, batches, page_rows=page_rows, **more))
    made = json.loads(text)
    assert made["otherData"]["start_ns"] == START
    events: list[dict[str, Any]] = made["traceEvents"]
    check(events)
    return events


def check(events: list[dict[str, Any]]) -> None:
    """The rules of the format, for the kinds of events that we write."""
    lines: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in events:
        assert (
            isinstance(e["pid"], int) and isinstance(e["tid"], int) and isinstance(e["name"], str)
        )
        assert e["ph"] in "XiCM" and isinstance(e["args"], dict)
        if e["ph"] == "M":
            continue
        assert isinstance(e["ts"], int | float) and math.isfinite(e["ts"])
        if e["ph"] == "X":
            assert e["dur"] >= 0
            lines.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
        elif e["ph"] == "i":
            assert e["s"] in "gpt"
        else:
            assert all(isinstance(value, int | float) for value in e["args"].values())
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert lines.keys() <= named
    for slices in lines.values():  # each lies within another, or beside it
        open_until: list[float] = []
        for start, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while open_until and open_until[-1] <= start + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)


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


def test_a_runs_own_track_is_its_account(store: Store) -> None:
    reading = Reading(store, clock=FakeClock(START + 100 * MS))
    with Accounts(reading).of(RUN) as goodput:
        assert goodput is not None
        account, life = goodput.account(), Lifeline.of(goodput)
        part = Lifeline.of(goodput, START + 15 * MS, START + 30 * MS)
    events = trace(store, lifeline=lambda: life)
    spent: Counter[str] = Counter()
    end_ns = life.start_ns
    for e in events:
        if e.get("cat") == "goodput":
            assert e["args"]["start_ns"] == end_ns  # without gap or overlap
            assert round(e["ts"] * 1e3) == end_ns - START
            assert round(e["dur"] * 1e3) == e["args"]["ns"]
            spent[e["name"]] += e["args"]["ns"]
            end_ns += e["args"]["ns"]
    assert spent == {name: ns for name, ns in account.spent_ns.items() if ns}
    assert spent.total() == account.total_ns and len(spent) > 2
    [attempt] = [e for e in events if e.get("cat") == "attempt"]
    assert (attempt["name"], attempt["args"]["start_ns"]) == ("attempt 1", life.start_ns)
    named = {e["pid"]: e["args"] for e in events if e["name"] == "process_name"}
    assert named[attempt["pid"]] == {"name": "run name"}
    assert sum(end - start for start, end, _ in part.intervals()) == 15 * MS
    assert part.attempts == [(1, START + 15 * MS, START + 30 * MS)]


STACKS = {
    "pid": 7, "time_ns": START, "how": "outside", "rank": 1, "host": "host-1",
    "threads": [
        {"name": "MainThread", "is_main": True,
         "frames": [{"function": "all_reduce", "file": "/x/dist.py", "line": 8},
                    {"function": "main", "file": "/x/train.py", "line": 88}]},
        {"name": "pin", "frames": [{"function": "wait", "file": "/x/t.py", "line": 3}]},
    ],
}  # fmt: skip
OPEN = {"state": "open", "closed_ns": None}
INCIDENT = {
    "id": "i1", "kind": "hang", "state": "closed", "since_ns": START + 30 * MS,
    "closed_ns": START + 38 * MS, "text": "everyone waits for rank 1", "ranks": [1],
}  # fmt: skip


def test_stacks_incidents_and_what_was_said(store: Store) -> None:
    said = [
        Event(START + MS, "console", {"stream": "err", "lines": ["a", "b" * 300],
                                      "after_ms": [0, 5]}, scope=1),
        Event(START + 9 * MS, "exception", {"type": "ValueError", "message": "bad",
                                            "text": "Traceback …"}, scope=1),
        Event(START + 31 * MS, "stacks", STACKS, scope=1),
        Event(START + 32 * MS, "incident", INCIDENT | OPEN, scope=1),
        Event(START + 38 * MS, "incident", INCIDENT, scope=1),
    ]  # fmt: skip
    scope: list[Definition] = [RunScope(1, RUN, "name", rank=0, world_size=RANKS)]
    origin = Origin(JournalId("head"), "host-9", 1, START)
    store.write([Batch(origin, Position(0), Position(100), scope, events=said)])
    events = trace(store)
    shown = {(e["cat"], e["pid"], e["ts"] / 1e3, e["name"][:40]) for e in events if e["ph"] == "i"}
    assert {
        ("console", 0, 1.0, "a"),
        ("console", 0, 6.0, "b" * 40),
        ("exception", 0, 9.0, "ValueError: bad"),
        ("stacks", 1, 31.0, "stacks: all_reduce (dist.py:8)"),
    } <= shown
    [stacks] = [e["args"] for e in events if e.get("cat") == "stacks"]
    assert stacks["thread 0 MainThread"] == "all_reduce (/x/dist.py:8)\nmain (/x/train.py:88)"
    assert stacks["thread 1 pin"] == "wait (/x/t.py:3)"
    [incident] = [e for e in events if e.get("cat") == "incident" and e["ph"] == "X"]
    assert (incident["ts"], incident["dur"]) == (30_000, 8_000)
    assert incident["name"] == "hang: everyone waits for rank 1"
    # Who may not see logs sees the rest.
    quiet = {(e.get("cat"), e["name"]) for e in trace(store, logs=False)}
    assert not {cat for cat, _ in quiet} & {"console", "exception"}
    assert ("stacks", "stacks: all_reduce (dist.py:8)") in quiet
