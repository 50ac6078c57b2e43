"""A token in a file that nobody else may read."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.agent.settings import AgentSettings
from runwatch.cli.__main__ import main
from runwatch.errors import UsageError
from runwatch.head.settings import HeadSettings
from runwatch.settings import load, read_token, token_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "token"
    made.write_text("secret\n")
    made.chmod(0o600)
    return made


def test_head_agent_and_command_line_take_it(file: Path) -> None:
    environment = {"RUNWATCH_TOKEN_FILE": str(file), "RUNWATCH_DIR": str(file.parent)}
    assert token_of(environment) == "secret"
    assert token_of({"RUNWATCH_TOKEN": "word"}) == "word" and token_of({}) == ""
    assert load(AgentSettings, section="agent", environ=environment).values.token == "secret"
    assert load(HeadSettings, section="head", environ=environment).values.token == "secret"
    flags = {"token_file": file}
    both = environment | {"RUNWATCH_TOKEN": "word"}
    assert load(HeadSettings, section="head", flags=flags, environ=both).values.token == "secret"


def test_a_link_to_it_is_as_good(file: Path) -> None:
    """A Kubernetes secret is one."""
    link = file.with_name("link")
    link.symlink_to(file.name)
    assert read_token(link) == "secret"


def test_what_others_may_read_is_no_secret(file: Path) -> None:
    for mode in (0o644, 0o604, 0o660, 0o602):
        file.chmod(mode)
        with pytest.raises(UsageError, match="chmod 600"):
            read_token(file)
    file.chmod(0o640)  # a group of its own, as Kubernetes gives it
    assert read_token(file) == "secret"
    file.write_text(" \n")
    with pytest.raises(UsageError, match="no token in"):
        read_token(file)
    with pytest.raises(UsageError, match="cannot read"):
        read_token(file.with_name("none"))


@pytest.mark.parametrize("command", ["head", "host", "agent"])
def test_help_names_the_file_first(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = capsys.readouterr().out
    assert "--token-file" in said
    if command != "agent":
        assert said.index("--token-file FILE") < said.index("  --token TOKEN")
        assert "can see it in `ps`" in " ".join(said.split())
