"""`runwatch status` beside real heads, agents and programs, in each state that they can be in."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from runwatch._version import __version__
from runwatch.journal.liveness import this_host
from runwatch.testing import until
from tests.integration.file_systems import fill, mount_of
from tests.integration.processes import Cluster, end, free_port
from tests.integration.status_shape import deviations
from tests.integration.strangers import (
    ALICE,
    command_as,
    do_as,
    everybodys,
    forge,
    honest,
    needs_users,
    origin_of,
)

PROGRAM = """
import runwatch
with runwatch.init("told") as run:
    for number in range(100):
        run.log(value=float(number), step=number)
"""


class Place(Cluster):
    """Its programs and agents know where the head is, and its token."""

    token = ""
    named = True
    direct = False
    """Whether they know only the port of agents."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.spare = root / "spare"
        self.spare.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        more = {"HOME": str(self.root), "TMPDIR": str(self.spare), "COLUMNS": "80"}
        if self.token:
            more["RUNWATCH_TOKEN"] = self.token
        if self.named:
            more["RUNWATCH_HEAD"] = self.address
        return super().environment | more

    @property
    def address(self) -> str:
        if self.direct:
            return f"grpc://127.0.0.1:{self.grpc_port}"
        return f"127.0.0.1:{self.http_port}"

    def begin(self, *options: str) -> None:
        self.token = ""
        self.token = self.start_head(*options).token

    def record(self) -> None:
        """A program that ends; nobody need send it."""
        command = [sys.executable, "-c", PROGRAM]
        subprocess.run(command, env=self.environment, check=True, timeout=60, capture_output=True)

    def say(
        self, *words: str, before: tuple[str, ...] = (), **more: str
    ) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-m", "runwatch.cli", "status", *words]
        environment = self.environment | more
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, cwd="/"
        )

    def ask(self, *words: str, before: tuple[str, ...] = (), **more: str) -> dict[str, Any]:
        """What it prints as JSON; the exit code says the same."""
        done = self.say("--json", *words, before=before, **more)
        assert done.stderr == "" and done.returncode in (0, 1), (done.returncode, done.stderr)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert list(deviations(answer)) == []
        assert answer["version"] == 1
        assert answer["well"] == (done.returncode == 0) == (not answer["attention"])
        return answer

    def wait_until_sending(self) -> dict[str, Any]:
        def sends() -> dict[str, Any] | None:
            answer = self.ask()
            return answer if answer["agent"]["connected"] else None

        answer: dict[str, Any] = until(sends, what="the agent to say that it is connected")
        return answer


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "place")
    yield made
    made.close()


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Every name below, with what a change would change."""
    found = [root, *root.rglob("*")]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in found}


def attention(answer: dict[str, Any], about: str) -> str:
    """In one text, what needs it and what to do."""
    found = [each for each in answer["attention"] if each["about"] == about]
    return "\n".join(f"{each['what']}\n{each['todo']}" for each in found)


# ── head ──────────────────────────────────────────────────────────────────────────────────────


def test_nobody_and_nothing_is_well_and_stays_so(place: Place) -> None:
    place.named = False
    place.node_root.rmdir()
    answer = place.ask()
    assert answer["well"] and answer["runwatch"] == __version__
    assert (answer["head"]["state"], answer["agent"]["state"]) == ("none", "none")
    assert (answer["disk"]["exists"], answer["waiting"]["journals"]) == (False, 0)
    assert answer["disk"]["free_bytes"] > 0
    said = place.say().stdout
    assert "no agent runs" in said and said.endswith("All is well.\n")
    assert not place.node_root.exists()


def test_head_and_agent_are_fine(place: Place) -> None:
    place.begin()
    place.start_agent()
    place.start_trainer(count=500)
    place.wait_until_stored()
    answer = place.wait_until_sending()
    head, agent = answer["head"], answer["agent"]
    assert answer["attention"] == []
    assert head["address"] == f"http://127.0.0.1:{place.http_port}"
    assert (head["from"], head["state"]) == ("environment RUNWATCH_HEAD", "well")
    assert head["version"] == agent["version"] == __version__
    assert place.agent is not None and agent["pid"] == place.agent.pid
    assert agent["head"] == f"127.0.0.1:{place.http_port}"
    assert 0 < agent["since_ns"] <= answer["time_ns"]
    end(place.agent, signal.SIGTERM)  # else it would write while we compare
    before = tree(place.node_root)
    answer = place.ask()
    assert answer["waiting"]["journals"] == 0, "its last word was how far the head has them"
    assert answer["waiting"]["journals_here"] == 2
    assert answer["agent"]["state"] == "none" and answer["agent"]["ended_ns"] > agent["since_ns"]
    assert answer["well"]
    assert tree(place.node_root) == before, "it only looks"


def test_a_head_that_was_killed_leaves_a_note_that_says_whose_it_was(place: Place) -> None:
    place.named = False
    place.begin()
    place.token = ""
    where = ("--dir", str(place.head_root))
    answer = place.ask(*where)
    assert (answer["head"]["state"], answer["head"]["from"]) == ("well", "head.json")
    assert answer["head"]["note"]["runs"] is True
    assert place.head is not None
    pid = place.head.pid
    end(place.head, signal.SIGKILL)
    answer = place.ask(*where)
    note = answer["head"]["note"]
    assert answer["head"]["state"] == "stale"
    assert (note["pid"], note["host"], note["runs"]) == (pid, this_host(), False)
    assert 0 < note["since_ns"] < answer["time_ns"]
    words = attention(answer, "head")
    assert f"process {pid} on {this_host()}" in words and "nothing listens there" in words
    assert str(place.head_root / "head.json") in words


def test_one_head_is_named_and_another_left_its_note_here(place: Place) -> None:
    place.begin()
    assert place.head is not None
    other = place.head
    place.http_port, before = free_port(), place.http_port
    place.grpc_port = free_port()
    place.head_root, first = place.root / "second", place.head_root
    place.begin()
    try:
        answer = place.ask("--dir", str(first), RUNWATCH_DIR=str(place.root / "nobodys"))
        assert answer["head"]["address"] == f"http://127.0.0.1:{place.http_port}"
        assert answer["well"] and answer["head"]["note"]["pid"] == other.pid
    finally:
        end(other, signal.SIGKILL)
    answer = place.ask("--dir", str(first))
    assert answer["head"]["state"] == "well"
    assert f"http://127.0.0.1:{before}" in attention(answer, "head")
    assert "that process has ended" in attention(answer, "head")


def test_a_token_that_is_wrong_and_none_at_all(place: Place) -> None:
    place.begin()
    answer = place.ask(RUNWATCH_TOKEN="wrong")
    assert (answer["head"]["state"], answer["head"]["health"]["status"]) == ("token", "ok")
    assert "refuses our token" in attention(answer, "head")
    answer = place.ask(RUNWATCH_TOKEN="", RUNWATCH_DIR=str(place.root), HOME="/")
    assert "we have no token" in attention(answer, "head")
    assert "RUNWATCH_TOKEN_FILE" in attention(answer, "head")


def test_an_agent_with_a_wrong_token_says_why_it_sends_nothing(place: Place) -> None:
    place.begin()
    right, place.token = place.token, "wrong"
    place.start_agent()
    place.record()
    place.token = right

    def refused() -> str:
        words = attention(place.ask(), "agent")
        return words if "unauthenticated" in words else ""

    words: str = until(refused, what="the agent to say that it is refused")
    assert f"not connected to 127.0.0.1:{place.http_port}" in words
    assert "RUNWATCH_TOKEN_FILE" in words


def test_a_head_that_is_not_reached(place: Place) -> None:
    answer = place.ask()
    assert answer["head"]["state"] == "refused"
    assert "nothing listens there" in attention(answer, "head")
    with socket.create_server(("127.0.0.1", place.http_port)):
        answer = place.ask()
    assert answer["head"]["state"] == "silent"
    assert "no answer within" in attention(answer, "head")
    answer = place.ask(RUNWATCH_HEAD="ftp://somewhere")
    assert "ftp://somewhere" in attention(answer, "head")


def test_a_node_that_may_only_send_is_well(place: Place) -> None:
    """Often only the port for agents is open to it."""
    place.direct = True
    place.begin("--http-port", "-1")
    place.start_agent(place.address)
    answer = place.wait_until_sending()
    assert answer["head"]["state"] == "refused" and answer["well"]
    assert "only its health is unknown here" in " ".join(place.say().stdout.split())


def test_a_head_named_in_the_settings_file(place: Place) -> None:
    place.begin()
    file = place.node_root / "config.toml"
    file.write_text(f'[agent]\nhead = "127.0.0.1:{place.http_port}"\n')
    answer = place.ask(RUNWATCH_HEAD="")
    assert (answer["head"]["from"], answer["head"]["state"]) == (f"file {file}", "well")
    file.write_text('[agent]\nheat = "127.0.0.1"\n')
    assert "'heat'" in attention(place.ask(), "head")


def test_a_head_with_tls_wants_its_certificate_known(place: Place, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    both = str(tmp_path / "both.pem")
    place.begin("--tls-certificate", both, "--tls-key", both)
    head = f"https://127.0.0.1:{place.http_port}"
    answer = place.ask(RUNWATCH_HEAD=head)
    assert answer["head"]["state"] == "tls" and "certificate" in answer["head"]["why"]
    assert "RUNWATCH_CA" in attention(answer, "head")
    assert place.ask(RUNWATCH_HEAD=head, RUNWATCH_CA=str(tmp_path / "ca.pem"))["well"]
    assert place.ask()["head"]["state"] == "tls", "plain words to a port that speaks TLS"
    place.stop_head()
    place.begin()
    assert place.ask(RUNWATCH_HEAD=head)["head"]["state"] == "tls", "TLS to a port that speaks none"


def test_a_limit_that_is_reached_is_told_by_head_and_node(place: Place) -> None:
    (place.node_root / "config.toml").write_text("[head]\nrun_events = 1\n")
    place.begin()
    place.start_agent()
    place.record()

    def told() -> dict[str, Any] | None:
        answer = place.ask()
        return answer if attention(answer, "head") and answer["waiting"]["aside"] else None

    answer = until(told, what="the limit to be told")
    assert "run_events in the head's settings" in attention(answer, "head")
    assert "raise that setting" in attention(answer, "head")
    [aside] = answer["waiting"]["aside"]
    assert aside["by_head"] and "are allowed" in aside["why"]
    assert aside["journal"] not in attention(answer, "head"), "it is told of once"


# ── agent and what waits ──────────────────────────────────────────────────────────────────────


def test_an_agent_that_was_killed_while_a_program_runs(place: Place) -> None:
    place.begin()
    place.start_agent()
    trainer = place.start_trainer(hertz=100)
    trainer.wait_for(10)
    place.wait_until_sending()
    assert place.agent is not None
    end(place.agent, signal.SIGKILL)
    answer = place.ask()
    assert (answer["agent"]["state"], answer["agent"]["pid"]) == ("gone", place.agent.pid)
    assert answer["waiting"]["programs"] == 1
    assert "a program records here" in attention(answer, "agent")
    assert "was killed" in place.say().stdout
    place.start_agent()
    assert place.wait_until_sending()["agent"]["pid"] == place.agent.pid


def test_what_waits_is_told_until_somebody_has_sent_it(place: Place) -> None:
    began_ns = time.time_ns()
    place.record()
    answer = place.ask()
    waiting = answer["waiting"]
    assert (waiting["journals"], waiting["hosts"][0]["host"]) == (1, this_host())
    assert waiting["hosts"][0]["sender"] == "nobody"
    assert 100 * 40 < waiting["bytes"] < 100_000
    assert began_ns < waiting["since_ns"] < answer["time_ns"]
    assert "no agent sends them" in attention(answer, "agent")
    place.start_agent()

    def away() -> bool:
        return "not connected" in attention(place.ask(), "agent")

    until(away, what="the agent to say that no head answers")
    place.begin()
    # The agent itself records all the time, and says only now and then how far that is sent.
    until(lambda: place.ask()["waiting"]["journals"] <= 1, what="the head to have the program's")
    assert place.wait_until_sending()["attention"] == []
    assert place.agent is not None
    end(place.agent, signal.SIGTERM)
    answer = place.ask()
    assert answer["well"] and answer["waiting"]["journals"] == 0


def test_without_a_head_journals_stay_and_that_is_well(place: Place) -> None:
    place.named = False
    place.record()
    answer = place.ask()
    assert answer["well"]
    assert (answer["waiting"]["journals"], answer["waiting"]["journals_here"]) == (0, 1)
    assert "no head is set" in place.say().stdout


def test_what_another_host_left_is_told_with_its_name(place: Place) -> None:
    origin = origin_of(4711, host="old-pod", boot="another")
    (place.node_root / "journals").mkdir()
    forge(place.node_root, os.geteuid(), origin)
    answer = place.ask()
    assert [each["host"] for each in answer["waiting"]["hosts"]] == ["old-pod"]
    assert "host old-pod has no agent" in attention(answer, "waiting")


def test_a_journal_that_is_set_aside_is_named_with_the_reason(place: Place) -> None:
    place.begin()
    (place.node_root / "journals").mkdir()
    forge(place.node_root, os.geteuid(), origin_of(os.getpid()), name="a-copy")
    place.start_agent()
    place.record()

    def told() -> dict[str, Any] | None:
        answer = place.ask()
        return answer if answer["waiting"]["aside"] else None

    answer = until(told, what="the agent to name it")
    [aside] = answer["waiting"]["aside"]
    assert aside["journal"] == "a-copy" and "a copy, or forged" in aside["why"]
    assert answer["waiting"]["aside_count"] == 1
    assert "a-copy" in attention(answer, "waiting")
    place.wait_until_sending()


# ── disk and other users ──────────────────────────────────────────────────────────────────────


def test_programs_that_found_the_disk_full_are_told_of(place: Place, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = mount_of("tmpfs", disk, tmp_path / "image")
    if subprocess.run(mount.split(), capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        place.named = False
        place.node_root = disk / "node"
        place.node_root.mkdir()
        fill(disk)
        place.record()
        answer = place.ask()
        [other] = place.spare.iterdir()
        assert answer["disk"]["moved"] == {"directory": str(other), "journals": 1}
        words = attention(answer, "disk")
        assert (
            "is full" in words and f"could not record here and recorded in {other} instead" in words
        )
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@needs_users
def test_the_directory_of_another_user(place: Place) -> None:
    place.named = False
    with tempfile.TemporaryDirectory(prefix="runwatch-status-") as made:
        closed = Path(made) / "closed"
        Path(made).chmod(0o755)
        closed.mkdir(mode=0o700)
        alice = tuple(command_as(ALICE))
        answer = place.ask("--dir", str(closed), before=alice, HOME=made)
        assert answer["disk"]["readable"] is False and answer["disk"]["owner"] == "root"
        assert "belongs to root" in attention(answer, "disk")

        hers = Path(made) / "hers"
        hers.mkdir(mode=0o700)
        os.chown(hers, ALICE, ALICE)
        do_as(ALICE, 'mkdir -m 700 "$1/journals" "$1/agent"; : > "$1/agent/$2.lock"', hers, "x")
        honest(hers, ALICE, os.getpid())
        before = tree(hers)
        answer = place.ask("--dir", str(hers))
        assert answer["waiting"]["journals_here"] == 1
        assert tree(hers) == before, "root looks at it and changes nothing"


@needs_users
def test_a_journal_that_was_recorded_under_sudo_cannot_be_read(place: Place) -> None:
    place.named = False
    with tempfile.TemporaryDirectory(prefix="runwatch-status-") as made:
        root = Path(made)
        (root / "journals").mkdir()
        honest(root, 0, os.getpid())
        for path in (root, root / "journals"):
            os.chown(path, ALICE, ALICE)
        answer = place.ask("--dir", made, before=tuple(command_as(ALICE)), HOME=made)
        [found] = answer["waiting"]["unreadable"]
        assert found["owner"] == "root"
        assert "only root" in attention(answer, "waiting")


@needs_users
def test_in_a_directory_of_all_roots_agent_is_seen_from_outside(place: Place) -> None:
    with everybodys() as root:
        place.node_root = root
        (root / "agent").chmod(0o700)
        mine = honest(root, ALICE, os.getpid(), number=1)
        honest(root, 0, os.getpid(), number=2)
        place.begin()
        place.start_agent()
        place.wait_until_sending()
        assert place.agent is not None
        alice = tuple(command_as(ALICE))
        answer = place.ask(before=alice, HOME=str(root))
        agent = answer["agent"]
        assert (agent["state"], agent["user"]) == ("running", "root")
        assert answer["waiting"]["journals_of_others"] >= 1
        assert mine not in str(answer["waiting"]["unreadable"])
        assert answer["waiting"]["unreadable"] == []
        before = tree(root)
        end(place.agent, signal.SIGKILL)
        answer = place.ask(before=alice, HOME=str(root))
        assert answer["agent"]["state"] in ("unknown", "running")
        assert set(tree(root)) == set(before)
