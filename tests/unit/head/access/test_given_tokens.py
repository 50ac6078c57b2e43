"""Tokens in files: which count, when a change counts, and what is refused in which words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runwatch.errors import UsageError
from runwatch.head.access import given_tokens
from runwatch.head.access.given_tokens import GivenTokens, role_and_name
from runwatch.head.access.main_token import MainToken
from runwatch.head.access.tokens import Tokens, cookie_of
from runwatch.testing import FakeClock
from tests.integration.strangers import MALLORY, needs_users
from tests.mounted import MountedSecret

MAIN, AGENTS, LOOKING = "main-" * 6, "agents-" * 5, "looking-" * 5
DATA = {"main": MAIN, "ingest-agents": AGENTS + "\n", "view-prometheus": LOOKING}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "tokens", DATA)


@pytest.fixture
def given(secret: MountedSecret, clock: FakeClock) -> GivenTokens:
    return GivenTokens(secret.place, clock=clock)


def plain(tmp_path: Path, **files: str) -> Path:
    """A folder that a person made."""
    folder = tmp_path / "plain"
    folder.mkdir(mode=0o700)
    for name, word in files.items():
        (folder / name.replace("_", "-")).write_text(word)
        (folder / name.replace("_", "-")).chmod(0o600)
    return folder


# ── what counts ───────────────────────────────────────────────────────────────────────────────


def test_a_mounted_secret_is_its_tokens(given: GivenTokens, secret: MountedSecret) -> None:
    now = given.now()
    assert now.main == MAIN
    assert {file: word for file, (word, _) in now.words.items()} == {
        "ingest-agents": AGENTS,
        "view-prometheus": LOOKING,
    }
    written = (secret.place / "ingest-agents").stat().st_mtime_ns
    assert now.words["ingest-agents"][1] == written
    assert AGENTS not in repr(now)


def test_a_folder_of_files_and_an_empty_one_are_fine(tmp_path: Path, clock: FakeClock) -> None:
    folder = plain(tmp_path, ingest_agents=AGENTS)
    (folder / ".hidden").write_text("x")
    assert set(GivenTokens(folder, clock=clock).now().words) == {"ingest-agents"}
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o755)
    now = GivenTokens(empty, clock=clock).now()
    assert (now.main, now.words) == ("", {})


@pytest.mark.parametrize(
    ("file", "means"),
    [
        ("ingest-agents", ("ingest", "agents")),
        ("view-alice@example.com", ("view", "alice@example.com")),
        ("operate-a-b-c", ("operate", "a-b-c")),
        ("admin-x", ("admin", "x")),
    ],
)
def test_a_files_name_says_role_and_name(file: str, means: tuple[str, str]) -> None:
    assert role_and_name(file) == means


@pytest.mark.parametrize("file", ["token", "ingest", "ingest-", "root-x", "view-\x1b[31m", "Main"])
def test_another_name_is_refused(file: str) -> None:
    with pytest.raises(UsageError, match=r"call it main, or <role>-<name>"):
        role_and_name(file)


# ── when a change counts ──────────────────────────────────────────────────────────────────────


def test_a_renewed_secret_counts_within_a_second(
    given: GivenTokens, secret: MountedSecret, clock: FakeClock
) -> None:
    changes: list[str] = []
    given.on_changed = lambda: changes.append(given.now().main)
    before = given.now()
    clock.advance(5)
    assert given.now() is before and not changes, "nothing has changed"
    secret.write(DATA | {"main": "another-" * 4, "operate-ci": "ci-" * 10})
    assert given.now() is before, "it was looked at just now"
    clock.advance(1)
    assert given.now().main == "another-" * 4 and "operate-ci" in given.now().words
    assert changes == ["another-" * 4]
    secret.write({"main": "another-" * 4})
    clock.advance(1)
    assert given.now().words == {}
    assert len(changes) == 2


def test_a_secret_written_again_with_the_same_words_changes_when_it_was_made_alone(
    given: GivenTokens, secret: MountedSecret, clock: FakeClock
) -> None:
    before = given.now()
    secret.write(DATA)
    clock.advance(1)
    now = given.now()
    assert now.main == before.main
    assert {f: w for f, (w, _) in now.words.items()} == {f: w for f, (w, _) in before.words.items()}


def test_a_plain_file_that_is_changed_taken_away_or_opened_to_others(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    folder = plain(tmp_path, ingest_agents=AGENTS, view_me=LOOKING)
    given, file = GivenTokens(folder, clock=clock), folder / "ingest-agents"
    file.write_text("changed-" * 5)
    clock.advance(1)
    assert given.now().words["ingest-agents"][0] == "changed-" * 5
    file.chmod(0o644)
    for _ in range(5):
        clock.advance(1)
        assert set(given.now().words) == {"view-me"}
    # It says so once.
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"others may read the token in {file}: run chmod 600 {file}" in said, (
        "and it says so once"
    )
    file.chmod(0o600)
    clock.advance(1)
    assert set(given.now().words) == {"view-me", "ingest-agents"}
    file.unlink()
    clock.advance(1)
    assert set(given.now().words) == {"view-me"}
    folder.rename(tmp_path / "gone")
    clock.advance(1)
    assert given.now().words == {} and "No such file" in caplog.messages[-1]


def test_a_secret_that_is_switched_while_it_is_read_is_read_again(
    given: GivenTokens,
    secret: MountedSecret,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Never half of one form and half of another."""
    forms = [{name: f"{name}-{'x' * 24}-{form}" for name in DATA} for form in range(3)]
    read = given_tokens._word

    def read_meanwhile(directory: Path, name: str) -> tuple[str, int]:
        if name == "main" and len(forms) > 1:
            secret.write(forms.pop(0))
        return read(directory, name)

    monkeypatch.setattr(given_tokens, "_word", read_meanwhile)
    secret.write(forms.pop(0))
    clock.advance(1)
    now = given.now()
    assert {now.main[-1], *(word[-1] for word, _ in now.words.values())} == {"1"}
    assert caplog.messages == []


# ── what is refused ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("short", "has 5 characters: use at least 24"),
        ("", "has 0 characters"),
        ("two words and more of them, many", "has spaces, or characters that no header"),
        ("é" * 30, "has spaces, or characters that no header"),
        ("x" * 100_000, "has more than"),
    ],
)
def test_a_word_that_is_no_token_is_refused(tmp_path: Path, word: str, why: str) -> None:
    folder = plain(tmp_path, ingest_agents=word)
    with pytest.raises(UsageError, match=why) as refused:
        GivenTokens(folder)
    assert not word or word not in str(refused.value), "an error message goes to a log"


def test_two_files_with_one_token_are_refused(tmp_path: Path) -> None:
    folder = plain(tmp_path, ingest_agents=AGENTS, main=AGENTS)
    with pytest.raises(UsageError, match=r"main has the same token as ingest-agents"):
        GivenTokens(folder)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o601])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    folder = plain(tmp_path, ingest_agents=AGENTS)
    (folder / "ingest-agents").chmod(mode)
    with pytest.raises(UsageError, match=r"defaultMode: 0440, and an fsGroup"):
        GivenTokens(folder)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = plain(tmp_path, ingest_agents=AGENTS)
    folder.chmod(0o777)
    with pytest.raises(UsageError, match=r"others may write to .*chmod go-w"):
        GivenTokens(folder)


def test_a_link_that_leads_out_a_pipe_and_a_folder_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(AGENTS)
    outside.chmod(0o600)
    folder = plain(tmp_path)
    file = folder / "ingest-agents"
    file.symlink_to(outside)
    with pytest.raises(UsageError, match=f"leads out of the directory, to {outside}"):
        GivenTokens(folder)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(UsageError, match="cannot read the token"):
        GivenTokens(folder)
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError, match="cannot read the token"):
        GivenTokens(folder)


def test_no_folder_or_one_with_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="cannot read the tokens in .*No such file"):
        GivenTokens(tmp_path / "none")
    folder = plain(tmp_path, view_a=AGENTS, view_b=LOOKING)
    monkeypatch.setattr(given_tokens, "MOST_FILES", 1)
    with pytest.raises(UsageError, match="has 2 files: at most 1 are tokens"):
        GivenTokens(folder)


@needs_users
def test_what_another_user_laid_there_is_refused(tmp_path: Path) -> None:
    folder = plain(tmp_path, ingest_agents=AGENTS)
    os.chown(folder / "ingest-agents", MALLORY, MALLORY)
    with pytest.raises(UsageError, match="belongs to"):
        GivenTokens(folder)
    os.chown(folder / "ingest-agents", 0, 0)
    assert GivenTokens(folder).now().words
    (folder / "view-link").symlink_to("ingest-agents")
    os.chown(folder / "view-link", MALLORY, MALLORY, follow_symlinks=False)
    with pytest.raises(UsageError, match="belongs to another user"):
        GivenTokens(folder)
    (folder / "view-link").unlink()
    os.chown(folder, MALLORY, MALLORY)
    with pytest.raises(UsageError, match="others may write to"):
        GivenTokens(folder)


# ── among the head's tokens ───────────────────────────────────────────────────────────────────


def test_a_given_token_opens_as_its_role_until_its_file_goes(
    given: GivenTokens, secret: MountedSecret, tmp_path: Path, clock: FakeClock
) -> None:
    tokens = Tokens(tmp_path / "tokens.json", given=given, clock=clock)
    made, word = tokens.add("view", "alice")
    agents = tokens.of_word(AGENTS)
    assert agents is not None and agents == tokens.of_cookie(cookie_of(AGENTS))
    assert (agents.role, agents.name, agents.id) == ("ingest", "agents", "ingest-agents")
    assert agents.file == str(secret.place / "ingest-agents") and tokens.holds(agents)
    assert tokens.of_word(MAIN) is None, "the main token is another thing"
    assert {token.id for token in tokens.all()} == {made.id, "ingest-agents", "view-prometheus"}
    with pytest.raises(UsageError, match="given to this head by the file .*take the file away"):
        tokens.revoke("ingest-agents")
    secret.write(DATA | {"ingest-agents": "renewed-" * 4})
    clock.advance(1)
    assert tokens.of_word(AGENTS) is None and not tokens.holds(agents)
    renewed = tokens.of_word("renewed-" * 4)
    assert renewed is not None and renewed.id == "ingest-agents"
    secret.write({"main": MAIN})
    clock.advance(1)
    assert tokens.of_word("renewed-" * 4) is None and not tokens.holds(renewed)
    assert tokens.of_word(word) == made, "those that the head made are not touched"
    assert "agents" not in (tmp_path / "tokens.json").read_text()


def test_a_list_on_the_disk_cannot_name_a_file(tmp_path: Path, clock: FakeClock) -> None:
    tokens = Tokens(tmp_path / "tokens.json", clock=clock)
    _, word = tokens.add("admin")
    file = tmp_path / "tokens.json"
    file.write_text(file.read_text().replace('"file": ""', '"file": "/etc/passwd"'))
    assert tokens.of_word(word) is None


def test_the_main_token_of_a_file_is_renewed_with_it_and_lets_nobody_in_without(
    given: GivenTokens, secret: MountedSecret, clock: FakeClock
) -> None:
    main, renewed = MainToken(given=given), list[str]()
    main.on_renewed = lambda: renewed.append(main.told)
    first = main.now
    assert first.word == MAIN == main.told and first.is_it(MAIN.encode())
    with pytest.raises(UsageError, match=f"by {secret.place}/main: change that file"):
        main.renew()
    secret.write(DATA | {"view-new": "new-" * 8})
    clock.advance(1)
    assert main.now is first and renewed == [], "others of the Secret are no reason"
    secret.write(DATA | {"main": "second-" * 5})
    clock.advance(1)
    assert main.now.word == "second-" * 5 and renewed == ["second-" * 5]
    secret.write({"view-prometheus": LOOKING})
    clock.advance(1)
    nobodys = main.now
    assert main.told == "" and nobodys.word and not nobodys.is_it(b"")
    assert not nobodys.is_it(("second-" * 5).encode()) and renewed[1:] == [""]
    secret.write(DATA)
    clock.advance(1)
    assert main.now.word == MAIN == main.told and main.now is not first
