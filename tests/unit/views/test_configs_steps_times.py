from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.record import JournalId, RunId
from runwatch.rows import EventRow, Latest, SeriesRow
from runwatch.views.configs import Configs, merge_configs
from runwatch.views.steps import last_steps
from runwatch.views.times import rfc3339, to_the_second

RUN = RunId("run")
SECOND = 10**9


def config(at: int, part: Any, values: Any, rank: int = 0) -> EventRow:
    body = {"part": part, "values": values}
    return EventRow(JournalId(f"j{rank}"), RUN, "h", rank, at, None, "config", body)


def test_the_newest_config_wins_key_by_key() -> None:
    found = merge_configs(
        [
            config(3, "user", {"lr": 0.2}),
            config(1, "user", {"lr": 0.1, "depth": 4}),
            config(2, "software", {"torch": "2"}),
            config(2, "system", {"host": "b"}, rank=1),
            config(2, "system", {"host": "a"}, rank=0),
        ]
    )
    assert found == Configs({"lr": 0.2, "depth": 4}, {"torch": "2"}, {"host": "a"})


def test_odd_config_events_are_ignored() -> None:
    odd = [config(1, "other", {"a": 1}), config(1, "user", [1]), config(1, ["user"], {"a": 1})]
    log = EventRow(
        JournalId("j"), RUN, "h", 0, 1, None, "log", {"part": "user", "values": {"a": 1}}
    )
    assert merge_configs([*odd, log]) == Configs()


def series(number: int, run: str) -> SeriesRow:
    return SeriesRow(number, JournalId("j"), RunId(run), "h", 0, "", "loss", "", {})


def test_the_last_step_is_the_highest_among_newest_points() -> None:
    rows = [series(1, "a"), series(2, "a"), series(3, "b"), series(4, "c")]
    latest = {1: Latest(1, 9, 5, 0.0), 2: Latest(2, 1, 7, 0.0), 3: Latest(3, 1, None, 0.0)}
    assert last_steps(rows, latest) == {"a": 7}


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000000Z"),
        (1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
        (-(2**63), "1677-09-21T00:12:43.145224192Z"),
    ],
)
def test_times_in_words(time_ns: int, text: str) -> None:
    assert rfc3339(time_ns) == text
    assert to_the_second(time_ns) == text[:19] + "Z"


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**62))
def test_times_read_back(time_ns: int) -> None:
    text = rfc3339(time_ns)
    seconds = int(datetime.fromisoformat(text).replace(microsecond=0).timestamp())
    assert seconds * SECOND + int(text[20:29]) == time_ns
