"""A training program that gets on for a while and then gets stuck: python hung.py KIND [STEP]

KIND is one of `stuck.py`'s ways; or "stopped": it stops itself by SIGSTOP; "segfault"; "nothing".
With HUNG_GATE it takes its first step when that file is there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

import runwatch
from tests.integration.stuck import KINDS

STEP_SECONDS = 0.02


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)  # stuck: stopped


def crash() -> None:
    ctypes.string_at(0)


WAYS: dict[str, Callable[[], object]] = {
    **KINDS,
    "stopped": stop,
    "segfault": crash,
    "nothing": lambda: None,
}


def main(kind: str, bad_step: int) -> None:
    os.setsid()  # who ends us ends what we fork
    run = runwatch.init(f"hung-{os.environ.get('HUNG_RUN', kind)}")
    gate = os.environ.get("HUNG_GATE")
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    for step, _ in run.steps(range(10**6)):
        time.sleep(STEP_SECONDS)
        if step == bad_step:
            WAYS[kind]()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15)
