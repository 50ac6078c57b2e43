from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))  # for the reader that both kinds of test share

from runwatch.sdk import farewell, front, guard
from runwatch.sdk.guard import tally
from runwatch.sdk.run import Run
from runwatch.testing import Story, read_stories
from tests.unit.leftovers import nothing_is_left

_IDENTITY = ("RUN", "RANK", "WORLD_SIZE", "LOCAL_", "SLURM", "TORCHELASTIC", "GKE_DIAGON", "JOB",
             "OMPI", "PMI", "LWS_", "RAY_", "MASTER_", "PET_", "NODE_RANK", "GROUP_RANK",
             "JAX_PROCESS", "TPU_", "TF_CONFIG")  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where this test's journals go."""
    return tmp_path / "runwatch"


@pytest.fixture(autouse=True)
def nothing_left_behind(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread, file or hook of ours outlives a run; no state goes from test to test."""
    for name in list(os.environ):
        if name.startswith(_IDENTITY):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RUNWATCH_DIR", str(place))
    monkeypatch.setenv("RUNWATCH_AGENT", "off")
    hook = sys.excepthook
    tally.forget()
    front._state.ids.clear()
    front._state.waiting.logged.clear()
    guard.front.edge = front._state.waiting
    yield
    front.finish()
    farewell._forget()  # else the last process of the tests would start agents for these journals
    assert sys.excepthook is hook
    nothing_is_left(place)


@pytest.fixture
def begin() -> Callable[..., Run]:
    return front.init


@pytest.fixture
def story(place: Path) -> Callable[[], Story]:
    """Finish the run and read its journal."""

    def read() -> Story:
        front.finish()
        (only,) = read_stories(place)
        return only

    return read
