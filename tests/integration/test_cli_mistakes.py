"""What a command says to a name that is wrong, and how it exits."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runwatch.address import Listening
from runwatch.cli.__main__ import main
from tests.integration.asked import Asked, served


@dataclass
class Said:
    code: int
    stdout: str
    stderr: str


Ask = Callable[..., Said]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Listening]]:
    with served(tmp_path_factory.mktemp("served")) as both:
        yield both


@pytest.fixture
def ask(
    world: tuple[Asked, Listening],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Commands in this process: the head is a real one, and they only ask it."""
    _, head = world
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("RUNWATCH_HEAD", head.http)
    monkeypatch.setenv("RUNWATCH_TOKEN", head.token)
    monkeypatch.setenv("COLUMNS", "120")

    def asked(*words: str, code: int | None = 0) -> Said:
        try:
            exit_code = main(words)
        except SystemExit as exits:  # as argparse ends
            exit_code = int(exits.code or 0)
        said = Said(exit_code, *capsys.readouterr())
        assert code is None or said.code == code, (words, said)
        return said

    return asked


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("show lin", 1, "there is no run 'lin' in http://"),
        ("show lin", 1, ": did you mean 'line' or 'line-of-another-day'? `runwatch runs` lists"),
        ("goodput Line", 1, "did you mean 'line'"),
        ("stacks lien", 1, "did you mean 'line'?"),
        ("export lien", 1, "did you mean 'line'?"),
        ("profiles lien", 1, "did you mean 'line'?"),
        ("capture lien", 1, "did you mean 'line'?"),
        ("share lien", 1, "did you mean 'line'?"),
        ("delete lien --yes", 1, "did you mean 'line'?"),
        ("devices --run lien", 1, "did you mean 'line'?"),
        ("restore lien", 1, "there is no deleted run 'lien'"),
        ("session export nosuch", 1, "`runwatch session list` lists all"),
        ("show quite-another", 1, "in http"),
        ("show line --metric los", 1, "no metric 'los': did you mean 'loss'? it has accuracy, "),
        ("show line --metric los --json", 1, "did you mean 'loss'?"),
        ("export line --metric los", 1, "did you mean 'loss'?"),
        ("export line --metric los --format json", 1, "did you mean 'loss'?"),
        ("export line --perfetto --metric los", 1, "did you mean 'loss'?"),
        ("show line --rank 99", 1, "run 'line' has no rank 99; it has rank 0"),
        ("show line --rank 99 --json", 1, "has no rank 99"),
        ("stacks line --rank 99", 1, "has no rank 99"),
        ("stacks line --history --rank 99", 1, "has no rank 99"),
        ("capture line --ranks 7-9", 1, "has no ranks 7–9; it has rank 0"),
        ("show line -m warm_up_seconds --axis step", 2, "has no steps: draw it with --axis time"),
        ("runs --state runing", 2, "did you mean 'running'?"),
        ("export line --format cvs", 2, "did you mean 'csv'?"),
        ("session strat", 2, "did you mean 'stat' or 'start'?"),
        ("token create --role ingst", 2, "did you mean 'ingest'?"),
        ("config hed", 2, "did you mean 'head'?"),
        ("shwo line", 2, "there is no command 'shwo': did you mean 'show'?"),
        ("show line --metirc loss", 2, "there is no option --metirc: did you mean '--metric'?"),
        ("token create --role view --projct x", 2, "did you mean '--project'?"),
    ],
)
def test_a_wrong_name_is_an_error_that_says_what_was_meant(
    ask: Ask, command: str, code: int, words: str
) -> None:
    done = ask(*command.split(), code=code)
    assert words in done.stderr
    assert done.stdout == ""


def test_what_is_right_is_no_mistake(ask: Ask) -> None:
    for command in (
        "show line --metric loss --rank 0",
        "export line --metric loss",
        "stacks line --history --rank 0",
        "runs --state failed",
        "runs --group nosuch",
    ):
        ask(*command.split())


def test_a_metric_without_steps_is_drawn_over_time(ask: Ask) -> None:
    both = ("show", "line", "-m", "warm_up_seconds", "-m", "loss")
    said = ask(*both).stdout
    assert "warm_up_seconds" in said
    assert "by time" in said
    assert "loss by step" in said
    curves = json.loads(ask(*both, "--json").stdout)["curves"]
    assert {(c["metric"], c["axis"]) for c in curves} == {
        ("warm_up_seconds", "time"),
        ("loss", "step"),
    }


def test_a_name_with_a_slash_is_a_name(ask: Ask) -> None:
    """The API's paths have no place for it."""
    for command in ("show", "goodput", "stacks --history", "profiles", "export", "logs"):
        done = ask(*command.split(), "team/x", code=None)
        assert "there is no run" not in done.stderr, done
    assert "did you mean 'team/x'?" in ask("show", "team/y", code=1).stderr
    deleted = json.loads(ask("delete", "team/x", "--yes", "--json").stdout)["deleted"]
    assert [each["name"] for each in deleted] == ["team/x"]
    ask("restore", deleted[0]["run"])


def test_what_is_no_head_is_told_without_its_bytes(ask: Ask, tmp_path: Path) -> None:
    other = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with contextlib.suppress(OSError):  # it is shut down
            while True:
                connection, _ = other.accept()
                with connection:
                    connection.sendall(b"\x00\x00\x1e\x04\x00SETTINGS\r\n")

    answering = threading.Thread(target=answer)
    answering.start()
    try:
        address = f"http://127.0.0.1:{other.getsockname()[1]}"
        done = Asked(tmp_path)("runs", "--head", address, code=1)
    finally:
        other.shutdown(socket.SHUT_RDWR)
        answering.join()
        other.close()
    assert "what answers there is no page; it may be the head's port for agents" in done.stderr
    assert "SETTINGS" not in done.stderr


def test_a_second_head_is_told_where_the_first_one_is(world: tuple[Asked, Listening]) -> None:
    in_a_process, first = world
    for command in (("ui", "--port", "0"), ("head", "--http-port", "0", "--grpc-port", "0")):
        said = in_a_process(*command, code=1).stderr
        assert f"served already, by process {first.pid}: open {first.link}" in said


def test_a_list_without_runs_says_which_runs(ask: Ask) -> None:
    said = ask("runs", "--state", "failed", "--group", "tests").stdout
    assert said.startswith("no runs that are failed of group 'tests' in http")
    assert "did you mean" not in said
    assert "did you mean 'tests'?" in ask("runs", "--group", "test").stdout
