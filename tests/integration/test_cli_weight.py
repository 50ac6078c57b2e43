"""What a command imports: with a head it is an HTTP client, and draws only what is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.address import Listening
from tests.integration.asked import Asked, served
from tests.sampling import sampled

HEAVY = {
    "asyncio",
    "duckdb",
    "google",
    "grpc",
    "msgspec",
    "numpy",
    "psutil",
    "starlette",
    "uvicorn",
}
DRAWS = {"plotext", "rich"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Listening]]:
    with served(tmp_path_factory.mktemp("served")) as both:
        yield both


@pytest.mark.parametrize(
    "command",
    sampled(
        [
            "runs",
            "logs line",
            "goodput line",
            "export line --format csv",
            "show line --metric loss",
            "goodput --by group",
            "devices",
            "session list",
            "stacks line --history",
            "profiles",
            "token list",
            "share --list",
            "restore",
            "config",
        ],
        4,
    ),
)
def test_a_question_to_a_head_imports_no_head(
    asked: tuple[Asked, Listening], tmp_path: Path, command: str
) -> None:
    ask, at = asked
    elsewhere = Asked(tmp_path, RUNWATCH_HEAD=at.http, RUNWATCH_TOKEN=at.token)
    words = command.split()
    assert not elsewhere.imports(*words) & HEAVY
    if words[0] != "export":
        assert not elsewhere.imports(*words, "--json") & (HEAVY | DRAWS)


def test_a_directory_that_a_head_serves_is_not_opened(asked: tuple[Asked, Listening]) -> None:
    ask, _ = asked
    assert not ask.imports("runs") & HEAVY


def test_a_directory_is_opened_without_a_server(tmp_path: Path) -> None:
    ask = Asked(tmp_path)
    ask.python("-c", "import runwatch; runwatch.init('line').finish()")
    imported = ask.imports("runs", "--json")
    assert "duckdb" in imported
    assert not imported & (DRAWS | {"grpc", "uvicorn"})


def test_the_list_of_commands_and_the_version_import_nothing(tmp_path: Path) -> None:
    for words in (["--help"], ["--version"]):
        imported = Asked(tmp_path).imports(*words)
        assert not imported & (HEAVY | DRAWS | {"urllib.request", "runwatch.cli.source"})
