"""Every kind of event has one shape: it is written by somebody, read by somebody, and read back."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import runwatch
from runwatch.record import Event
from runwatch.record.door import event_problem
from runwatch.record.kinds import BY_KIND, EVENTS
from runwatch.record.life import Elapsed, Fork, RunEnd
from runwatch.record.losses import JournalGap
from runwatch.record.message import Message, checks_of
from tests.fuzz import hostile

SOURCE = Path(runwatch.__file__).parent
RECORD = SOURCE / "record"
KINDS = [message.KIND for message in EVENTS]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_passes_the_door_and_is_read_back(kind: str) -> None:
    message = BY_KIND[kind].of(hostile.BODIES[kind])
    body = message.body()
    assert event_problem(Event(hostile.NOW, kind, body)) == ""
    assert BY_KIND[kind].of(body) == message
    known = {name for name in hostile.BODIES[kind] if name in checks_of(BY_KIND[kind])}
    said = {name for name in known if hostile.BODIES[kind][name] is not None}
    assert said <= body.keys(), "nothing that was said is lost"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_said_reads_as_the_defaults(kind: str) -> None:
    shape = BY_KIND[kind]
    nothing = dict.fromkeys(checks_of(shape))
    assert shape.of(nothing) == shape()
    assert shape is RunEnd or shape.of({}) == shape()


@pytest.mark.parametrize("kind", KINDS)
def test_odd_values_read_as_if_nobody_had_said_them(kind: str) -> None:
    shape = BY_KIND[kind]
    odd: dict[str, Any] = {}
    for name, check in checks_of(shape).items():
        strange = [value for value in (object(), "x" * 10**6, -1.5, True, {"a": 1}) if check(value)]
        odd |= {name: strange[0]} if strange else {}
    plain = shape()
    read = shape.of(odd)
    for name in odd:
        assert getattr(read, name) in (getattr(plain, name), (), {}, None)


def test_fields_of_tomorrow_are_passed_over() -> None:
    assert Fork.of({"parent_journal": "j", "of tomorrow": 1}) == Fork("j")


def test_kinds_are_told_apart() -> None:
    assert len(BY_KIND) == len(EVENTS)
    assert all(message.KIND for message in EVENTS)


# ── one end of a run: three things are told apart ──────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "done"),
    [
        ({"status": "completed", "explicit": True}, True),  # an older SDK: finish() meant done
        ({"status": "completed", "explicit": False}, False),
        ({"status": "completed", "explicit": True, "done": None}, None),
        ({"status": "completed", "explicit": True, "done": False}, False),
    ],
)
def test_whether_a_run_is_done(body: Mapping[str, Any], done: bool | None) -> None:
    end = RunEnd.of(body)
    assert end.done is done
    assert RunEnd.of(end.body()).done is done


@pytest.mark.parametrize(
    ("exception", "text"),
    [("ValueError: no", "ValueError: no"), ({"type": "E", "message": "m"}, "E: m"), (None, "")],
)
def test_an_exception_is_one_line(exception: Any, text: str) -> None:
    assert RunEnd.of({"status": "failed", "exception": exception}).exception_text == text


@pytest.mark.parametrize(
    ("body", "stretch"),
    [
        ({"name": "compile", "seconds": 2.5, "ago_seconds": 1}, ("compile", 2.5, 1)),
        ({"name": "compile", "seconds": 2}, ("compile", 2, 0.0)),
        ({"name": "compile", "seconds": -1}, None),
        ({"name": "compile", "seconds": "2"}, None),
        ({"name": 5, "seconds": 2}, None),
        ({"name": "compile", "seconds": 2, "ago_seconds": "x"}, None),
        ({}, None),
    ],
)
def test_a_stretch_is_read_without_a_message(body: Mapping[str, Any], stretch: Any) -> None:
    assert Elapsed.stretch(body) == stretch


def test_what_is_not_known_is_not_written() -> None:
    assert JournalGap("dropped", 3).body() == {"reason": "dropped", "up_to_segment": 3}


# ── who writes and who reads ───────────────────────────────────────────────────────────────────


@cache
def _texts() -> dict[Path, str]:
    files = (path for path in SOURCE.rglob("*.py") if RECORD not in path.parents)
    return {path: path.read_text() for path in files}


def _trees(words: Iterable[str]) -> Iterator[tuple[Path, ast.Module]]:
    """The files that have one of these words: parsing all of them takes ten seconds."""
    some = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b")
    for path, text in _texts().items():
        if some.search(text):
            yield path, ast.parse(text)


def _uses(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(message, "made" | "read") for each use of a message's class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, "made"
        elif isinstance(node, ast.Attribute) and node.attr in ("of", "KIND", "stretch"):
            yield ast.unparse(node.value), "read"


def _classes(shape: type[Message]) -> set[str]:
    """Its own name, and those of the shapes that it is made from."""
    return {kind.__name__ for kind in shape.__mro__ if issubclass(kind, Message)} - {"Message"}


def test_each_kind_is_written_by_somebody_and_read_by_somebody() -> None:
    made, read = set[str](), defaultdict[str, set[str]](set)
    names = {name for shape in EVENTS for name in _classes(shape)}
    for path, tree in _trees(names):
        for name, use in _uses(tree):
            if use == "made":
                made.add(name)
            else:
                read[name].add(path.relative_to(SOURCE).parts[0])
    readers = {"views", "head", "cli", "exports"}
    for_people = {"DeviceOwner", "GuestConnect", "SpanTold"}
    """Nothing works with these.  A person who looks at the events sees them."""
    unwritten = [shape.__name__ for shape in EVENTS if shape.__name__ not in made]
    unread = [
        shape.__name__
        for shape in EVENTS
        if shape.__name__ not in for_people
        and not any(read[name] & readers for name in _classes(shape))
    ]
    assert (unwritten, unread) == ([], [])


_BY_HAND = re.compile(r"\bbody(\.get\(|\[\")|\.body\[|\.body\.get\(")
_NOT_EVENTS = {
    # JSON of other things: files that an HTTP client or a process of ours wrote for itself.
    "head/access/kept_list.py",
    "head/http/patience.py",
    "head/telemetry/post.py",  # of an HTTP answer
    "traces/summary.py",
}


def test_no_body_is_taken_apart_by_hand() -> None:
    """`record/` reads bodies.  Everybody else asks a message for its fields."""
    places = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path, text in _texts().items()
        if str(path.relative_to(SOURCE)) not in _NOT_EVENTS
        for number, line in enumerate(text.splitlines(), 1)
        if _BY_HAND.search(line)
    ]
    assert places == []


def test_every_kind_has_one_place() -> None:
    """A kind is spelled in `record/` alone: everybody else says `RunEnd.KIND`."""
    spelled = set(KINDS) - {"log", "config", "fork", "warning", "profile", "stacks", "capture"}
    spelled -= {"incident", "elapsed", "console", "exception", "pod"}  # words with other meanings
    places = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.value}"
        for path, tree in _trees(spelled)
        if "compat" not in path.parts
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in spelled
    ]
    assert places == []


def test_every_field_says_what_the_door_asks() -> None:
    for shape in EVENTS:
        assert set(checks_of(shape)) == {each.name for each in fields(shape)}  # type: ignore[arg-type]
