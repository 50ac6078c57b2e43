"""What every command has: help with an example, and `--json`."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.cli.__main__ import COMMANDS, parser
from runwatch.cli.pictures.progress import no_progress, progress

NO_JSON = {
    "agent": "it runs until it is stopped, and logs",
    "exec": "its output is its command's",
    "k8s": "its parts run in pods, and log",
}


def command(name: str) -> argparse.ArgumentParser:
    [choices] = [
        action.choices
        for action in parser(name)._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    found: argparse.ArgumentParser = choices[name]
    return found


def leaves(one: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The command, or its verbs where it has some."""
    verbs = [a for a in one._actions if isinstance(a, argparse._SubParsersAction)]
    for action in verbs:
        for verb in action.choices.values():
            yield from leaves(verb)
    if not verbs:
        yield one


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name: str) -> None:
    _, colon, examples = command(name).format_help().partition("example:")
    assert colon
    assert f"  runwatch {name}" in examples


@pytest.mark.parametrize("name", COMMANDS)
def test_every_answer_can_be_json(name: str) -> None:
    for leaf in leaves(command(name)):
        options = {text for action in leaf._actions for text in action.option_strings}
        assert ("--json" in options) == (name not in NO_JSON), leaf.prog


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name: str) -> None:
    for leaf in leaves(command(name)):
        for action in leaf._actions:
            assert action.help or action.choices, f"{leaf.prog} {action.option_strings}"


def test_the_page_of_commands_names_every_command() -> None:
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
    table = page[: page.index("\n## ")]
    assert set(re.findall(r"`([a-z0-9]+)`", table)) == set(COMMANDS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line comes by itself: who waits for a head cannot count anything."""
    out = Terminal()
    shown = threading.Event()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    write = out.write

    def noticed(text: str) -> int:
        if "asking gpu-head" in text:
            shown.set()
        return write(text)

    monkeypatch.setattr(out, "write", noticed)
    with progress("asking gpu-head", after_seconds=0.0):
        assert shown.wait(100)


def test_two_do_not_draw_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    with no_progress(), progress("reading", "files", after_seconds=0.0) as step:
        step(1)
    assert out.getvalue() == ""


def test_a_pipe_gets_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", "files", after_seconds=0.0) as step:
        step(3)
    assert capsys.readouterr() == ("", "")


def test_a_head_says_where_it_is_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    from runwatch.address import Listening
    from runwatch.cli.head_options import print_ready

    print_ready(Listening("http://h:1", "h:2", "secret", 7), directory="/d")
    assert json.loads(capsys.readouterr().out) == {
        "url": "http://h:1", "link": "http://h:1/?token=secret", "grpc": "h:2",
        "token": "secret", "pid": 7, "directory": "/d",
    }  # fmt: skip
