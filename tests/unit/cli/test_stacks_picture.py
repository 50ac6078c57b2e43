"""An incident in the terminal: a note is shown calmly."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from runwatch.cli.pictures.stacks import print_incident, print_stacks


def printed(**changed: Any) -> str:
    incident = {
        "id": "a1", "kind": "hang", "state": "open", "since_ns": 0, "closed_ns": None, "why": "",
        "text": "rank 0 sleeps", "confidence": "likely", "ranks": [0], **changed,
    }  # fmt: skip
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system="standard")
    print_incident(incident, console)
    return out.getvalue()


RED = "\x1b[1;31m"


@pytest.mark.parametrize(
    ("severity", "words", "is_red"),
    [
        ("note", "takes no step", False),
        ("warning", "stands still", False),
        ("incident", "stands still", True),
    ],
)
def test_how_loud_it_is_shows(severity: str, words: str, is_red: bool) -> None:
    text = printed(severity=severity)
    assert words in text and severity.replace("incident", "alarm") in text
    assert (RED in text) is is_red


def test_an_older_head_tells_of_alarms_only() -> None:
    assert RED in printed() and "stands still" in printed()
    assert "took no step" in printed(severity="note", state="closed", closed_ns=10**9)


@pytest.mark.parametrize("unreachable", [{}, {"gpu-1": "no agent of it is connected"}])
def test_where_nobody_sees_a_process_that_is_said(unreachable: dict[str, str]) -> None:
    """Unless there is a better reason."""
    answer = {"text": "", "groups": [], "processes": [], "waiting_for": []}
    out = io.StringIO()
    print_stacks({**answer, "unreachable": unreachable}, Console(file=out), full=False, ranks=[])
    said = out.getvalue()
    assert ("sidecar" in said, "no agent of it" in said) == (not unreachable, bool(unreachable))
