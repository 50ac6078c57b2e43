"""Every GPU of 256 nodes into one head, for as long as it takes to see memory grow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "devices.py"


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_e2_24_sustained_ingest_with_everything_stored_and_flat_memory() -> None:
    """$RUNWATCH_LOAD_MINUTES shortens the hour; of less than five, memory tells nothing."""
    minutes = os.environ.get("RUNWATCH_LOAD_MINUTES", "60")
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--minutes", minutes],
        capture_output=True,
        text=True,
        timeout=60 * float(minutes) + 1800,
        check=False,
    )
    rows = {row[0].strip(): row[1:] for row in _rows(done.stdout)}
    stored, sent = _numbers(rows["points stored / sent"][0])
    assert stored == sent > 0
    for row in ("resident, begin / middle / end", "on disk, a GPU-sample"):
        assert rows[row][-1].strip() == "pass", rows[row]
    most = next(cells for name, cells in rows.items() if name.startswith("270 seconds of a node"))
    assert _numbers(most[1])[0] >= 60_000, most


def _rows(text: str) -> list[list[str]]:
    lines = (line for line in text.splitlines() if line.startswith("| "))
    return [line.strip("|").split("|") for line in lines]


def _numbers(cell: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", cell)]
