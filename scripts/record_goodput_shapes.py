"""Asks the original about the jobs in benchmarks/goodput_shapes.py, and keeps what it answers.

    python scripts/record_goodput_shapes.py tests/fixtures/goodput/original-shapes.json

Run it with an interpreter that has ml-goodput-measurement 0.2.3 installed (`make bench` makes one
in .venv-bench).  Every job is asked about twice, as in the benchmark: when all its steps are in the
log (`first`), and after a hundred more (`after`).  All classes are kept, in seconds and in percent,
to the last digit.  The same jobs each time, so only times that go on until "now" differ: OTHER, and
with it the percentages; `total` says until when.

It takes some minutes, and 5 GB of memory for the longest job.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.goodput_shapes import PUBLISHED, SHAPES, Job, published

Entry = dict[str, Any]

LIBRARY = "ml-goodput-measurement"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
LARGEST = {"custom": 100_000}
"""Its rule for custom events is quadratic."""
MORE = 100


class Log:
    """A back end that gives entries as they were written."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def read_cloud_logging_entries(
        self, start_time: Any = None, end_time: Any = None, last_entry_info: Any = None
    ) -> tuple[list[Entry], Any]:
        known = int(last_entry_info[1]) if last_entry_info and last_entry_info[1] else 0
        now = datetime.now(timezone.utc)  # noqa: UP017, the original wants this
        return self.entries[known:], (now, str(len(self.entries)))


def plain(value: Any) -> Any:
    """Numbers that JSON takes, kinds by their names."""
    if isinstance(value, dict):
        return {str(getattr(kind, "name", kind)): plain(part) for kind, part in value.items()}
    return value if isinstance(value, int) else float(value)


def told(calculator: Any) -> dict[str, Any]:
    goodput, badput, last = calculator.get_job_goodput(True)
    info = calculator._goodput_cache.get_goodput_info()
    details = calculator.get_job_goodput_details()
    deviations = details["step_time_deviation"].values()
    return {
        "total": float(info.total_elapsed_time),
        "percent": {"goodput": float(goodput), **plain(badput)},
        "seconds": {
            "productive": float(info.total_productive_time),
            **plain(info.total_unproductive_time),
        },
        "max_productive_step": last,
        "last_recorded_step": info.last_recorded_step,
        "disruptions": info.number_of_disruptions,
        "ideal_step_time": float(details["ideal_step_time"]),
        "deviations": {
            "steps": len(deviations),
            "sum": math.fsum(deviations),
            "greatest": float(max(deviations)),
        },
    }


def jobs() -> Iterator[tuple[str, int, Job]]:
    for steps in PUBLISHED:
        yield f"published {steps}", steps, published(steps)
    for shape in SHAPES:
        for steps in SIZES:
            if steps <= LARGEST.get(shape, steps):
                yield f"{shape} {steps}", steps, Job(shape, steps)


def answers(steps: int, job: Job, folder: str) -> dict[str, Any]:
    from ml_goodput_measurement import goodput

    log = Log()
    calculator = goodput.GoodputCalculator(job.name, "log", log, cache_dir=folder)
    log.entries += job.run(steps)
    first = told(calculator)
    log.entries += job.run(MORE)
    return {"first": first, "after": told(calculator)}


def main(path: Path) -> None:
    logging.disable(logging.CRITICAL)
    found = {}
    for name, steps, job in jobs():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = answers(steps, job, folder)
        sys.stderr.write(f"{name}\n")
    recorded = {"library": LIBRARY, "version": metadata.version(LIBRARY), "jobs": found}
    path.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
