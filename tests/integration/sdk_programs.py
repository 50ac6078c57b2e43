"""Running a user's program as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import runwatch

SOURCE = Path(runwatch.__file__).parents[1]
ROOT = Path(__file__).parents[2]


def program_environment(directory: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH", "SLURM", "TORCH"))}
    return {
        **kept,
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT / 'dropin'}",
        "RUNWATCH_AGENT": "off",
        "RUNWATCH_DIR": str(directory),
        **more,
    }


def start_program(text: str, directory: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=program_environment(directory, **environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_program(text: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    process = start_program(text, directory, **environment)
    with process:
        try:
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
