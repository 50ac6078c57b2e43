"""Training comes first: what befalls its captures changes nothing in a program.

The same JAX program runs twice.  The first time it is captured, with a head and an agent, and its
captures meet with one accident after the other; the second time it is left alone.  Every loss, the
steps that were recorded, the threads and the exit code are the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.error
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from runwatch.capture import process as processes
from runwatch.record import RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests import tokens
from tests.integration.processes import end
from tests.integration.test_captures import DEADLINE, RUN, Site, _names

pytestmark = [
    pytest.mark.skipif(
        find_spec("jax") is None or find_spec("xprof") is None, reason="jax or xprof is missing"
    ),
]

PROGRAM = """
import json, os, sys, threading, time
import jax, jax.numpy as jnp
import runwatch

places, least = sys.argv[1], int(sys.argv[2])
enough = os.path.join(places, "enough")
learn = jax.jit(lambda w, x: (w - 0.01 * x * jnp.tanh(w * x), jnp.sum(jnp.tanh(w * x) ** 2)))
weights, losses = jnp.linspace(-1.0, 1.0, 64), []

def more():
    step = 0
    while step < least or not os.path.exists(enough):
        yield step
        step += 1

run = runwatch.init("captured")
for step, _ in run.steps(more()):
    weights, loss = learn(weights, jnp.sin(step + jnp.arange(64.0)))
    losses.append(float(loss).hex())
    run.log(loss=float(loss))
    with open(os.path.join(places, "step.part"), "w") as file:
        file.write(str(step))
    os.replace(file.name, os.path.join(places, "step"))
    time.sleep(0.002)
run.finish()
deadline = time.monotonic() + 100
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)  # one of ours may still be answering: `finish` does not wait for that
threads = sorted(thread.name for thread in threading.enumerate())
print(json.dumps({"losses": losses, "threads": threads}))
"""


class Training:
    def __init__(self, site: Site, name: str, least: int) -> None:
        self.places = site.root / name
        self.places.mkdir()
        self._site = site
        self._told = self.places / "told"
        command = [*site.python, "-c", PROGRAM, str(self.places), str(least)]
        variables = site.environment | {"RUNWATCH_DIR": str(site.root / f"{name}-root")}
        if name == "captured":
            variables = site.environment
        with self._told.open("wb") as told:
            self.process = subprocess.Popen(
                command, env=variables, stdout=told, stderr=site.log, start_new_session=True
            )
        site.programs.append(self.process)

    @property
    def step(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return int((self.places / "step").read_text())
        assert self.process.poll() is None, self._site.words()
        return -1

    def goes_on(self) -> None:
        before = self.step
        until(lambda: self.step > before + 10, DEADLINE, self._site.words())

    def ended(self) -> dict[str, Any]:
        (self.places / "enough").touch()
        code = self.process.wait(DEADLINE)
        self._site.programs.remove(self.process)
        assert code == 0, self._site.words()
        found: dict[str, Any] = json.loads(self._told.read_bytes().splitlines()[-1])
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def cannot_be_written(site: Site, training: Training) -> None:
    folder = site.node_root / "profiles" / RUN / "plugins" / "profile"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "blocked").write_text("in the way")
    told = site.capture(duration_ms=200, session="blocked")
    (folder / "blocked").unlink()
    assert told["state"] == "failed" and "cannot write to" in told["why"]
    training.goes_on()


def viewer_crashes(site: Site, training: Training) -> None:
    """While the next capture goes on."""
    assert site.head is not None
    assert site.capture(duration_ms=200, session="seen")["state"] == "done"
    path = f"{site.profile('seen', files=1)['xprof'].partition('?')[0]}runs"
    assert _answers(site, path) == 200, site.words()
    (viewer,) = _viewers(site.head.pid)
    site.begin(duration_ms=400, session="beside")
    os.kill(viewer, signal.SIGKILL)
    assert site.ended("beside")["state"] == "done"
    training.goes_on()


def head_dies(site: Site, training: Training) -> None:
    assert site.head is not None
    site.begin(duration_ms=1500, session="orphan")
    until(lambda: site.state("orphan") != "asked", DEADLINE, site.words())
    end(site.head, signal.SIGKILL)
    training.goes_on()
    until(lambda: len(_names(site, "orphan")) == 1, DEADLINE, site.words())
    site.start_head()
    assert site.ended("orphan")["state"] == "done"


def _answers(site: Site, path: str) -> int:
    url = f"http://127.0.0.1:{site.http_port}/{path}"
    try:
        with tokens.urlopen(url, timeout=DEADLINE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def _viewers(head: int) -> list[int]:
    def is_viewer(pid: int) -> bool:
        try:
            return (
                b"runwatch.head.features.profiles.viewer"
                in Path(f"/proc/{pid}/cmdline").read_bytes()
            )
        except (FileNotFoundError, ProcessLookupError):
            return False  # another that has ended meanwhile

    return [pid for pid in processes.children(head) if is_viewer(pid)]


def test_whatever_befalls_its_captures_training_is_the_same(site: Site) -> None:
    site.start_head()
    site.start_agent()
    training = Training(site, "captured", 300)
    until(lambda: training.step > 5, DEADLINE, site.words())
    until(lambda: _is_ready(site), DEADLINE, site.words())
    for accident in (cannot_be_written, viewer_crashes, head_dies):
        accident(site, training)
    disturbed = training.ended()
    steps = len(disturbed["losses"])
    alone = Training(site, "alone", steps)
    undisturbed = alone.ended()
    assert steps >= 300
    assert disturbed == undisturbed  # every loss to the last bit, and the threads that are left
    until(lambda: _stored(site) == steps, DEADLINE, "all losses to be at the head")
    site.stop_head()
    assert _recorded(site) == list(range(steps))


def _is_ready(site: Site) -> bool:
    status, told = site.ask(f"/runs/{RUN}/captures/preflight", {})
    return bool(status == 200 and told["processes"] and told["processes"][0]["way"])


def _stored(site: Site) -> int:
    """How many losses the head has."""
    status, told = site.ask(f"/runs/{RUN}/curves?metric=loss&buckets=1")
    curves = told["curves"] if status == 200 else []
    return sum(sum(curve["count"]) for curve in curves)


def _recorded(site: Site) -> list[int]:
    store = DuckStore.open(site.head_root / "store")
    try:
        rows = store.series(RunId(RUN), metric="loss")
        return [step for columns in store.points([r.series for r in rows]) for step in columns.step]
    finally:
        store.close()
