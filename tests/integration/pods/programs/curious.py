"""Looks around in the folder that all pods of a node share, and says what it was refused."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path("/var/lib/runwatch")


def tried(what: Callable[[Path], object], path: Path) -> str:
    try:
        what(path)
    except OSError as error:
        return type(error).__name__
    return "done"


def main(theirs: str) -> None:
    journal = ROOT / "journals" / theirs
    answers = {
        "list it": tried(os.listdir, journal),
        "read it": tried(Path.read_bytes, journal / "00000000.seg"),
        "rename it": tried(lambda path: path.rename(ROOT / "journals" / "mine"), journal),
        "put a file there": tried(Path.touch, journal / "file"),
        "see the agent's files": tried(os.listdir, ROOT / "agent"),
        "command the agent": tried(os.listdir, ROOT / "commands"),
        "replace all journals": tried(lambda path: path.rename(ROOT / "old"), ROOT / "journals"),
        "record oneself": tried(Path.mkdir, ROOT / "journals" / "of-my-own"),
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
