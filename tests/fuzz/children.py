"""Trials in a process of their own, which may take so much memory and no more."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parents[2]
MOST_SECONDS: Final = 30.0
"""Of the processors' time, for anything that is read or answered: more is a hang.  A busy machine
makes all of it slower, too."""
MEMORY: Final = 300 << 20
"""What trials may add to what a program takes that has only begun."""
MAPPED: Final = 8 << 30
"""Nothing that is tried may take the machine along."""


def in_a_child(module: str, *arguments: object) -> None:
    """Runs the module's own trials; what it says in the end is shown if it fails."""
    paths = os.pathsep.join((str(SOURCES / "src"), str(SOURCES)))
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": paths},
        preexec_fn=_limit,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4_000:]


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAPPED, MAPPED))


def most_bytes() -> int:
    """What this process has had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
