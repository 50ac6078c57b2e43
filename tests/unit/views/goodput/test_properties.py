"""What holds for every history, however it was recorded and however it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runwatch.record import Event
from runwatch.views.goodput.account import Account, Goodput, normalised
from runwatch.views.goodput.books import AT_ONCE
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import Diary, Scribe, nanoseconds
from runwatch.views.goodput.ledger import Attempt, Ledger, Stale
from runwatch.views.goodput.steps.judging import AROUND, Pace
from runwatch.views.goodput.steps.laps import Lap
from runwatch.views.goodput.steps.track import LATE_STEPS
from tests.unit.views.goodput.histories import Form, histories, long_histories
from tests.unit.views.goodput.story import (
    RUN,
    SECOND,
    Notebook,
    Point,
    goodput_of,
    last_ns,
    scribe_for,
)

EXAMPLES, FEW_EXAMPLES, SOAK_EXAMPLES = 60, 5, 3_000
FORMS: tuple[Form, ...] = ("native", "entries")

seconds = st.integers(-20, 400)
windows = st.tuples(seconds, seconds)
ranges = st.lists(windows, max_size=4)
stories = st.sampled_from(FORMS).flatmap(histories)

Books = list[Notebook]
Piece = tuple[Notebook, int, int]
"""A notebook's records from here to there."""


@st.composite
def arrivals(draw: st.DrawFn, books: Books) -> list[Piece]:
    """Every journal cut anywhere, the pieces of different journals in any order."""
    queues = []
    for book in books:
        cuts = draw(st.lists(st.integers(0, len(book.records)), max_size=4))
        edges = sorted({0, len(book.records), *cuts})
        queues.append([(book, a, b) for a, b in pairwise(edges)])
    found = []
    while queues := [queue for queue in queues if queue]:
        found.append(queues[draw(st.integers(0, len(queues) - 1))].pop(0))
    return found


# ── folding ────────────────────────────────────────────────────────────────────────────────────


def fold(books: Books, pieces: Sequence[Piece] | None = None) -> Scribe:
    """As a head does it: as they come, and if that is not possible all again, in order of time."""
    try:
        return taken(scribe_for(books), pieces or [(book, 0, len(book.records)) for book in books])
    except Stale:
        return taken(scribe_for(books, lenient=True), by_time(books))


def taken(scribe: Scribe, pieces: Sequence[Piece]) -> Scribe:
    for book, first, last in pieces:
        scribe.batch(book.batch(first, last))
        scribe.ledger.settle()
    return scribe


def by_time(books: Books, size: int = 1) -> list[Piece]:
    pieces = [
        (book, at, min(at + size, len(book.records)))
        for book in books
        for at in range(0, len(book.records), size)
    ]
    return sorted(pieces, key=time_of)


def time_of(piece: Piece) -> int:
    return piece[0].records[piece[2] - 1].time_ns


def drawn(books: Books, scribe: Scribe, now_ns: int | None = None) -> Goodput:
    goodput = goodput_of(scribe, books, last_ns(books) + 7 * SECOND if now_ns is None else now_ns)
    assert goodput is not None
    return goodput


def summary(goodput: Goodput) -> dict[str, object]:
    """All that is said about a run."""
    return {
        "intervals": list(goodput.intervals()),
        "spent": non_zero(goodput.account()),
        "attempts": goodput.attempts,
        "disruptions": goodput.disruptions,
        "ranks": goodput.ranks,
        "inferred": goodput.inferred_ns,
        "steps": (goodput.steps, goodput.max_productive_step, goodput.ideal_step_ns),
        "ends": (goodput.start_ns, goodput.end_ns, goodput.live),
    }


def non_zero(account: Account) -> dict[str, int]:
    return {name: ns for name, ns in account.spent_ns.items() if ns}


# ── every nanosecond in one class ──────────────────────────────────────────────────────────────


def every_nanosecond_is_in_one_class(books: Books) -> None:
    goodput = drawn(books, fold(books))
    found = list(goodput.intervals())
    starts, ends = [start for start, _, _ in found], [end for _, end, _ in found]
    assert [*starts, goodput.end_ns] == [goodput.start_ns, *ends]
    assert all(start < end for start, end, _ in found)
    assert all(a[2] != b[2] for a, b in pairwise(found))
    account = goodput.account()
    assert sum(account.spent_ns.values()) == goodput.end_ns - goodput.start_ns
    assert min(account.spent_ns.values()) >= 0


def a_window_is_the_sum_of_its_intervals(
    books: Books, window: tuple[int, int], out: list[tuple[int, int]]
) -> None:
    goodput = drawn(books, fold(books))
    since, until = (edge * SECOND for edge in window)
    exclude = [(a * SECOND, b * SECOND) for a, b in out]
    account = goodput.account(since, until, exclude=exclude)
    sums: dict[str, int] = {}
    for start, end, name in goodput.intervals(since, until, exclude=exclude):
        sums[name] = sums.get(name, 0) + end - start
    assert sums == non_zero(account)
    assert sum(sums.values()) == account.total_ns
    inside = [(max(a, account.start_ns), min(b, account.end_ns)) for a, b in normalised(exclude)]
    excluded = goodput.account(since, until).spent_ns["excluded"]
    for a, b in inside:
        if a < b:
            excluded += b - a - goodput.account(a, b).spent_ns["excluded"]
    assert account.spent_ns["excluded"] == excluded


def adjacent_windows_add_up(books: Books, edges: tuple[int, int, int]) -> None:
    goodput = drawn(books, fold(books))
    a, b, c = sorted(edge * SECOND for edge in edges)
    whole = goodput.account(a, c)
    for parts in ([goodput.account(a, b), goodput.account(b, c)], goodput.over_time(7, a, c)):
        assert sum(part.total_ns for part in parts) == whole.total_ns
        for name, ns in whole.spent_ns.items():
            assert sum(part.spent_ns.get(name, 0) for part in parts) == ns


# ── however it arrives ─────────────────────────────────────────────────────────────────────────


def any_batching_gives_the_same(books: Books, data: st.DataObject) -> None:
    pieces = data.draw(arrivals(books))
    known_first = data.draw(st.booleans())
    try:
        scribe = _as_they_come(books, pieces, known_first)
    except Stale:
        scribe = taken(scribe_for(books, lenient=True), by_time(books))
    assert summary(drawn(books, scribe)) == summary(drawn(books, fold(books)))


def _as_they_come(books: Books, pieces: list[Piece], known_first: bool) -> Scribe:
    """Processes become known when their first batch comes, and questions are asked meanwhile."""
    scribe = scribe_for(books if known_first else ())
    for book, first, last in pieces:
        scribe.enter(book.journal, book.attempt, book.rank, book.start_ns)
        taken(scribe, [(book, first, last)])
        drawn(books, scribe)
    for book in books:
        scribe.enter(book.journal, book.attempt, book.rank, book.start_ns)
    return scribe


def saving_and_loading_changes_nothing(books: Books, data: st.DataObject) -> None:
    """A head that is stopped and started: the ledger comes back, journals are announced again."""
    pieces = data.draw(arrivals(books))
    saves = data.draw(st.sets(st.integers(0, len(pieces))))
    scribe = _announced(Ledger(), books)
    try:
        for at, (book, first, last) in enumerate(pieces):
            if at in saves:
                scribe = _announced(Ledger.load(scribe.ledger.save()), books)
            scribe.batch(book.batch(first, last, repeat=True))
            scribe.ledger.settle()
    except Stale:
        return
    assert summary(drawn(books, scribe)) == summary(drawn(books, fold(books, pieces)))


def _announced(ledger: Ledger, books: Books) -> Scribe:
    scribe = Scribe(RUN, ledger)
    for book in books:
        scribe.enter(book.journal, book.attempt, book.rank, book.start_ns)
    return scribe


def duplicate_entries_change_nothing(books: Books, data: st.DataObject) -> None:
    once = summary(drawn(books, fold(books)))
    for book in books:
        twice = data.draw(st.lists(st.booleans(), min_size=1, max_size=6))
        doubled = [
            record
            for at, record in enumerate(book.records)
            for _ in range(1 + twice[at % len(twice)])
        ]
        book.records = doubled
    assert summary(drawn(books, fold(books))) == once


def entries_need_no_journal(books: Books) -> None:
    """A log that was read from elsewhere is told to a diary directly."""
    ledger = Ledger()
    lives = []
    for book in books:
        diary = Diary(ledger, book.journal, book.attempt, book.rank)
        for record in book.records:
            if isinstance(record, Point):
                what = record.metric.removeprefix("goodput.")
                diary.entry(what, record.kind, record.step, nanoseconds(record.value))
            elif isinstance(record, Event):
                diary.checkpoint(record.body["entry"])
        lives += diary.lives(book.process())
    ledger.settle()
    goodput = draw_up(ledger, lives, last_ns(books) + 7 * SECOND)
    assert goodput is not None
    assert summary(goodput) == summary(drawn(books, fold(books)))


# ── as time goes on ────────────────────────────────────────────────────────────────────────────

Change = tuple[int, int, str, str]


def changes(old: Goodput, new: Goodput, since_ns: int, until_ns: int) -> Iterator[Change]:
    """Where the two accounts differ: from, until, what it was, what it is now."""
    before, after = (list(each.intervals(since_ns, until_ns)) for each in (old, new))
    assert [a[0] for a in before[:1]] == [a[0] for a in after[:1]]
    edges = sorted({edge for found in (before, after) for a, b, _ in found for edge in (a, b)})
    classes = zip(
        pairwise(edges), _classes_at(before, edges), _classes_at(after, edges), strict=False
    )
    for (start, end), was, now in classes:
        if was != now:
            yield start, end, was, now


def _classes_at(intervals: list[tuple[int, int, str]], times_ns: list[int]) -> Iterator[str]:
    """The class at each of these ascending times, or "" where there is none."""
    at = 0
    for time_ns in times_ns:
        while at < len(intervals) and intervals[at][1] <= time_ns:
            at += 1
        inside = at < len(intervals) and intervals[at][0] <= time_ns
        yield intervals[at][2] if inside else ""


def booked_steps_stay_unless_they_are_done_again(books: Books, data: st.DataObject) -> None:
    """What is booked is closed; the last AT_ONCE + AROUND steps are not yet, nor are those that
    tracks keep back: they are judged again as more come."""
    pieces = by_time(books, 16)
    late = [at for at, piece in enumerate(pieces, 1) if _is_late(piece)]
    _booked_steps_stay(books, pieces, data.draw(st.sampled_from(late)))


def _is_late(piece: Piece) -> bool:
    """Steps are booked by then."""
    book, _, last = piece
    steps = {record.step for record in book.records[:last] if not isinstance(record, Event)}
    return len(steps) > AT_ONCE + AROUND + 2 * LATE_STEPS


def _booked_steps_stay(books: Books, pieces: Sequence[Piece], at: int) -> None:
    """What was booked changes in one way: what was productive is wasted progress, from the first
    step that stood and that the run has gone back to, or behind, since."""
    scribe = scribe_for(books)
    try:
        taken(scribe, pieces[:at])
        now_ns = max(map(time_of, pieces[:at]), default=max(book.start_ns for book in books))
        old = drawn(books, scribe, now_ns)
        booked = {
            key: (attempt.start_ns, attempt.books.end_ns, list(_begins(attempt.books.laps)))
            for key, attempt in scribe.ledger.attempts.items()
        }
        taken(scribe, pieces[at:])
    except Stale:
        return
    new = drawn(books, scribe)
    for start_ns, end_ns, begins in booked.values():
        found = list(changes(old, new, start_ns, end_ns))
        assert {(was, now) for _, _, was, now in found} <= {("productive", "wasted_progress")}
        if found:
            lowest = _gone_back_to(scribe.ledger, end_ns)
            _check_waste(new, begins, lowest, found[0][0], end_ns)


def _begins(laps: Sequence[Lap]) -> Iterator[tuple[int, int]]:
    for lap in laps:
        for index, begin_ns in enumerate(lap.begins):
            yield begin_ns, lap.step_at(index)


def _gone_back_to(ledger: Ledger, since_ns: int) -> int:
    """The lowest step that was begun since, and done; that an attempt was in when it broke off
    counts, too: it is done if the next attempt goes on behind it, else begun again there."""
    attempts = sorted(ledger.attempts.values(), key=lambda attempt: attempt.start_ns)
    tails = [attempt.tail(Pace()).books.laps for attempt in attempts]
    begins = [_begins((*a.books.laps, *tail)) for a, tail in zip(attempts, tails, strict=True)]
    begins += [_in_progress(attempt) for attempt in attempts[:-1]]
    return min(step for begin_ns, step in chain.from_iterable(begins) if begin_ns >= since_ns)


def _in_progress(attempt: Attempt) -> Iterator[tuple[int, int]]:
    for track in attempt.tracks.values():
        if track.begin_ns is not None and track.step is not None:
            yield track.begin_ns, track.step


def _check_waste(
    new: Goodput, begins: list[tuple[int, int]], lowest: int, from_ns: int, end_ns: int
) -> None:
    redone = [begin_ns for begin_ns, step in begins if step >= lowest]
    assert from_ns >= min(redone)
    assert all(name != "productive" for _, _, name in new.intervals(from_ns, end_ns))


@pytest.mark.parametrize("goes_on_at", [26, 27, 28])
def test_a_step_that_was_broken_off_takes_booked_steps_back_too(goes_on_at: int) -> None:
    first = Notebook().begins(0, *range(1, 29)).killed(28)
    second = Notebook(attempt=2, start=28).begins(26, 28).killed(29)
    third = Notebook(attempt=3, start=29).begins(goes_on_at, 29).killed(29)
    books = [first, second, third]
    for at in range(len(pieces := by_time(books)) + 1):
        _booked_steps_stay(books, pieces, at)


def a_later_now_only_extends(books: Books, later: int) -> None:
    """Except that an open step that takes too long turns out to be a stall, or starting if it is
    the first, or not to be done at all, if a rank had died before it began."""
    scribe = fold(books)
    now_ns = last_ns(books)
    old, new = (drawn(books, scribe, now_ns + more * SECOND) for more in (0, later))
    tails = [attempt.tail(Pace()) for attempt in scribe.ledger.attempts.values()]
    done_ns = max(tail.books.end_ns for tail in tails)
    deaths = [book.ended_ns for book in books if book.ended_ns and book.state != "completed"]
    assert (old.start_ns, new.end_ns >= old.end_ns) == (new.start_ns, True)
    for start, _, was, now in changes(old, new, old.start_ns, old.end_ns):
        assert start >= done_ns
        if now == "infrastructure_recovery":
            assert old.live and start >= min(deaths)
        else:
            assert (was, now) in (("productive", "stall"), ("productive", "program_startup"))
    if not old.live:
        assert summary(old) == summary(new)


# ── all of them, a few times in each run of the tests and often in a soak ──────────────────────

data = st.data()
Property = tuple[Callable[..., None], tuple[st.SearchStrategy[object], ...], str]
PROPERTIES: list[Property] = [
    (every_nanosecond_is_in_one_class, (stories,), ""),
    (a_window_is_the_sum_of_its_intervals, (stories, windows, ranges), ""),
    (adjacent_windows_add_up, (stories, st.tuples(seconds, seconds, seconds)), ""),
    (any_batching_gives_the_same, (histories("native"), data), ""),
    (any_batching_gives_the_same, (histories("entries", most_ranks=1), data), "of entries"),
    (any_batching_gives_the_same, (histories("entries"), data), "of several ranks' entries"),
    (saving_and_loading_changes_nothing, (histories("native"), data), ""),
    (entries_need_no_journal, (histories("entries", most_ranks=1),), ""),
    (duplicate_entries_change_nothing, (histories("entries", most_ranks=1), data), ""),
    (a_later_now_only_extends, (stories, st.integers(0, 200)), ""),
]
LONG_PROPERTIES: list[Property] = [
    (any_batching_gives_the_same, (long_histories("native", most_ranks=1), data), "of long runs"),
    (any_batching_gives_the_same, (long_histories("entries", most_ranks=1), data), "of long logs"),
    (
        booked_steps_stay_unless_they_are_done_again,
        (long_histories("native", most_ranks=1), data),
        "",
    ),
    (
        booked_steps_stay_unless_they_are_done_again,
        (long_histories("native", most_ranks=3), data),
        "of ranks",
    ),
    (
        booked_steps_stay_unless_they_are_done_again,
        (long_histories("entries", most_ranks=1), data),
        "of entries",
    ),
]


def named(properties: Sequence[Property]) -> list[str]:
    return [f"{check.__name__.replace('_', ' ')} {more}".strip() for check, _, more in properties]


def hold(
    check: Callable[..., None], drawn: Sequence[st.SearchStrategy[object]], often: int
) -> None:
    trials = settings(
        max_examples=often,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,) if often <= FEW_EXAMPLES else tuple(Phase),
        suppress_health_check=[HealthCheck.too_slow],
    )
    trials(given(*drawn)(check))()


@pytest.mark.parametrize("check, drawn, more", PROPERTIES, ids=named(PROPERTIES))
def test_always(
    check: Callable[..., None], drawn: Sequence[st.SearchStrategy[object]], more: str
) -> None:
    hold(check, drawn, EXAMPLES)


@pytest.mark.soak
@pytest.mark.parametrize("check, drawn, more", PROPERTIES, ids=named(PROPERTIES))
def test_always_long(
    check: Callable[..., None], drawn: Sequence[st.SearchStrategy[object]], more: str
) -> None:
    hold(check, drawn, SOAK_EXAMPLES)


@pytest.mark.parametrize("check, drawn, more", LONG_PROPERTIES, ids=named(LONG_PROPERTIES))
def test_always_of_many_steps(
    check: Callable[..., None], drawn: Sequence[st.SearchStrategy[object]], more: str
) -> None:
    hold(check, drawn, FEW_EXAMPLES)


@pytest.mark.soak
@pytest.mark.parametrize("check, drawn, more", LONG_PROPERTIES, ids=named(LONG_PROPERTIES))
def test_always_of_many_steps_long(
    check: Callable[..., None], drawn: Sequence[st.SearchStrategy[object]], more: str
) -> None:
    hold(check, drawn, SOAK_EXAMPLES // 10)
