"""Every benchmark, one after the other, beside the peers that are installed.

    make bench                                    everything, about an hour
    python benchmarks/run.py --quick              a look, about 10 minutes
    python benchmarks/run.py --only loop --json loop.json

Exit code 0 unless a measurement itself failed: a bar that is missed is a result.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from command import show
from report import Outcome, machine
from trial import HERE, PEERS_PYTHON, Options

NAMES = (
    "imports", "cli", "launching", "scalar", "sigkill", "loop", "hooked", "ingest", "otlp",
    "devices", "agent", "goodput", "first_answer", "searching", "stacks", "profiles", "hangs",
    "growth", "webhook",
)  # fmt: skip
STORE = "store"
"""Stands by itself: it prints its own tables."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--only", action="append", choices=(*NAMES, STORE), help="may be repeated")
    parser.add_argument("--json", type=Path, help="write the raw numbers to this file")
    arguments = parser.parse_args()
    print(machine(), end="\n\n", flush=True)
    if not PEERS_PYTHON.exists():
        print(f"No peers: {PEERS_PYTHON.name} of .venv-bench is missing (`make bench` makes it).\n")
    numbers: dict[str, Any] = {"machine": machine()}
    failed = False
    for name in arguments.only or (*NAMES, STORE):
        if name == STORE:
            failed |= not run_store(arguments.quick)
            continue
        measure: Callable[[Options], Outcome] = import_module(name).measure
        outcome = show(measure, Options(arguments.quick))
        failed |= outcome is None
        if outcome is not None:
            numbers[name] = outcome.numbers
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(numbers, indent=1))
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    return int(failed)


def run_store(quick: bool) -> bool:
    points = 2_000_000 if quick else 20_000_000
    command = [sys.executable, str(HERE / "store.py"), "--points", str(points)]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
