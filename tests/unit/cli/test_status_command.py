"""`runwatch status`: how it looks, how it counts, and what it makes of who does not answer."""

from __future__ import annotations

import io
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from http.client import BadStatusLine
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from runwatch.address import is_same_place
from runwatch.cli.pictures.paint import is_coloured
from runwatch.cli.status.agent import Agent, find
from runwatch.cli.status.asking import _failure, _refusal, ask
from runwatch.cli.status.disk import section as disk_section
from runwatch.cli.status.head import Named, asides_elsewhere, look
from runwatch.cli.status.picture import picture
from runwatch.cli.status.types import Problem, Section, many, size
from runwatch.cli.status.waiting import survey
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Position, position
from tests.integration.status_shape import deviations
from tests.unit.journal.journal_help import SMALL, origin

WRONG = Section(
    "waiting",
    {},
    ["2 journals"],
    [Problem("journal \x1b[2Jx\nof somebody is set aside: " + "y" * 90, "wait")],
)
WELL = Section("disk", {}, ["12 GB free"])


def test_it_fits_the_terminal_and_hands_no_escape_on() -> None:
    said = picture("for ada on gpu-1, directory /x", [WRONG, WELL], width=60, coloured=False)
    lines = said.splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert "\x1b" not in said and "␛[2Jx of somebody" in said
    assert lines[2].startswith("▲ to send    2 journals")
    assert any(line.startswith("           → wait") for line in lines)
    assert any(line.startswith("✔ disk       12 GB free") for line in lines)
    assert lines[-1] == "1 thing needs attention."


def test_colours_are_for_terminals() -> None:
    assert "\x1b[32m✔\x1b[0m" in picture("", [WELL], width=80, coloured=True)
    assert picture("", [WELL], width=80, coloured=True).endswith("\x1b[32mAll is well.\x1b[0m")
    assert not is_coloured(io.StringIO(), {})
    leader, follower = os.openpty()
    with open(leader, "rb"), open(follower, "w") as terminal:
        assert is_coloured(terminal, {"TERM": "xterm"})
        assert not is_coloured(terminal, {"TERM": "xterm", "NO_COLOR": "1"})
        assert not is_coloured(terminal, {"TERM": "dumb"})


def test_help_says_what_the_exit_code_means() -> None:
    command = [sys.executable, "-m", "runwatch.cli", "status", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    words = " ".join(done.stdout.split())
    assert "exit code is 0 if all is well, and 1 if something needs attention" in words
    assert all(option in words for option in ("--dir", "--json"))


def test_it_imports_nothing_heavy() -> None:
    """Who asks for the state of things at night does not wait for a data base."""
    code = "import sys, runwatch.cli.commands.status; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {
        "grpc",
        "numpy",
        "duckdb",
        "rich",
        "starlette",
        "asyncio",
        "ssl",
        "msgspec",
    }


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1 kB"), (999_600, "1 MB"), (8 << 30, "8.59 GB")],
)
def test_sizes(count: int, words: str) -> None:
    assert size(count) == words


def test_one_and_many() -> None:
    assert (many(1, "journal"), many(2_000, "journal")) == ("1 journal", "2,000 journals")


# ── what waits ────────────────────────────────────────────────────────────────────────────────


def journal(root: Path, records: int, name: str = "6553f100-node-7-a1") -> JournalWriter:
    writer = JournalWriter(root, origin(name), segment_bytes=SMALL)
    for number in range(records):
        writer.event("told", {"number": number, "zeros": [0] * 10})
    return writer


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "being written"])
def test_what_lies_behind_the_place_that_a_head_has_waits(tmp_path: Path, is_closed: bool) -> None:
    writer = journal(tmp_path, 100)
    if is_closed:
        writer.close()
    found = survey(tmp_path, "node", {})
    backlog = found.hosts["node", ""]
    assert (found.count, backlog.journals, backlog.sender) == (1, 1, "nobody")
    everything = backlog.bytes
    assert 100 * 40 < everything < 40_000
    name = JournalId("6553f100-node-7-a1")
    half = {name: position(0, 128 + everything // 2)}
    assert survey(tmp_path, "node", half).hosts["node", ""].bytes == everything - everything // 2
    assert survey(tmp_path, "node", {name: position(0, 128 + everything)}).hosts == {}
    (tmp_path / "journals" / name / "stored").write_text(str(position(0, 128 + everything)))
    assert survey(tmp_path, "node", {}).hosts == {}, "the note beside the journal counts, too"
    if not is_closed:
        writer.close()


def test_segments_that_follow_count_whole(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    for number in range(30_000):
        writer.event("told", {"number": number})
    writer.close()
    segments = sorted((tmp_path / "journals").glob("*/*.seg"))
    assert len(segments) > 1
    whole = sum(path.stat().st_size - 128 for path in segments)
    name = JournalId(segments[0].parent.name)
    found = survey(tmp_path, "node", {}).hosts["node", ""].bytes
    assert abs(found - whole) <= 16 * len(segments)
    second = survey(tmp_path, "node", {name: Position(1 << 32)}).hosts["node", ""].bytes
    assert second < found


def test_damage_and_strangers_stay_with_their_journal(tmp_path: Path) -> None:
    journal(tmp_path, 10).close()
    places = [tmp_path / "journals" / f"bad-{n}" for n in range(4)]
    for place in places[:3]:
        place.mkdir()
    (places[0] / "00000000.seg").write_bytes(b"no journal" * 100)
    os.mkfifo(places[1] / "00000000.seg")
    (places[2] / "00000000.seg").symlink_to("/etc/passwd")
    places[3].symlink_to("/etc")
    (tmp_path / "journals" / "a-file").write_text("x")
    found = survey(tmp_path, "node", {})
    assert found.hosts["node", ""].journals == 1
    assert {each["journal"] for each in found.unreadable} >= {"bad-0", "bad-1", "bad-2", "bad-3"}


def test_many_journals_are_not_all_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runwatch.cli.status.waiting.MOST_JOURNALS", 2)
    for number in range(3):
        journal(tmp_path, 1, f"6553f10{number}-node-7-a1").close()
    found = survey(tmp_path, "node", {})
    assert (found.count, found.skipped) == (2, 1)


# ── head ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (ConnectionRefusedError(), "refused", "nothing listens"),
        (TimeoutError("timed out"), "silent", "no answer within"),
        (socket.gaierror(-2, "Name or service not known"), "name", "not known"),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "tls", "TLS"),
        (ConnectionResetError(), "tls", "perhaps it needs TLS"),
        (BadStatusLine("x"), "tls", "perhaps it needs TLS"),
        (OSError(113, "No route to host"), "unreachable", "No route to host"),
        (ValueError("no JSON"), "other", "is not a head"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_why_a_head_does_not_answer(error: Exception, state: str, words: str) -> None:
    answer = _failure(error)
    assert answer.state == state and words in answer.why


def test_only_pages_are_asked(tmp_path: Path) -> None:
    (tmp_path / "health").write_text('{"status": "ok", "version": "1"}')
    assert ask(f"file://{tmp_path}", "").state == "other"


def test_a_refusal_is_told_in_the_heads_own_words() -> None:
    assert "slow down" in _refusal(429, b'{"error": {"message": "slow down"}}').why
    assert _refusal(404, b"<html>").state == "other"


def test_what_is_set_aside_elsewhere_is_told_once_and_briefly() -> None:
    aside = [{"journal": f"j-{n}", "host": "gpu-2", "why": "damaged"} for n in range(9)]
    told = asides_elsewhere({"aside": aside}, ["j-0"])
    assert "j-1 of host gpu-2" in told[0].what and "damaged" in told[0].what
    assert len(told) == 6 and "3 more journals" in told[-1].what


class _Anything(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = json.dumps(
            {"status": "ok", "version": 7, "notes": 5, "aside": ["x", {}], "records_refused": "y"}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def test_what_answers_may_say_anything(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Anything) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            named = Named(f"http://127.0.0.1:{server.server_port}", "here")
            found = look(tmp_path, named).section
        finally:
            server.shutdown()
            thread.join()
    assert (found.facts["state"], found.facts["version"]) == ("well", "7")
    assert found.facts["health"]["notes"] == [] and found.facts["health"]["aside"] == [{}]
    assert found.problems == []


def test_this_machine_has_many_names() -> None:
    assert is_same_place("http://localhost:8091", f"http://{socket.gethostname()}:8091")
    assert not is_same_place("http://localhost:8091", "http://localhost:8092")
    assert not is_same_place("nonsense:x", "other nonsense:y")


# ── agent and disk ────────────────────────────────────────────────────────────────────────────


def test_where_nobody_was_there_is_no_agent(tmp_path: Path) -> None:
    assert find(tmp_path, "node") == Agent("none", "node")
    assert find(tmp_path / "missing", "node") == Agent("none", "node")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    place = tmp_path / "x"
    place.write_text("")
    found = disk_section(place, journals_bytes=0, budget_bytes=0)
    assert "is not a directory" in found.problems[0].what


def test_the_shape_is_told_by_what_deviates_from_it() -> None:
    shape = {"a": "integer", "b": {"_or": "null", "c": ["string"]}}
    assert list(deviations({"a": 1, "b": None}, shape)) == []
    assert list(deviations({"a": 1, "b": {"c": ["x"]}}, shape)) == []
    wrong = set(deviations({"a": "1", "b": {"c": [1]}, "d": 0}, shape))
    assert wrong == {
        "status.a is string, not integer",
        "status.b.c[] is integer, not string",
        "status.d is not in the shape",
    }
