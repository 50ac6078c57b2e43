from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import sampled

ROOT = Path(__file__).parents[2]
SUITE = """
import subprocess, sys, time, pytest
BUSY = "import time\\nwhile time.process_time() < 0.5: pass"
def test_own_time():
    end = time.process_time() + 0.5
    while time.process_time() < end: pass
def test_time_of_a_child():
    subprocess.run([sys.executable, "-c", BUSY])
@pytest.fixture
def slow():
    yield
    subprocess.run([sys.executable, "-c", BUSY])
def test_time_of_a_fixture(slow): pass
"""
SKIPPED = """
import pytest
needs_browser = pytest.mark.skipif(True, reason="no browser (apt-get install chromium)")
@needs_browser
def test_one(): pass
@needs_browser
def test_two(): pass
def test_three(): pytest.skip("only root may mount")
"""


@pytest.mark.parametrize("workers", sampled(["2", "0"], 1))
def test_costs_of_folders_and_reasons_of_skips(tmp_path: Path, workers: str) -> None:
    for name, text in {"busy/test_a.py": SUITE, "idle/b/test_b.py": SKIPPED}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.time_report", "-p", "xdist", "-n", workers],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    *_, busy, idle, skipped, closing = done.stdout.splitlines()
    seconds = float(busy.split()[0])
    assert re.fullmatch(r" +[\d.]+ +[\d.]+ +3  busy", busy) and seconds >= 1.5
    assert re.fullmatch(r" +[\d.]+ +[\d.]+ +3  idle/b", idle)
    assert skipped == ("skipped 3: 2 no browser (apt-get install chromium); 1 only root may mount")
    assert " 3 passed, 3 skipped in " in closing
    by_test = json.loads((tmp_path / ".pytest_cache/v/runwatch/cpu_seconds").read_text())
    assert by_test["busy/test_a.py::test_own_time"] >= 0.5 and len(by_test) == 6
