from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.imports.reading import Bench


@pytest.fixture
def bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bench:
    for name in ("RUNWATCH_HEAD", "RUNWATCH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path / "nowhere"))
    return Bench(tmp_path, capsys)
