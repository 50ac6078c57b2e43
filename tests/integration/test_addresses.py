"""Programs, agents and heads that come in any order: records are at the head that a program names.

Real processes.  One directory holds a node's journals; the heads have directories of their own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.address import Listening, read_address
from runwatch.agent.lock import end_agents
from runwatch.record import RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests.integration.processes import Cluster, end, free_port
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
STATUS = [sys.executable, "-m", "runwatch.cli", "status", "--json"]


class House:
    """A head in a directory of its own, whose ports may change."""

    def __init__(self, town: Town, name: str) -> None:
        self.town = town
        self.root = town.root / name
        self.ports = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.at: Listening | None = None

    @property
    def page(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    def open(self, *options: str) -> House:
        http, grpc = map(str, self.ports)
        command = ["-m", "runwatch.cli", "head", "--dir", str(self.root), *options]
        self.process = process = self.town.python(
            *command, "--http-port", http, "--grpc-port", grpc, directory=self.root
        )

        def ready() -> Listening | None:
            assert process.poll() is None, self.town.words()
            at = read_address(self.root)
            return at if at is not None and at.pid == process.pid else None

        self.at = remember(until(ready, what="the head to start"))
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
        assert self.at is not None
        return {"RUNWATCH_HEAD": self.page, "RUNWATCH_TOKEN": self.at.token}

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
        until(lambda: self.runs() == states, 30, lambda: f"{states}, not {self.runs()}")

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
        self, *command: str, directory: Path | None = None, stdin: int | None = None, **more: str
    ) -> subprocess.Popen[bytes]:
        environment = Cluster.environment_of(directory or self.node) | {"HOME": str(self.root)}
        process = subprocess.Popen(
            [sys.executable, *command],
            env=environment | more,
            stdin=stdin,
            stdout=self.log,
            stderr=self.log,
        )
        self.others.append(process)
        return process

    def agent(self, **more: str) -> subprocess.Popen[bytes]:
        return self.python("-m", "runwatch.agent", "--dir", str(self.node), "--idle", "0", **more)

    def program(self, name: str, count: int = 100, **more: str) -> subprocess.Popen[bytes]:
        """It lives until its input ends."""
        pipe = subprocess.PIPE
        return self.python("-c", PROGRAM, name, str(count), "stay", stdin=pipe, **more)

    def status(self, **more: str) -> dict[str, Any]:
        environment = Cluster.environment_of(self.node) | {"HOME": str(self.root)} | more
        done = subprocess.run(STATUS, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stderr == "", done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

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


def test_an_agent_without_a_head_hears_of_the_heads_that_programs_name(town: Town) -> None:
    """And each head gets its own runs, with how their processes ended, and no other."""
    town.agent()
    until(lambda: list(town.node.glob("agent/*.status")), what="the agent")
    one, two = town.house("one").open(), town.house("two").open()
    first = town.program("first", **one.named)
    second = town.program("second", **two.named)
    town.program("nobodys")
    one.wait_for(first="running")
    two.wait_for(second="running")
    finish(first)
    end(second, signal.SIGKILL)
    one.wait_for(first="completed")
    two.wait_for(second="killed")
    assert one.values("first") == two.values("second") == [float(n) for n in range(100)]
