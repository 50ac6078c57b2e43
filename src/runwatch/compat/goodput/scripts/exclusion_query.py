"""Goodput of a run without some stretches of time.

It asks for a project (any answer will do: the run's own journal is read), for the run's name, and
for a file of intervals to leave out, in UTC:

  [{"start_time_utc": "2025-09-24T18:00:00Z", "end_time_utc": "2025-09-24T18:30:00Z"}]

example:
  python -m runwatch.compat.goodput.scripts.exclusion_query
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from runwatch.compat.commands import exit_code
from runwatch.compat.goodput.goodput import BadputType, GoodputCalculator
from runwatch.errors import RunwatchError, UsageError

RETENTION: Final = timedelta(days=5)
GCLOUD_SECONDS: Final = 10.0
LABELS: Final = {
    BadputType.TPU_INITIALIZATION: "Device Initialization",
    BadputType.TRAINING_PREP: "Training Preparation",
    BadputType.PROGRAM_STARTUP: "Program Startup",
    BadputType.DATA_LOADING_SYNC: "Data Loading",
    BadputType.WASTED_PROGRESS_FROM_DISRUPTION: "Disruption: Wasted Progress",
    BadputType.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION: "Disruption: Infra Recovery",
    BadputType.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME: "Checkpoint Save",
    BadputType.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME: "Checkpoint Restore",
    BadputType.CUSTOM_BADPUT_EVENTS: "Custom Events",
    BadputType.OTHER: "Other/Unknown",
}

Interval = tuple[datetime, datetime]


def get_project_id() -> str | None:
    """$PROJECT_ID, or the one that gcloud is set to."""
    if given := os.environ.get("PROJECT_ID"):
        return given
    words = ["gcloud", "config", "get-value", "project"]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=GCLOUD_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    project = asked.stdout.strip() if asked.returncode == 0 else ""
    return None if project in ("", "(unset)") else project


def load_intervals_from_json(file_path: str) -> list[Interval]:
    """A time without a zone is in UTC.  What is malformed or empty is left out and told of.

    A file that cannot be read, or is no such list, ends the program with 1.
    """
    try:
        with open(file_path, encoding="utf-8") as file:
            given = json.load(file)
        pairs = [(str(one["start_time_utc"]), str(one["end_time_utc"])) for one in given]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"Error loading JSON file {file_path}: {_why(error)}", file=sys.stderr)
        sys.exit(1)
    intervals = []
    for start, end in pairs:
        try:
            pair = _utc(start), _utc(end)
        except ValueError as error:
            print(f"Skipping a malformed time in [{start}, {end}]: {error}", file=sys.stderr)
            continue
        if pair[0] < pair[1]:
            intervals.append(pair)
        else:
            print(f"Skipping an empty interval [{start}, {end}]", file=sys.stderr)
    return intervals


def analyze_run(project_id: str, run_name: str, exclusions: Sequence[Interval]) -> int:
    """Print the report; 1, and the reason, if there is none."""
    print(f"Analyzing Run: {run_name} in project {project_id}")
    calculator = GoodputCalculator(
        job_name=run_name, logger_name=f"goodput_{run_name}", max_logs_retention_period=RETENTION
    )
    try:
        if exclusions:
            percent, breakdown, step, seconds = calculator.get_job_goodput_with_exclusions(
                sorted(exclusions), include_badput_breakdown=True
            )
            print_report(run_name, percent, breakdown, step, seconds)
        else:
            print_report(run_name, *calculator.get_job_goodput(include_badput_breakdown=True))
    except (ValueError, RunwatchError) as error:
        print(f"[Analysis Error] {error}", file=sys.stderr)
        return 1
    return 0


def print_report(
    run_name: str,
    gp: float,
    breakdown: Mapping[Any, Any],
    step: int,
    excl_sec: float | None = None,
) -> None:
    print(f"Run Name: {run_name}")
    print(f"Maximum Productive Step: {step}")
    print(f"Goodput: {gp:.2f}%")
    if excl_sec is not None:
        print(f"Total Time Excluded: {excl_sec:.2f} seconds")
    print("\nBadput Breakdown:")
    for kind, label in LABELS.items():
        value = breakdown.get(kind, 0)
        percent = sum(value.values()) if isinstance(value, Mapping) else value
        if percent > 0:
            print(f"  {label:<20}: {percent:.2f}%")


def main() -> int:
    argparse.ArgumentParser(
        "exclusion_query", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    return exit_code("exclusion_query", _ask)


def _ask() -> int:
    known = get_project_id()
    asked = f"Enter GCP Project ID [{known}]: " if known else "Enter GCP Project ID: "
    project = _answer(asked) or known or "-"
    while not (run_name := _answer("Enter Run Name: ")):
        pass
    while path := _answer("Enter path to intervals JSON file (Enter to skip): "):
        if os.path.exists(path):
            return analyze_run(project, run_name, load_intervals_from_json(path))
        print(f"Error: File {path!r} not found.", file=sys.stderr)
    return analyze_run(project, run_name, ())


def _answer(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        raise UsageError(f"there was no answer to {question.strip()!r}") from None


def _utc(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _why(error: Exception) -> str:
    return f"an entry has no {error}" if isinstance(error, KeyError) else str(error)
