"""ml-goodput-measurement's command that asks for intervals to leave out."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sdk_programs import program_environment, run_program

BEGIN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
COMMAND = "ml_goodput_measurement.scripts.exclusion_query"
JOB = """
from datetime import datetime, timedelta
from ml_goodput_measurement import goodput
recorder = goodput.GoodputRecorder("job", "goodput_job", True)
begin = datetime.fromisoformat("2026-01-02T03:04:00+00:00")
recorder.record_job_start_time(begin)
recorder.record_step_start_time(0, begin + timedelta(seconds=10))
recorder.record_step_start_time(1, begin + timedelta(seconds=20))
recorder.record_job_end_time(begin + timedelta(seconds=30))
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    place = tmp_path / "runwatch"
    assert run_program(JOB, place).returncode == 0
    return place


def ask(place: Path, *answers: str, gcloud: str = "exit 1") -> subprocess.CompletedProcess[str]:
    programs = place.parent / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "gcloud").write_text(f"#!/bin/sh\n{gcloud}\n")
    (programs / "gcloud").chmod(0o755)
    return subprocess.run(
        [sys.executable, "-m", COMMAND], input="".join(f"{answer}\n" for answer in answers),
        env=program_environment(place, PATH=f"{programs}:/usr/bin:/bin", PROJECT_ID=""),
        text=True, capture_output=True, timeout=100,
    )  # fmt: skip


def intervals(place: Path, *seconds: tuple[float, float]) -> str:
    def when(each: float) -> str:
        return (BEGIN + timedelta(seconds=each)).isoformat().replace("+00:00", "Z")

    file = place.parent / "intervals.json"
    file.write_text(
        json.dumps([{"start_time_utc": when(a), "end_time_utc": when(b)} for a, b in seconds])
    )
    return str(file)


def report(done: subprocess.CompletedProcess[str], said: str = "") -> dict[str, str]:
    assert (done.returncode, done.stderr) == (0, said)
    pairs = [line.rpartition(": ")[::2] for line in done.stdout.splitlines() if ": " in line]
    return {name.rpartition(": ")[2].strip(" :"): value for name, value in pairs}


def test_a_job_without_and_with_an_exclusion(job: Path) -> None:
    whole = report(ask(job, "project", "job", "", gcloud="echo mine"))
    assert (whole["Goodput"], whole["Maximum Productive Step"]) == ("66.67%", "1")
    assert "Total Time Excluded" not in whole and whole["Other/Unknown"] == "33.33%"
    part = report(
        ask(job, "", "", "job", "/no/such", intervals(job, (10, 15)), gcloud="echo mine"),
        "Error: File '/no/such' not found.\n",
    )
    assert (part["Goodput"], part["Total Time Excluded"]) == ("60.00%", "5.00 seconds")


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (("p", "another", ""), "[Analysis Error]"),
        (("p",), "there was no answer to 'Enter Run Name:'"),
        (("p", "job", "BROKEN"), "Error loading JSON file"),
        (("p", "job", "KEYLESS"), "an entry has no 'end_time_utc'"),
    ],
)
def test_what_cannot_be_answered_is_one_line_and_a_code(
    job: Path, answers: tuple[str, ...], says: str
) -> None:
    files: dict[str, Any] = {"BROKEN": "{", "KEYLESS": '[{"start_time_utc": "2026-01-01"}]'}
    for name, text in files.items():
        (job.parent / name).write_text(text)
    done = ask(job, *(str(job.parent / a) if a in files else a for a in answers))
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert says in line
