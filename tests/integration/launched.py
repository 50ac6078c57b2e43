"""A small program with a checkpoint, for the tests of launches: python launched.py NAME END.

It takes ten steps from where it was last saved, and saves.  Then it ends as END says: `end`,
`hang`, or `kill:2`, where rank 2 is killed and the others wait for it, as in a collective: each
leaves a mark.  With NAME `-` the program gives none.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import runwatch

STEPS = 10


def main(name: str, end: str) -> None:
    run = runwatch.init(None if name == "-" else name)
    saved = Path(os.environ["RUNWATCH_DIR"]).parent / f"{name}.{run.rank}.checkpoint"
    first = int(saved.read_text()) if saved.exists() else 0
    for number in range(first, first + STEPS):
        with run.step(number):
            time.sleep(0.005)
    saved.write_text(str(first + STEPS))
    if end == "end":
        run.finish()
        return
    marks = [saved.with_name(f"{name}.{r}.{first}.waits") for r in range(run.world_size)]
    marks[run.rank].touch()
    if end == f"kill:{run.rank}":
        while not all(mark.exists() for mark in marks):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for_the_others()


def wait_for_the_others() -> None:
    launcher = os.getppid()
    while os.getppid() == launcher:  # it does not outlive the test
        time.sleep(0.1)  # here it hangs


if __name__ == "__main__":
    main(*sys.argv[1:])
