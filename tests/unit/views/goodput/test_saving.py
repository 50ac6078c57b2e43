"""The state of a fold as bytes: whatever a scribe and its ledger know comes back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.views.goodput import saving
from runwatch.views.goodput.account import Goodput
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import Scribe
from runwatch.views.goodput.ledger import Ledger, Stale
from runwatch.views.goodput.saving import (
    packed,
    rules,
    scribe_of_state,
    scribe_state,
    unpacked,
)
from tests.unit.views.goodput.histories import FORMS, histories
from tests.unit.views.goodput.story import RUN, SECOND, Notebook


def saved(scribe: Scribe) -> bytes:
    return packed([scribe.ledger.state(), scribe_state(scribe)])


def again(scribe: Scribe) -> Scribe:
    ledger, state = unpacked(saved(scribe))
    return scribe_of_state(RUN, Ledger.of_state(ledger), state)


def announced(books: Sequence[Notebook]) -> Scribe:
    scribe = Scribe(RUN, Ledger())
    for book in books:
        scribe.enter(book.journal, book.attempt, book.rank, book.start_ns)
    return scribe


def drawn(books: Sequence[Notebook], scribe: Scribe) -> Goodput | None:
    lives = scribe.lives([book.process() for book in books])
    last_ns = max((record.time_ns for book in books for record in book.records), default=0)
    return draw_up(scribe.ledger, lives, last_ns + 7 * SECOND)


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────


def test_columns_and_plain_values_come_back() -> None:
    state = {
        "numbers": array("q", [1, -(2**63), 2**63 - 1]),
        "deep": [{"bytes": array("B", b"\0\xff"), "none": array("q")}],
        "plain": [1, 2**200, -1.5, "ü\ud800", None, True],
        "column": "a name like any other",
    }
    assert unpacked(packed(state)) == state
    assert packed(unpacked(packed(state))) == packed(state)


@pytest.mark.parametrize("state", [{1, 2}, array("d", [1.0]), b"bytes"])
def test_what_is_neither_is_refused(state: object) -> None:
    with pytest.raises(TypeError, match="cannot save"):
        packed([state])


def test_what_was_not_packed_is_refused() -> None:
    whole = packed([array("q", range(100)), "text"])
    for at in range(len(whole)):
        with pytest.raises(ValueError):
            unpacked(whole[:at])
    with pytest.raises(ValueError):
        unpacked(whole + b"\0")
    with pytest.raises(ValueError):
        unpacked(packed({"column": "d", "bytes": 0}))
    with pytest.raises(ValueError):
        unpacked(packed({"column": "q", "bytes": -8}))


def test_rules_are_named_by_the_code() -> None:
    assert len(rules()) == 64
    assert rules() == rules()


def test_the_code_is_all_of_it(tmp_path: Path) -> None:
    """Rooms below count, too; what Python keeps beside its sources does not."""
    for name in ("ledger.py", "steps/track.py", "__pycache__/ledger.cpython-312.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(saving._sources(tmp_path)) == ["ledger.py", "steps/track.py"]
    assert "steps/track.py" in saving._sources(Path(saving.__file__).parent)


# ── scribes ────────────────────────────────────────────────────────────────────────────────────


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    FORMS.flatmap(histories),
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 30), st.booleans()), max_size=20),
)
def test_saved_anywhere(books: Sequence[Notebook], turns: Sequence[tuple[int, int, bool]]) -> None:
    plain, kept = announced(books), announced(books)
    at = dict.fromkeys(range(len(books)), 0)
    for number, count, is_saved in turns:
        which = number % len(books)
        first, at[which] = at[which], at[which] + count
        if first >= len(books[which].records):
            continue
        batch = books[which].batch(first, at[which])
        if is_saved:
            kept = again(kept)
        try:
            plain.batch(batch)
        except Stale:
            with pytest.raises(Stale):
                kept.batch(batch)
            return
        kept.batch(batch)
        plain.ledger.settle()
        kept.ledger.settle()
        assert saved(kept) == saved(plain)
    assert _summary(drawn(books, again(kept))) == _summary(drawn(books, plain))


def _summary(goodput: Goodput | None) -> object:
    if goodput is None:
        return None
    parts = (goodput.attempts, goodput.disruptions, goodput.ranks, goodput.inferred_ns)
    return list(goodput.intervals()), [str(part) for part in parts]


def test_a_track_that_is_nobodys_is_saved_with_its_journal() -> None:
    """It recorded entries before anything else, so its attempts are told by them."""
    book = Notebook().entry("job_start_time", 0).begins(0, *range(1, 30))
    other = Notebook(1).steps(0, *range(1, 30))
    scribe = announced([book, other])
    scribe.batch(book.batch(0, 20))
    scribe.batch(other.batch(0, 20))
    kept = again(scribe)
    loose = kept._journals[book.journal].track
    assert loose.key not in kept.ledger.attempts[1, 0].tracks
    assert kept._journals[other.journal].track is kept.ledger.attempts[1, 0].tracks[other.journal]
    for each in (scribe, kept):
        each.batch(book.batch(20))
        each.batch(other.batch(20))
        each.ledger.settle()
    assert saved(kept) == saved(scribe)


def test_running_totals_come_back() -> None:
    """Long enough that they are kept at several marks, with a class that comes late."""
    book = Notebook()
    for number in range(900):
        book.step(number, 10 * number + 3, 10 * number + 10)
    book.span("upload", 9001, 9005)
    scribe = announced([book])
    scribe.batch(book.batch())
    before, after = drawn([book], scribe), drawn([book], again(scribe))
    assert before is not None and after is not None
    for since, until in ((0, None), (1234, 7777), (5000, 5001), (8999, 9004)):
        window = since * SECOND, None if until is None else until * SECOND
        assert after.account(*window).spent_ns == before.account(*window).spent_ns
