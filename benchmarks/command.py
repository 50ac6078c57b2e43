"""The command line that every benchmark here has: `--quick`, and `--worker` for itself."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from report import Outcome, machine
from trial import Options, TrialFailed


def run_one(
    parser: argparse.ArgumentParser,
    work: Callable[[dict[str, Any]], None] | None,
    measure: Callable[[Options], Outcome],
) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker and work is not None:
        work(json.loads(arguments.worker))
        return
    print(machine(), end="\n\n")
    sys.exit(0 if show(measure, Options(arguments.quick)) is not None else 1)


def show(measure: Callable[[Options], Outcome], options: Options) -> Outcome | None:
    """Measure and print; None when a measurement itself failed."""
    try:
        outcome = measure(options)
    except TrialFailed as error:
        print(f"FAILED: {error}\n", flush=True)
        return None
    for table in outcome.tables:
        print(table.text(), end="\n\n", flush=True)
    return outcome
