"""`make` without Python's venv: one line names the package that has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_venv.py"


def test_a_missing_venv_module_is_named_with_its_package(tmp_path: Path) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError\n")  # as Debian's Python has it
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "made"],
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},  # no apt-get: root would install it
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    [_, missing] = done.stdout.splitlines()
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert missing.endswith(f"On Debian and Ubuntu: apt-get install {package}")
    assert done.stderr == ""
    assert not (tmp_path / "made").exists()
