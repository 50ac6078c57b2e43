"""Tokens of shared links: what is kept of them, how long they open something, and for whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runwatch.errors import NotFound, UsageError
from runwatch.head.access.shares import Shares, cookie_of
from runwatch.testing import FakeClock

DAY = 86_400 * 10**9


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def shares(tmp_path: Path, clock: FakeClock) -> Shares:
    return Shares(tmp_path / "shares.json", clock=clock)


def test_a_token_and_its_cookie_open_the_same(shares: Shares) -> None:
    share, token = shares.add("run-1", 7, "for Ada")
    assert shares.of_token(token) == share == shares.of_cookie(cookie_of(token))
    assert (share.run, share.note) == ("run-1", "for Ada")


def test_nothing_else_opens_anything(shares: Shares) -> None:
    share, token = shares.add("", 7, "")
    for wrong in ("", "rws_", token[:-1], token + "x", token.upper(), share.proof, "rws_\udce9"):
        assert shares.of_token(wrong) is None
        assert shares.of_cookie(wrong) is None
    assert shares.of_cookie("share-" + share.proof) is None


def test_the_file_holds_nothing_that_opens_anything(shares: Shares, tmp_path: Path) -> None:
    _, token = shares.add("run-1", 7, "")
    path = tmp_path / "shares.json"
    text = path.read_text()
    assert token not in text and cookie_of(token) not in text
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["shares.json"]


def test_links_outlive_the_process(shares: Shares, tmp_path: Path, clock: FakeClock) -> None:
    share, token = shares.add("run-1", 7, "")
    again = Shares(tmp_path / "shares.json", clock=clock)
    assert again.of_token(token) == share
    assert again.all() == [share]


def test_a_link_expires(shares: Shares, clock: FakeClock) -> None:
    share, token = shares.add("run-1", 1.5, "")
    clock.now_ns += int(1.5 * DAY) - 1
    assert shares.of_token(token) is not None and shares.holds(share)
    clock.now_ns += 1
    assert shares.of_token(token) is None and not shares.holds(share)
    assert shares.all() == []


def test_a_link_that_was_taken_back_opens_nothing(shares: Shares) -> None:
    share, token = shares.add("run-1", 7, "")
    other, token_of_other = shares.add("run-2", 7, "")
    shares.revoke(share.id)
    assert shares.of_token(token) is None and not shares.holds(share)
    assert shares.of_token(token_of_other) == other
    with pytest.raises(NotFound, match=share.id):
        shares.revoke(share.id)


def test_what_another_process_takes_back_is_gone_here_too(
    shares: Shares, tmp_path: Path, clock: FakeClock
) -> None:
    share, token = shares.add("run-1", 7, "")
    assert shares.of_token(token) == share
    Shares(tmp_path / "shares.json", clock=clock).revoke(share.id)
    assert shares.of_token(token) is None and not shares.holds(share)


@pytest.mark.parametrize("days", [0, -1, float("nan"), float("inf"), 3651])
def test_days_that_cannot_be(shares: Shares, days: float) -> None:
    with pytest.raises(UsageError, match="days"):
        shares.add("", days, "")


def test_their_number_is_bounded_and_old_ones_make_room(tmp_path: Path, clock: FakeClock) -> None:
    shares = Shares(tmp_path / "shares.json", most=3, clock=clock)
    for _ in range(3):
        shares.add("", 1, "")
    with pytest.raises(UsageError, match="take some back"):
        shares.add("", 1, "")
    clock.now_ns += DAY
    shares.add("", 1, "")
    assert len(shares.all()) == 1


def test_where_nothing_can_be_kept(clock: FakeClock, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only reads its directory"):
        Shares(None, clock=clock).add("", 1, "")
    with pytest.raises(UsageError, match="No such file"):
        Shares(tmp_path / "nowhere" / "shares.json", clock=clock).add("", 1, "")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "shares": []}', '{"version": 1, "shares": [{"id": 1}]}']
)
def test_a_damaged_file_opens_nothing_and_is_not_written_over(
    shares: Shares, tmp_path: Path, text: str
) -> None:
    _, token = shares.add("", 1, "")
    (tmp_path / "shares.json").write_text(text)
    assert shares.of_token(token) is None
    with pytest.raises(UsageError, match="shares.json cannot be read"):
        shares.add("", 1, "")
    with pytest.raises(UsageError, match="move the file away"):
        shares.all()
    assert (tmp_path / "shares.json").read_text() == text


def test_the_format_is_stable(shares: Shares, tmp_path: Path) -> None:
    shares.add("run-1", 7, "x")
    body = json.loads((tmp_path / "shares.json").read_text())
    assert body["version"] == 1
    names = {"id", "run", "note", "created_ns", "expires_ns", "proof"}
    assert [set(share) for share in body["shares"]] == [names]
