"""Limits on what a run and a client may bring: a real head, agent and programs, over gRPC."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.testing import until
from tests.integration.processes import Cluster, end
from tests.tokens import urlopen

PROGRAM: Final = """
import sys
import runwatch
with runwatch.init("wide") as run:
    run.log(first=1.0)
    sys.stdin.readline()
    for n in range(100):
        run.log(**{f"metric_{n}": float(n)})
    print("said", flush=True)
    sys.stdin.readline()
"""


class World:
    def __init__(self, root: Path) -> None:
        self.cluster = Cluster(root)
        self.program: subprocess.Popen[str] | None = None

    def start_head(self, **limits: int) -> None:
        said = "".join(f"{name} = {value}\n" for name, value in limits.items())
        (self.cluster.node_root / "config.toml").write_text(f"[head]\n{said}")
        self.cluster.start_head()

    def start_program(self) -> None:
        self.program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=self.cluster.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def go_on(self) -> None:
        assert self.program is not None and self.program.stdin is not None
        self.program.stdin.write("\n")
        self.program.stdin.flush()

    def get(self, path: str) -> Any:
        url = f"http://127.0.0.1:{self.cluster.http_port}/api/v1{path}"
        try:
            with urlopen(url, timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def metrics(self) -> set[str]:
        found = self.get("/runs/wide/latest") or {"points": []}
        return {point["metric"] for point in found["points"]}

    def stored(self, run: str) -> int:
        found = self.get(f"/runs/{run}/curves?metric=value&buckets=1") or {"curves": []}
        return sum(sum(curve["count"]) for curve in found["curves"])

    def refusals(self) -> list[str]:
        """As the node's agent told it."""
        health = self.get("/health") or {}
        return [aside["why"] for aside in health.get("aside") or []]

    def close(self) -> None:
        if self.program is not None:
            self.program.kill()
            self.program.communicate()
        self.cluster.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_run_over_its_limit_is_set_aside_alone_and_told(world: World) -> None:
    cluster = world.cluster
    world.start_head(run_series=60)
    cluster.start_agent()
    beside = cluster.start_trainer(hertz=100)
    world.start_program()
    until(lambda: "first" in world.metrics(), 30, cluster.words())
    world.go_on()
    whys = until(world.refusals, 30, cluster.words())
    assert len(whys) == 1 and "run 'wide' has sent" in whys[0] and "run_series" in whys[0]
    assert any("run_series" in note for note in world.get("/health")["notes"])
    assert "run_series" in world.get("/runs/wide")["limit"]
    [told] = until(lambda: world.get("/runs/wide/events?kind=limit_reached")["events"], 30)
    assert told["body"]["what"] == "series" and "run_series" in told["body"]["why"]
    assert not any(name.startswith("metric_") for name in world.metrics())
    # The others go on, and the journal is where it was: with another limit all of it is taken.
    now = beside.returned
    until(lambda: world.stored(beside.run) >= now, 30, cluster.words())
    cluster.stop_head()
    world.start_head(run_series=1000)
    wanted = {f"metric_{n}" for n in range(100)} | {"first"}
    until(lambda: wanted <= world.metrics(), 60, cluster.words())
    until(lambda: not world.refusals(), 30, cluster.words())
    assert world.get("/runs/wide")["limit"] == ""
    beside.kill()
    cluster.wait_until_stored()
    cluster.check_exactly_once()


def test_a_project_over_its_limit_is_told(world: World) -> None:
    """Other projects go on, and after a deletion there is room again."""
    cluster = world.cluster
    world.start_head(project_runs=1)
    cluster.start_agent()

    def program(name: str, group: str) -> None:
        code = f"import runwatch; runwatch.init({name!r}, group={group!r}).log(value=1.0)"
        assert cluster._python("-c", code).wait(60) == 0, cluster.words()

    def runs() -> set[str]:
        return {run["name"] for run in (world.get("/runs") or {"runs": []})["runs"]}

    program("first", "vision")
    until(lambda: runs() == {"first"}, 30, cluster.words())
    program("second", "vision")
    program("third", "audio")
    [why] = until(world.refusals, 30, cluster.words())
    assert "project 'vision' has sent 1 runs, and 1 are allowed (project_runs" in why
    until(lambda: runs() == {"first", "third"}, 30, cluster.words())
    address = f"http://127.0.0.1:{cluster.http_port}/api/v1/runs/first?yes=1&force=1"
    urlopen(urllib.request.Request(address, method="DELETE"), timeout=100).close()
    until(lambda: runs() == {"second", "third"} and not world.refusals(), 60, cluster.words())


@pytest.mark.parametrize(("limit", "most"), [("client_bytes", 20_000), ("client_events", 2)])
def test_a_client_over_its_limit_is_told(world: World, limit: str, most: int) -> None:
    world.start_head(**{limit: most})
    world.cluster.start_agent()
    trainer = world.cluster.start_trainer(hertz=500)
    trainer.wait_for(1000)
    notes = until(lambda: (world.get("/health") or {}).get("notes"), 30, world.cluster.words())
    assert "client 127.0.0.1 has sent" in notes[0] and limit in notes[0]
    assert world.cluster.head is not None
    assert end(world.cluster.head, 15) == 0


def test_a_limit_below_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[head]\nrun_events = -1\n")
    done = subprocess.run(
        [sys.executable, "-m", "runwatch.cli", "head"],
        env={"RUNWATCH_DIR": str(tmp_path), "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "run_events is -1" in done.stderr
