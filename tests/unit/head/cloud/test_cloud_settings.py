"""The section [gcp]."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from runwatch.cli.__main__ import main
from runwatch.errors import UsageError
from runwatch.head.cloud.settings import GcpSettings
from runwatch.settings import load


def test_nothing_is_sent_unless_somebody_asks() -> None:
    assert not GcpSettings().logs and not GcpSettings().monitors
    for word in ("false", "off", "no", "0", "False"):
        assert not GcpSettings(logging=word).logs


@pytest.mark.parametrize("word", ["true", "True", "on", "yes", "1"])
def test_true_is_the_project_that_is_named_elsewhere(word: str) -> None:
    settings = GcpSettings(logging=word, monitoring="mine", project="ours")
    assert (settings.logs, settings.logging_project) == (True, "ours")
    assert (settings.monitors, settings.monitoring_project) == (True, "mine")


def test_a_file_the_environment_and_flags(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[gcp]\nlogging = true\nmonitoring = true\nruns = ["llama-*", "eval"]\n'
        "rolling_windows = [600, 3600]\nlocation = 'us-central1-a'\n"
    )
    environ = {"RUNWATCH_DIR": str(tmp_path), "RUNWATCH_GCP_PROJECT": "ours"}
    flags = {"monitoring": "mine", "logging": None}
    loaded = load(GcpSettings, section="gcp", environ=environ, flags=flags)
    assert (loaded.values.logging_project, loaded.values.monitoring_project) == ("ours", "mine")
    assert loaded.values.windows == [600, 3600]
    assert loaded.sources["project"] == "environment RUNWATCH_GCP_PROJECT"
    assert loaded.sources["monitoring"] == "flag"
    assert loaded.values.takes("id", "llama-7b") and loaded.values.takes("eval", "other")
    assert not loaded.values.takes("id", "lama")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"timeout_seconds": 0.0}, "gcp.timeout_seconds is 0.0"),
        ({"retry_seconds": -1.0}, "gcp.retry_seconds is -1.0"),
        ({"interval_seconds": 1.0}, "every 5 s at most"),
        ({"backfill_hours": -1.0}, "gcp.backfill_hours is -1.0"),
        ({"rolling_windows": "1h"}, "gcp.rolling_windows is '1h'"),
        ({"rolling_windows": "0"}, "gcp.rolling_windows is '0'"),
        ({"logging_endpoint": "https://here"}, "without a scheme"),
        ({"logging": "/shared/runs"}, "not a project's id"),
        ({"monitoring": "p", "insecure": True}, "gcp.insecure needs gcp.monitoring_endpoint"),
    ],
)
def test_what_is_wrong_is_said_at_once(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        GcpSettings(**wrong)  # type: ignore[arg-type]


def test_the_page_about_it_names_every_setting() -> None:
    page = (Path(__file__).parents[4] / "docs" / "cloud.md").read_text()
    assert [each.name for each in fields(GcpSettings) if f"`{each.name}`" not in page] == []


def test_the_command_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("RUNWATCH_GCP_LOGGING", "mine")
    assert main(["config", "gcp"]) == 0
    shown = capsys.readouterr().out
    assert "gcp.logging = mine  (from environment RUNWATCH_GCP_LOGGING)" in shown
    assert "gcp.monitoring is not set" in shown
