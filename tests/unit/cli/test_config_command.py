"""`runwatch config`: every variable that anything reads is listed, and can be copied."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import runwatch
from runwatch.cli.__main__ import main
from runwatch.cli.commands.config import ELSEWHERE, SETTINGS
from runwatch.cli.variables import PROGRAM
from runwatch.errors import UsageError

SOURCES = Path(runwatch.__file__).parent
DROPIN = SOURCES.parent.parent / "dropin"
NOT_VARIABLES = {"RUNWATCH_VERSION_FIELD_NUMBER"}
"""A name in a generated stub."""


def _listed() -> set[str]:
    kinds = (*SETTINGS.values(), *ELSEWHERE.values())
    settings = {item.metadata.get("env", "") for kind in kinds for item in fields(kind)}
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
    assert _listed() - {""} <= set(re.findall(r"[A-Z][A-Z0-9_]+", said))
    assert f"head.dir = {place}  (from environment RUNWATCH_DIR)\n" in said
    assert "RUNWATCH_TOKEN = (set)" in said
    assert "hush" not in said


def test_the_settings_file_that_a_variable_names_is_the_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a container it is mounted beside the directory."""
    file = tmp_path / "mounted" / "settings.toml"
    file.parent.mkdir()
    file.write_text("[head]\npoints_days = 3\n[webhook]\nmode = 'sidecar'\n")
    (tmp_path / "config.toml").write_text("[head]\npoints_days = 7\n")
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("RUNWATCH_CONFIG", str(file))
    assert main(["config"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"settings file: {file}\n")
    assert f"head.points_days = 3.0  (from file {file})" in said
    assert f"webhook.mode = sidecar  (from file {file})" in said
    assert "operator.ttl_seconds = 604800.0" in said, "also where there is no head to be asked"
    monkeypatch.setenv("RUNWATCH_CONFIG", str(tmp_path / "gone.toml"))
    assert main(["config"]) == UsageError.exit_code
    assert f"RUNWATCH_CONFIG names {tmp_path}/gone.toml" in capsys.readouterr().err
