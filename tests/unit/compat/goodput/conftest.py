from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.compat.goodput.log import backend
from runwatch.sdk import front, guard
from runwatch.sdk.guard import tally
from tests.unit.leftovers import nothing_is_left

_IDENTITY = ("RUN", "RANK", "WORLD_SIZE", "LOCAL_", "SLURM", "TORCHELASTIC", "GKE_DIAGON", "JOB",
             "OMPI", "PMI", "LWS_", "RAY_", "MASTER_", "PET_", "NODE_RANK", "GROUP_RANK",
             "JAX_PROCESS", "TPU_")  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this test's journals go.  No run, thread, file or hook of ours outlives the test."""
    for name in list(os.environ):
        if name.startswith(_IDENTITY):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path / "runwatch"))
    monkeypatch.setenv("RUNWATCH_AGENT", "off")
    hook = sys.excepthook
    tally.forget()
    front._state.ids.clear()
    front._state.waiting.logged.clear()
    guard.front.edge = front._state.waiting
    yield tmp_path / "runwatch"
    backend.finish_runs()
    front.finish()
    tally.listener = None
    assert sys.excepthook is hook
    nothing_is_left(tmp_path)
