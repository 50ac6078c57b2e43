"""Programs, agents and heads that come in any order: records are at the head that a program names.

Real processes.  One directory holds a node's journals; the heads have directories of their own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from runwatch.address import Listening, read_address
from runwatch.agent.lock import AgentLock, end_agents
from runwatch.journal.liveness import this_host
from runwatch.record import RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests.integration.processes import Cluster, agent_sees, end, free_port
from tests.tokens import remember, urlopen

PROGRAM = """
import os, sys, runwatch
name, count = sys.argv[1], int(sys.argv[2])
run = runwatch.init(name)
for number in range(count):
    run.log(value=float(number), step=number)
print(run.url, flush=True)
if len(sys.argv) > 3:
    sys.stdin.read()
"""
TOKEN = "of-all-heads-in-town"
STATUS = [sys.executable, "-m", "runwatch.cli", "status", "--json"]


class House:
    """A head in a directory of its own, whose ports may change."""

    def __init__(self, town: Town, name: str) -> None:
        self.town = town
        self.root = town.root / name
        self.ports = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def page(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    def open(self, *options: str) -> House:
        http, grpc = map(str, self.ports)
        command = ["-m", "runwatch.cli", "head", "--dir", str(self.root), *options]
        self.process = process = self.town.python(
            *command,
            "--http-port",
            http,
            "--grpc-port",
            grpc,
            named={"RUNWATCH_DIR": "", "RUNWATCH_TOKEN": TOKEN},
        )

        def ready() -> Listening | None:
            assert process.poll() is None, self.town.words()
            at = read_address(self.root)
            return at if at is not None and at.pid == process.pid else None

        remember(until(ready, what="the head to start"))
        return self

    def close(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            end(self.process, number)
            self.process = None

    def move(self) -> None:
        """Another address, the same store."""
        self.close()
        self.ports = free_port(), free_port()
        self.open()

    @property
    def named(self) -> dict[str, str]:
        """As a program's environment names it."""
        return {"RUNWATCH_HEAD": self.page, "RUNWATCH_TOKEN": TOKEN}

    def ask(self, path: str) -> Any:
        try:
            with urlopen(f"{self.page}/api/v1{path}", timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def runs(self) -> dict[str, str]:
        """Name → state."""
        return {run["name"]: run["state"] for run in self.ask("/runs")["runs"]}

    def wait_for(self, **states: str) -> None:
        until(lambda: self.runs() == states, 60, f"{states} at {self.root.name}")

    def values(self, run: str) -> list[float]:
        """Read from the store itself; the head is closed for it."""
        self.close()
        store = DuckStore.open(self.root / "store")
        try:
            rows = store.series(RunId(run), metric="value")
            return [v for c in store.points([row.series for row in rows]) for v in c.value]
        finally:
            store.close()


class Town:
    """A node's directory, with an agent that may be killed and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.node = root / "node"
        self.node.mkdir()
        self.log = (root / "log").open("ab")
        self.houses: list[House] = []
        self.others: list[subprocess.Popen[bytes]] = []

    def house(self, name: str) -> House:
        self.houses.append(House(self, name))
        return self.houses[-1]

    def python(
        self, *command: str, named: Mapping[str, str] | None = None, reads: bool = False
    ) -> subprocess.Popen[bytes]:
        environment = Cluster.environment_of(self.node) | {"HOME": str(self.root)}
        process = subprocess.Popen(
            [sys.executable, *command],
            env=environment | dict(named or {}),
            stdin=subprocess.PIPE if reads else None,
            stdout=self.log,
            stderr=self.log,
        )
        self.others.append(process)
        return process

    def agent(self, named: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        command = ("-m", "runwatch.agent", "--dir", str(self.node), "--idle", "0")
        return self.python(*command, named=named)

    def program(
        self, name: str, named: Mapping[str, str] | None = None, count: int = 100
    ) -> subprocess.Popen[bytes]:
        """It lives until its input ends.  `named`: what its environment says of the head."""
        return self.python("-c", PROGRAM, name, str(count), "stay", named=named, reads=True)

    def status(self, named: Mapping[str, str] | None = None) -> dict[str, Any]:
        environment = Cluster.environment_of(self.node) | {"HOME": str(self.root)}
        environment |= dict(named or {})
        done = subprocess.run(STATUS, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stderr == "", done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def say(self) -> str:
        environment = Cluster.environment_of(self.node) | {"HOME": str(self.root)}
        done = subprocess.run(STATUS[:-1], env=environment, capture_output=True, text=True)
        return " ".join(done.stdout.split())

    def holds(self, agent: subprocess.Popen[bytes]) -> bool:
        return AgentLock(self.node, this_host()).holder() == agent.pid

    def words(self) -> str:
        self.log.flush()
        return (self.root / "log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for process in self.others:
            end(process, signal.SIGKILL)
            if process.stdin is not None:
                process.stdin.close()
        end_agents(self.node)
        self.log.close()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    try:
        yield made
    finally:
        made.close()


def finish(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin is not None
    program.stdin.close()
    assert program.wait(60) == 0


def numbers(count: int) -> list[float]:
    return [float(number) for number in range(count)]


def head_states(answer: dict[str, Any]) -> dict[str, bool]:
    return {head["address"]: head["connected"] for head in answer["agent"]["heads"]}


def attention(answer: dict[str, Any]) -> str:
    return "\n".join(f"{each['what']}: {each['todo']}" for each in answer["attention"])


def test_an_agent_without_a_head_hears_of_the_heads_that_programs_name(town: Town) -> None:
    """And each head gets its own runs, with how their processes ended, and no other."""
    town.agent()
    until(lambda: list(town.node.glob("agent/*.status")), what="the agent")
    assert "no journal here names a head" in town.say()
    one, two = town.house("one").open(), town.house("two").open()
    first = town.program("first", one.named)
    second = town.program("second", two.named)
    town.program("nobodys")
    one.wait_for(first="running")
    two.wait_for(second="running")
    until(lambda: town.status()["well"], what="all to be well")
    answer = town.status()
    assert head_states(answer) == {one.page: True, two.page: True}
    assert answer["head"]["from"] == "journals here" and answer["head"]["state"] == "well"
    finish(first)
    end(second, signal.SIGKILL)
    one.wait_for(first="completed")
    two.wait_for(second="killed")
    assert one.values("first") == two.values("second") == numbers(100)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=pytest.mark.soak)])
def test_two_heads_have_everything_once_though_the_agent_and_a_head_are_killed(
    town: Town, rounds: int
) -> None:
    one, two = town.house("one").open(), town.house("two").open()
    programs = [
        town.program("first", one.named, 20_000),
        town.program("second", two.named, 20_000),
    ]
    for house in (two, one) * rounds:
        agent = town.agent()
        until(lambda: list(town.node.glob("journals/*/heads")), what="journals")
        until(lambda a=agent: town.holds(a), what="the agent to begin")
        house.close(signal.SIGKILL)
        end(agent, signal.SIGKILL)
        house.open()
    town.agent()
    one.wait_for(first="running")
    two.wait_for(second="running")
    for program in programs:
        until(lambda p=program: agent_sees(town.node, p.pid), what="the agent to watch it")
        end(program, signal.SIGKILL)
    one.wait_for(first="killed")
    two.wait_for(second="killed")
    assert one.values("first") == two.values("second") == numbers(20_000)


def test_a_program_before_its_head_and_a_head_that_moves(town: Town) -> None:
    """The records follow the head: its store has an id, which its new address gives too."""
    house = town.house("house")
    agent = town.agent()
    named = {**house.named, "RUNWATCH_HEAD": house.page.removeprefix("http://")}
    early = town.program("early", named)

    def away() -> dict[str, Any] | None:
        answer = town.status(named)
        return answer if "not connected to" in attention(answer) else None

    answer: dict[str, Any] = until(away, what="the agent to say that no head answers")
    assert answer["waiting"]["records"] >= 100 and answer["waiting"]["since_ns"]
    assert "nothing listens there" in attention(answer)
    house.open()
    house.wait_for(early="running")
    house.move()
    finish(early)  # its head is at another address now
    house.wait_for(early="completed")
    end(agent, signal.SIGTERM)
    late = town.program("late", house.named)
    until(lambda: len(list(town.node.glob("journals/*/heads"))) > 2, what="its journal")
    town.agent()
    house.wait_for(early="completed", late="running")
    end(late, signal.SIGKILL)
    house.wait_for(early="completed", late="killed")
    assert house.values("early") == numbers(100)


def test_what_a_head_prints_can_be_pasted(town: Town) -> None:
    """Into a shell with another directory: programs, their agent and commands find the head,
    whatever its ports are, with TLS and behind a path."""
    authority = trustme.CA()
    both, ca = str(town.root / "both.pem"), str(town.root / "ca.pem")
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(both)
    tls = ("--tls-certificate", both, "--tls-key", both)
    house = town.house("house").open("--base-path", "/team/x", *tls)
    until(lambda: "export" in town.words(), what="its words")
    printed = town.words()
    [line] = [each for each in printed.splitlines() if "export" in each]
    page = house.page.replace("http:", "https:") + "/team/x"
    script = f"""{line}
    {sys.executable} -c '{PROGRAM}' pasted 100
    {sys.executable} -m runwatch.cli runs --json
    """
    environment = Cluster.environment_of(town.node) | {"HOME": str(town.root)}
    environment |= {"RUNWATCH_AGENT": "on", "RUNWATCH_CA": ca}
    done = subprocess.run(
        ["/bin/bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    url, runs = done.stdout.split("\n", 1)
    assert url == f"{page}/#/run/pasted"
    assert f"run 'pasted' is shown at {url}\n" == done.stderr.removeprefix("runwatch: ")
    assert [run["name"] for run in json.loads(runs)["runs"]] == ["pasted"]


def test_a_head_serves_its_own_directory_beside_an_agent_that_sends_elsewhere(town: Town) -> None:
    """And programs that record there need no setting.  One that names this very head is there once,
    though the head reads it and the agent sends it."""
    far = town.house("far").open()
    near = town.house("near")
    near.root = town.node
    near.open()
    town.agent(far.named)
    programs = [
        town.program("here"),
        town.program("there", far.named),
        town.program("both", near.named, 20_000),
    ]
    near.wait_for(here="running", there="running", both="running")
    far.wait_for(here="running", there="running")
    for program in programs:
        finish(program)
    near.wait_for(here="completed", there="completed", both="completed")
    far.wait_for(here="completed", there="completed")
    assert near.values("here") == near.values("there") == numbers(100)
    assert near.values("both") == numbers(20_000)
    assert far.values("here") == far.values("there") == numbers(100)
