"""Events that may hold a text: never too few, all of each time, and how far the store looked."""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import random
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from runwatch.record import Event, RunId
from runwatch.rows import EventRow
from runwatch.store.duck import pieces, sought
from runwatch.store.store import Sought, Store
from runwatch.testing import BatchWriter
from tests.unit.store.conftest import Engine, crossed

RUN = RunId("run-a")
HAY = ["hay", 'q"uote', "back\\slash", "tab\there", "\x1b[31mred\x1b[0m", "50 % of_it", "naïve",
       "Straße", "Ошибка", "ISTANBUL İı", "Kelvin K ſ", "😀 done", "\x00\x7f\x85\u2028",
       '{"lines": ["x"]}', "\\u00e9", "a\rb\rc", "", "long " * 300, "\ud800 lone"]  # fmt: skip


def written(store: Store, rows: Sequence[tuple[int, str, dict[str, Any]]], closed: int = 0) -> None:
    """The first ones in closed files, if the store has such."""
    writer = BatchWriter()
    events = [Event(time_ns, kind, body, scope=1) for time_ns, kind, body in rows]
    store.write([writer.batch(events=events[:closed])])
    store.compact(force=True)
    store.write([writer.batch(events=events[closed:])])


def holds(event: EventRow, what: Sought) -> bool:
    if event.kind not in what.kinds or any(name in event.body for name in what.or_fields):
        return True
    pattern = re.compile(re.escape(what.text), re.IGNORECASE if what.any_case else 0)
    return any(pattern.search(line) for line in event.body["lines"])


def check(store: Store, what: Sought, *, newest_first: bool, limit: int | None) -> int:
    """Ask stretch by stretch; how many events were left out."""
    how: dict[str, Any] = {"kinds": ["console", "exception"], "newest_first": newest_first}
    every = store.events(RUN, **how)
    came, edge = list[EventRow](), dict[str, Any]()
    while True:
        part = store.events(RUN, **how, **edge, sought=what, limit=limit)
        if not part:
            break
        last = part[-1].time_ns
        if limit is not None and len(part) == limit:  # the last time may be cut: read it again
            whole = [event for event in part if event.time_ns != last]
            part = whole or store.events(RUN, **how, start_ns=last, end_ns=last + 1)
            last = part[-1].time_ns
        came += part
        edge = {"end_ns": last} if newest_first else {"start_ns": last + 1}
    times = {event.time_ns for event in came}
    assert came == [event for event in every if event.time_ns in times]
    assert times >= {event.time_ns for event in every if holds(event, what)}
    assert every[-1].time_ns in times, "how far was looked"
    return len(every) - len(came)


@pytest.mark.parametrize("texts", [8, pytest.param(100, marks=pytest.mark.soak)])
@crossed("any_case", [False, True])
def test_nothing_that_holds_the_text_is_passed_over(
    engine: Engine, any_case: bool, texts: int
) -> None:
    luck = random.Random(7)
    rows: list[tuple[int, str, dict[str, Any]]] = []
    for number in range(160):
        lines = [luck.choice(HAY) + luck.choice(HAY) for _ in range(luck.choice((1, 1, 1, 3, 9)))]
        body: dict[str, Any] = {"stream": "out", "lines": lines}
        if number % 97 == 3:
            body["left_out_lines"] = 5
        kind = "exception" if number % 131 == 7 else "console"
        rows.append((10**18 + luck.randrange(120) * 10**6, kind, body))
    store = engine.fresh()
    written(store, rows, closed=100)
    left_out = 0
    for _ in range(texts):
        whole = luck.choice(HAY) + luck.choice(HAY)
        at = luck.randrange(max(len(whole), 1))
        text = whole[at : at + luck.choice((1, 2, 5, 12, 200))] or "x"
        text = text.lower() if any_case else text
        what = Sought(
            text, any_case, ("console",), ("left_out_lines",), most=luck.choice((20, 60, 1000))
        )
        limit = luck.choice((None, 20, 90))
        left_out += check(store, what, newest_first=luck.random() < 0.5, limit=limit)
    assert left_out > 30 * texts, "most of it need not be read"


def test_a_text_on_the_edge_of_two_pieces_is_found(engine: Engine) -> None:
    """The body of a large event is in several rows."""
    for text in ('a "needle" in it', "Straße 😀 İ", "needle"):
        store = engine.fresh()
        rows = []
        for number in range(80):
            hay = "." * (pieces.LONGEST - 85 + number)
            body = {"lines": [hay + text.upper() + "." * 50]}
            rows.append((10**18 + 10 * number, "console", body))
            rows.append((10**18 + 10 * number + 5, "console", {"lines": ["." * 17_000]}))
        written(store, rows, closed=100)
        what = Sought(text.lower(), True, ("console",), ("left_out_lines",))
        expected = sum(holds(event, what) for event in store.events(RUN))
        left_out = check(store, what, newest_first=False, limit=None)
        assert expected == 80 or "ß" in text
        assert left_out >= 78


def test_a_field_on_the_edge_of_two_pieces_is_found(engine: Engine) -> None:
    store = engine.fresh()
    rows: list[tuple[int, str, dict[str, Any]]] = [
        (10**18 + number, "console",
         {"lines": ["." * (pieces.LONGEST - 60 + number)], "left_out_lines": 1})
        for number in range(60)
    ]  # fmt: skip
    written(store, rows)
    check(store, Sought("z", False, ("console",), ("left_out_lines",)), newest_first=True, limit=9)


def test_a_crowd_of_one_time_does_not_stop_the_search(engine: Engine) -> None:
    store = engine.fresh()
    written(store, [(5 if n < 40 else n, "console", {"lines": [f"hay {n}"]}) for n in range(50)])
    what = Sought("hay 47", True, ("console",), most=1)
    for newest_first in (False, True):
        check(store, what, newest_first=newest_first, limit=None)


def test_letters_are_like_those_that_re_takes_for_them() -> None:
    cased = set(sought._cased())
    every = map(chr, range(sys.maxunicode + 1))
    # `re` compares letters of no case as they are.
    assert cased >= {each for each in every if _sre.unicode_iscased(ord(each))}
    assert sorted(sought._like("k")) == ["K", "k", "\u212a"]
    assert sorted(sought._like("i")) == ["I", "i", "\u0130", "\u0131"]
    assert sought._like("-") == "-" and sought._like("世") == "世"
