"""`runwatch config`: every variable that anything reads is listed, and can be copied."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import runwatch
from runwatch.cli.__main__ import main
from runwatch.cli.commands.config import SETTINGS
from runwatch.cli.variables import PROGRAM

SOURCES = Path(runwatch.__file__).parent
DROPIN = SOURCES.parent.parent / "dropin"
NOT_VARIABLES = {"RUNWATCH_VERSION_FIELD_NUMBER"}
"""A name in a generated stub."""


def _listed() -> set[str]:
    settings = {item.metadata.get("env", "") for kind in SETTINGS.values() for item in fields(kind)}
    return {variable.name for variable in PROGRAM} | settings


def test_every_variable_in_the_sources_is_listed() -> None:
    files = [path for folder in (SOURCES, DROPIN) for path in folder.rglob("*.py*")]
    texts = [path.read_text() for path in files if path.suffix in (".py", ".pyi")]
    named = {name for text in texts for name in re.findall(r"\bRUNWATCH_[A-Z0-9_]+\b", text)}
    assert named - NOT_VARIABLES - _listed() == set()


def test_a_variable_is_listed_once() -> None:
    names = [variable.name for variable in PROGRAM]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_names_and_values_stay_whole(
    columns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / ("a-long-name-" * 8)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("RUNWATCH_DIR", str(place))
    monkeypatch.setenv("RUNWATCH_TOKEN", "hush-hush")
    assert main(["config"]) == 0
    said = capsys.readouterr().out
    assert _listed() - {""} <= set(re.findall(r"RUNWATCH_[A-Z0-9_]+", said))
    assert f"head.dir = {place}  (from environment RUNWATCH_DIR)\n" in said
    assert "RUNWATCH_TOKEN = (set)" in said
    assert "hush" not in said
