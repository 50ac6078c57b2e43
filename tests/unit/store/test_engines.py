"""The table of engines: one line each, opened by name, imported when opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runwatch.errors import UsageError
from runwatch.head.main import LocalHead, LocalSettings
from runwatch.store.engines import ENGINES, USUAL, engine_in_use, open_store


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_opens_by_its_name_and_says_it(name: str, tmp_path: Path) -> None:
    for directory in (None, tmp_path / "store"):
        store = open_store(name, directory)
        try:
            assert store.health().engine == name
        finally:
            store.close()


def test_the_usual_engine_is_in_use_unless_the_settings_name_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert engine_in_use() == USUAL
    monkeypatch.setenv("RUNWATCH_STORE_ENGINE", "clay")
    with pytest.raises(UsageError, match="no store engine 'clay'; there is duckdb"):
        engine_in_use()


def test_a_head_refuses_an_engine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no store engine 'clay'"):
        LocalHead(tmp_path, settings=LocalSettings(engine="clay"))


def test_the_table_alone_imports_no_engine() -> None:
    program = """
import sys
import runwatch.store.engines
assert not {"duckdb", "numpy"} & set(sys.modules), "the table imports an engine"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
