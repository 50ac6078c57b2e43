"""What `make shake` makes late can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRAW = """
import os, sitecustomize
print([sitecustomize._lot.random() for _ in range(3)], flush=True)
for child in range(2):
    if os.fork() == 0:
        print(sitecustomize._lot.random(), flush=True)
        os._exit(0)
    os.wait()
"""


def lots(seed: str, test: str, *arguments: str) -> list[str]:
    environment = {
        "PYTHONPATH": str(ROOT / "tests" / "shaken"),
        "SHAKEN": seed,
        "PYTEST_CURRENT_TEST": test,
    }
    done = subprocess.run(
        [sys.executable, "-c", DRAW, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_seed_repeats_the_lots_of_a_test() -> None:
    first = lots("7", "test_a (call)", "--port", "12345", "/one/folder/head")
    assert first == lots("7", "test_a (call)", "--port", "12999", "/another/head")
    assert len(first) == len(set(first)) == 3
    assert not set(first) & set(lots("8", "test_a (call)"))
    assert not set(first) & set(lots("7", "test_b (call)"))
