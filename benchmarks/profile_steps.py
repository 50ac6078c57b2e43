"""What accidents of captures cost the steps of the program that is captured.

One JAX program takes steps of some milliseconds all the while.  With a head and an agent it is left
alone, captured, and then captured while one thing after the other goes wrong; in between it is left
alone again.  The steps of each of these times are compared with those in which nothing was asked.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from asking import ask, ask_once, connect
from profile_stored import Site, site
from report import Table
from trial import HEADERS, TrialFailed, environment, until

RUN: Final = "steps"
WINDOW_MS: Final = 1000
QUIET_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 120
PROGRAM: Final = """
import array, os, sys, time
import jax, jax.numpy as jnp, runwatch
place = sys.argv[1]
work = jax.jit(lambda w: jnp.tanh(w @ w) / 100)
weights = jnp.ones((320, 320))
steps = array.array("q")
run = runwatch.init("steps")
number = 0
while not os.path.exists(f"{place}/enough"):
    begin = time.time_ns()
    with run.step(number):
        for _ in range(4):
            weights = work(weights)
        weights.block_until_ready()
    steps.extend((begin, time.time_ns() - begin))
    number += 1
    if number == 50:
        open(f"{place}/begun", "w").close()
with open(f"{place}/steps", "wb") as file:
    steps.tofile(file)
run.finish()
"""


@dataclass
class Trial:
    made: Site
    place: Path
    numbers: dict[str, tuple[int, int]]
    """When each case began and was over."""

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        begin = time.time_ns()
        yield
        time.sleep(0.5)
        self.numbers[name] = begin, time.time_ns()

    def ask(self, path: str, said: Any = None) -> Any:
        return json.loads(ask_once(self.made.at.http, f"/api/v1/runs/{RUN}/{path}", said))

    def begin(self, session: str) -> None:
        connection = connect(self.made.at.http)
        body = json.dumps({"duration_ms": WINDOW_MS, "session": session})
        connection.request(
            "POST",
            f"/api/v1/runs/{RUN}/captures",
            body,
            HEADERS | {"Content-Type": "application/json"},
        )
        reply = connection.getresponse()
        told = reply.read()
        connection.close()
        if reply.status != 202:
            raise TrialFailed(f"no capture {session}: {told[:300]!r}")

    def state(self, session: str) -> str:
        return str(self.ask(f"captures/{session}")["state"])

    def captured(self, session: str, want: str = "done") -> None:
        def over() -> bool:
            return self.state(session) not in ("asked", "running")

        until(over, PATIENCE_SECONDS, f"session {session}")
        if (state := self.state(session)) != want:
            raise TrialFailed(f"session {session} is {state}, not {want}")

    def is_ready(self) -> bool:
        with contextlib.suppress(TrialFailed):
            processes = self.ask("captures/preflight", {})["processes"]
            return bool(processes and processes[0]["way"])
        return False


def left_alone(trial: Trial) -> None:
    time.sleep(QUIET_SECONDS)


def captured(trial: Trial) -> None:
    trial.begin("fine")
    trial.captured("fine")


def not_written(trial: Trial) -> None:
    folder = trial.made.node / "profiles" / RUN / "plugins" / "profile"
    (folder / "blocked").write_text("in the way")
    trial.begin("blocked")
    trial.captured("blocked", "failed")


def viewer_crashes(trial: Trial) -> None:
    connection = connect(trial.made.at.http)
    ask(connection, "/viewers/xprof/data/plugin/profile/runs")
    connection.close()
    trial.begin("viewed")
    for child in psutil.Process(trial.made.head.pid).children():
        if "runwatch.head.features.profiles.viewer" in " ".join(child.cmdline()):
            child.kill()
            break
    else:
        raise TrialFailed("there is no viewer to kill")
    trial.captured("viewed")


def head_dies(trial: Trial) -> None:
    """In the middle; the files are on the node all the same."""
    trial.begin("orphan")
    os.kill(trial.made.head.pid, signal.SIGKILL)
    folder = trial.made.node / "profiles" / RUN / "plugins" / "profile" / "orphan"
    until(lambda: folder.is_dir() and any(folder.glob("*.pb")), PATIENCE_SECONDS, "its files")


CASES: Final[dict[str, Callable[[Trial], None]]] = {
    "left alone": left_alone,
    "captured": captured,
    "captured, cannot be written": not_written,
    "captured, the viewer is killed": viewer_crashes,
    "captured, the head is killed": head_dies,
    "left alone again": left_alone,
}


def trial() -> dict[str, Any]:
    with site() as made:
        place = made.root.parent
        variables = environment(place, RUNWATCH_DIR=str(made.node), JAX_PLATFORMS="cpu")
        with (place / "log").open("ab") as log:
            program = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(place)], env=variables, stdout=log, stderr=log
            )
        try:
            return measured(Trial(made, place, {}), program)
        finally:
            program.kill()
            program.wait()


def measured(found: Trial, program: subprocess.Popen[bytes]) -> dict[str, Any]:
    until((found.place / "begun").exists, PATIENCE_SECONDS, "the first steps")
    until(found.is_ready, PATIENCE_SECONDS, "the agent to know the program")
    for name, act in CASES.items():
        with found.case(name):
            act(found)
    (found.place / "enough").touch()
    if program.wait(PATIENCE_SECONDS) != 0:
        raise TrialFailed((found.place / "log").read_text(errors="replace")[-2000:])
    taken = array.array("q", (found.place / "steps").read_bytes())
    steps = list(zip(taken[::2], taken[1::2], strict=True))
    return {name: of_case(steps, *when) for name, when in found.numbers.items()}


def of_case(steps: list[tuple[int, int]], begin: int, end: int) -> dict[str, float]:
    lasted = sorted(ns / 1e6 for at, ns in steps if begin <= at <= end)
    if not lasted:
        raise TrialFailed("no step was taken meanwhile")
    middle = lasted[len(lasted) // 2]
    mean = sum(lasted) / len(lasted)
    return {"steps": len(lasted), "mean_ms": mean, "p50_ms": middle, "max_ms": lasted[-1]}


def table(numbers: dict[str, Any]) -> Table:
    head = ("meanwhile", "steps", "mean step", "of undisturbed", "largest step", "of undisturbed")
    made = Table("Steps of a program that is captured, whatever happens to the capture", head)
    still = numbers["left alone"]
    for name, one in numbers.items():
        mean, most = one["mean_ms"] / still["mean_ms"], one["max_ms"] / still["max_ms"]
        made.rows.append(
            (name, f"{one['steps']:,}", f"{one['mean_ms']:.2f} ms", f"{mean:.2f} ×",
             f"{one['max_ms']:.1f} ms", f"{most:.2f} ×")
        )  # fmt: skip
    made.notes.append(
        f"Captures of {WINDOW_MS} ms, from the request to the files in place and half a second on;"
        " recording itself is what a capture costs: compare accidents with the plain capture."
    )
    return made
