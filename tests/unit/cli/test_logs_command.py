"""`runwatch logs`: from a directory, with filters, and following a program that runs."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from runwatch.cli.__main__ import main
from runwatch.cli.commands import logs
from tests.integration.sdk_programs import program_environment, run_program, start_program

PROGRAM = """
import runwatch, sys
run = runwatch.init("talks", console=True)
for number in range(300):
    print("line", number)
print("a warning\\x1b[31m", file=sys.stderr)
raise ValueError("gone")
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs") / "runs"
    assert run_program(PROGRAM, directory).returncode == 1
    return directory


class Asked:
    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._directory, self._capsys = directory, capsys
        self.err = ""
        self.code = 0

    def __call__(self, *words: str) -> list[str]:
        self.code = main(["logs", *words, "--dir", str(self._directory)])
        out, self.err = self._capsys.readouterr()
        return out.splitlines()

    def texts(self, *words: str) -> list[str]:
        """Without the time, and the date: the program may have run before midnight."""
        return [re.sub(r"^([\d-]+ )?[\d:]+ ", "", line) for line in self(*words)]


@pytest.fixture
def asked(recorded: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Asked]:
    yield Asked(recorded, capsys)


def test_the_last_lines_with_the_exception_marked_once(asked: Asked) -> None:
    texts = asked.texts("talks")
    assert "line 299" in texts and "line 0" not in texts
    assert texts.count("✘ uncaught: ValueError: gone") == 1
    assert texts.count("ValueError: gone") == 1, "the program printed its traceback itself"
    assert "a warning" in texts


def test_everything_and_some_of_it(asked: Asked) -> None:
    assert asked.texts("talks", "--all")[0] == "line 0"
    assert asked.texts("talks", "--grep", "LINE 29") == []
    assert (asked.code, asked.err) == (1, "runwatch: no such lines\n")
    assert asked.texts("talks", "--grep", "line 29") == [
        "line 29", *(f"line {number}" for number in range(290, 300))
    ]  # fmt: skip
    assert asked.texts("talks", "-n", "1", "--stream", "out") == ["line 299"]
    assert len(asked("talks", "--since", "1h")) > 300
    assert asked("talks", "--until", "1h") == []


def test_a_traceback_that_was_not_printed_is_shown(asked: Asked) -> None:
    texts = asked.texts("talks", "--stream", "exception")
    assert texts[0] == "✘ uncaught: ValueError: gone"
    assert texts[1].strip() == "Traceback (most recent call last):"
    assert texts[-1].strip() == "ValueError: gone"


def test_json(asked: Asked) -> None:
    answer: dict[str, Any] = json.loads("\n".join(asked("talks", "--json", "-n", "3")))
    assert len(answer["entries"]) == 3
    assert answer["entries"][-1]["text"] == "ValueError: gone"


def test_what_is_wrong_is_said(asked: Asked) -> None:
    assert asked("talks", "--rank", "7") == [] and asked.code != 0
    assert "no rank 7" in asked.err
    assert asked("nobody") == [] and asked.code != 0
    assert asked("talks", "--since", "soon") == [] and "not a time" in asked.err


def test_a_run_without_lines_says_how_to_get_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_program("import runwatch; runwatch.init('silent').log(loss=1.0)", tmp_path)
    assert main(["logs", "silent", "--dir", str(tmp_path)]) == 0
    assert "runwatch exec" in capsys.readouterr().err


class Head:
    """Answers with the pages of a log whose one find is old."""

    def __init__(self, *pages: tuple[list[int], str]) -> None:
        self.asked: list[str] = []
        self._pages = iter(pages)

    def get(self, path: str, **query: Any) -> Any:
        self.asked.append(query["after"])
        times, newer = next(self._pages, ([], query["after"]))
        entries = [{"id": str(time_ns), "time_ns": time_ns} for time_ns in times]
        return {"entries": entries, "newer": newer, "ranks": [0]}


def test_following_a_search_does_not_search_everything_again() -> None:
    day, hour, second = 86_400 * 10**9, 3600 * 10**9, 10**9
    for words, again in (["--grep", "rare"], day - hour - 20 * second), (["--all"], 0):
        parser = argparse.ArgumentParser()
        logs.arguments(parser)
        end = f"{day}.3"
        finds: list[list[int]] = [[second], [], [again + 1], [], [again + 1, again + 2]]
        head = Head(*((times, end) for times in finds))
        asked: Any = logs._Asked(
            cast(Any, head), {"run": "r", "name": "n"}, parser.parse_args(["n", *words])
        )
        assert [entry["id"] for entry in asked.first()] == [str(second)]
        for new in (again + 1, again + 2):
            assert [entry["id"] for entry in asked.news()] == [str(new)], "each entry once"
        assert head.asked == ["0.0", end, f"{again}.0", end, f"{again}.0", end]


def test_follow_ends_with_the_run(tmp_path: Path) -> None:
    go = tmp_path / "go"
    process = start_program(
        f"""
        import os, time, runwatch
        run = runwatch.init("going", console=True)
        print("begun", flush=True)
        while not os.path.exists({str(go)!r}):
            time.sleep(0.01)
        print("heard one")
        print("heard two")
        """,
        tmp_path / "runs",
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        follower = subprocess.Popen(
            [sys.executable, "-m", "runwatch.cli", "logs", "going", "--follow", "--json",
             "--dir", str(tmp_path / "runs")],
            env=program_environment(tmp_path / "runs"),
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        with follower:
            assert follower.stdout is not None
            assert json.loads(follower.stdout.readline())["text"] == "begun"
            go.touch()
            rest = [json.loads(line)["text"] for line in follower.stdout]
        process.communicate()
    assert rest == ["heard one", "heard two"]
    assert follower.returncode == 0
