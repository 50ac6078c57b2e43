"""Tokens with roles: what each opens, when it ends, and what the file tells who finds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runwatch.errors import NotFound, UsageError
from runwatch.head.access.tokens import FILE, Tokens, cookie_of
from runwatch.testing import FakeClock

DAY = 86_400 * 10**9


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tokens(tmp_path: Path, clock: FakeClock) -> Tokens:
    return Tokens(tmp_path / FILE, clock=clock)


def test_one_opens_by_its_word_and_by_its_cookie(tokens: Tokens) -> None:
    made, word = tokens.add("operate", "alice")
    assert tokens.of_word(word) == tokens.of_cookie(cookie_of(word)) == made
    assert (made.role, made.name, made.expires_ns) == ("operate", "alice", 0)
    assert tokens.of_word(word + "x") is None and tokens.of_word("") is None
    assert tokens.of_cookie(made.proof) is None


def test_the_file_opens_nothing_and_is_its_owners(tokens: Tokens, tmp_path: Path) -> None:
    made, word = tokens.add("view")
    file = tmp_path / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert word not in text and cookie_of(word) not in text
    assert json.loads(text)["tokens"][0]["name"] == "view", "called by its role unless named"
    assert tokens.holds(made)


def test_one_that_is_taken_back_or_over_opens_nothing(
    tokens: Tokens, tmp_path: Path, clock: FakeClock
) -> None:
    kept, kept_word = tokens.add("ingest", days=2.0)
    gone, word = tokens.add("ingest")
    other = Tokens(tmp_path / FILE, clock=clock)  # another process of the same user
    other.revoke(gone.id)
    assert tokens.of_word(word) is None and not tokens.holds(gone)
    assert [token.id for token in tokens.all()] == [kept.id]
    clock.now_ns += 2 * DAY
    assert tokens.of_word(kept_word) is None and not tokens.holds(kept) and tokens.all() == []
    with pytest.raises(NotFound, match="no token 'nobody'"):
        tokens.revoke("nobody")


@pytest.mark.parametrize("days", [0.0, -1.0, 4000.0, float("nan")])
def test_how_long_has_bounds(tokens: Tokens, days: float) -> None:
    with pytest.raises(UsageError, match="days="):
        tokens.add("view", days=days)


@pytest.mark.parametrize("name", ["a\x1b[31m", "a\nb", "x" * 81, "a'b"])
def test_a_name_is_one_that_can_be_shown(tokens: Tokens, name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        tokens.add("view", name)


def test_there_is_an_end_to_how_many(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / FILE, most=2)
    tokens.add("view"), tokens.add("view")
    with pytest.raises(UsageError, match="2 tokens already"):
        tokens.add("view")


@pytest.mark.parametrize(
    "change",
    [
        {"role": "root"},
        {"expires_ns": "1"},
        {"proof": 1},
        {"name": None},
        {"projects": "vision"},
        {"projects": None},
        {"projects": [1]},
    ],
)
def test_a_damaged_file_opens_nothing_and_stays(
    tokens: Tokens, tmp_path: Path, change: dict[str, object]
) -> None:
    _, word = tokens.add("admin")
    file = tmp_path / FILE
    body = json.loads(file.read_text())
    body["tokens"][0] |= change
    file.write_text(json.dumps(body))
    assert tokens.of_word(word) is None
    with pytest.raises(UsageError, match="move the file away"):
        tokens.add("view")
    assert json.loads(file.read_text()) == body


def test_without_a_place_none_is_made() -> None:
    with pytest.raises(UsageError, match="only reads its directory"):
        Tokens().add("view")


# ── projects ──────────────────────────────────────────────────────────────────────────────────


def test_one_of_projects_is_that_in_every_process(tokens: Tokens, tmp_path: Path) -> None:
    made, word = tokens.add("view", projects=["vision", "audio", "vision"])
    assert made.projects == ("vision", "audio")
    other = Tokens(tmp_path / FILE)
    assert other.of_word(word) == made and other.holds(made) and tokens.holds(made)


def test_a_file_of_before_there_were_projects_is_read(tokens: Tokens, tmp_path: Path) -> None:
    _, word = tokens.add("operate", "alice")
    file = tmp_path / FILE
    body = json.loads(file.read_text())
    assert body["version"] == 1
    del body["tokens"][0]["projects"]
    file.write_text(json.dumps(body))
    found = tokens.of_word(word)
    assert found is not None and (found.role, found.projects) == ("operate", ())


def test_an_older_head_does_not_take_it_for_a_token_of_all_runs(
    tokens: Tokens, tmp_path: Path
) -> None:
    made, _ = tokens.add("view", projects=["vision"])
    file = tmp_path / FILE
    assert json.loads(file.read_text())["version"] == 2, "which older ones do not open"
    tokens.revoke(made.id)
    tokens.add("view")
    assert json.loads(file.read_text())["version"] == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\x1b[31m"])
def test_a_project_is_a_group_that_can_be_shown(tokens: Tokens, name: str) -> None:
    with pytest.raises(UsageError, match="project"):
        tokens.add("view", projects=[name])


def test_there_is_an_end_to_its_projects(tokens: Tokens) -> None:
    with pytest.raises(UsageError, match="101 projects"):
        tokens.add("view", projects=[str(number) for number in range(101)])
