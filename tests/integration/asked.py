"""A recorded directory that a head serves, and commands that ask it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from runwatch.address import Listening, read_address
from runwatch.testing import until
from tests.integration.processes import end

PROGRAM = """
import runwatch
for name in ("line", "line-of-another-day", "team/x"):
    with runwatch.init(name, group="tests", config={"lr": 0.1}) as run:
        run.log(warm_up_seconds=0.5)  # no step yet: as the metrics of devices have none
        for step, x in run.steps(range(20)):
            run.log(loss=1 / (step + 1), accuracy=step / 20)
"""
_IMPORTED = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)


class Asked:
    """`Asked(root)("runs", "--json")` runs the command; RUNWATCH_DIR is `root`."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        self._environment = environment

    def __call__(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "runwatch.cli", *words, code=code)

    def imports(self, *words: str) -> frozenset[str]:
        """The modules that the command imports."""
        done = self.python("-X", "importtime", "-m", "runwatch.cli", *words)
        return frozenset(_IMPORTED.findall(done.stderr))

    def python(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *words],
            env=self._clean() | self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stderr
        assert code is None or done.returncode == code, (words, done)
        return done

    def _clean(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        ours = {"RUNWATCH_DIR": str(self.root), "RUNWATCH_AGENT": "off", "COLUMNS": "120"}
        return inherited | ours

    def at(self, **environment: str) -> Asked:
        """The same with other variables."""
        return Asked(self.root, **self._environment | environment)


def _runs(at: Listening) -> int:
    asked = Request(f"{at.http}/api/v1/runs", headers={"Authorization": f"Bearer {at.token}"})
    with urlopen(asked, timeout=100) as answer:
        return len(json.load(answer)["runs"])


@contextmanager
def served(root: Path) -> Iterator[tuple[Asked, Listening]]:
    """Record PROGRAM in this directory, and serve it."""
    ask = Asked(root)
    ask.python("-c", PROGRAM)
    with (root / "head.log").open("wb") as log:
        head = subprocess.Popen(
            [sys.executable, "-m", "runwatch.cli", "ui", str(root), "--port", "0"],
            env=ask._clean(),
            stdout=log,
            stderr=log,
        )
    try:

        def ready() -> Listening | None:
            assert head.poll() is None, (root / "head.log").read_text()
            at = read_address(root)
            return at if at is not None and at.pid == head.pid else None

        at = until(ready, what="the head to start")
        until(lambda: _runs(at) == 3, what="the head to have read all")
        yield ask, at
    finally:
        end(head, signal.SIGTERM)
