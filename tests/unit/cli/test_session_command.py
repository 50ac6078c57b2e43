"""`runwatch session` over a directory without a head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runwatch.cli.__main__ import main


def run(root: Path, *words: str) -> int:
    return main(["session", words[0], "--dir", str(root), *words[1:]])


def test_a_session_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "list") == 0
    assert "no sessions" in capsys.readouterr().out
    assert run(tmp_path, "start", "warmup") == 0
    assert "session warmup" in capsys.readouterr().out
    assert run(tmp_path, "start", "warmup") == 1
    assert "already active" in capsys.readouterr().err
    assert run(tmp_path, "stop", "warmup") == 0
    assert run(tmp_path, "resume", "warmup") == 0
    capsys.readouterr()
    assert run(tmp_path, "list", "--json") == 0
    [session] = json.loads(capsys.readouterr().out)["sessions"]
    assert (session["name"], session["active"], len(session["stretches"])) == ("warmup", True, 2)
    assert run(tmp_path, "list") == 0
    assert "running" in capsys.readouterr().out


def test_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "warmup.json"
    run(tmp_path, "start", "warmup")
    capsys.readouterr()
    assert run(tmp_path, "export", "warmup") == 0
    assert json.loads(capsys.readouterr().out)["session_name"] == "warmup"
    assert run(tmp_path, "export", "warmup", "-o", str(out)) == 0
    assert json.loads(out.read_text())["frames"] == []
    capsys.readouterr()
    assert run(tmp_path, "export", "warmup", "-o", str(out)) == 2
    assert "--force" in capsys.readouterr().err
    assert run(tmp_path, "export", "warmup", "-o", str(out), "--force") == 0


@pytest.mark.parametrize("verb", ["start", "stop", "resume", "export"])
@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 201])
def test_bad_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, name: str
) -> None:
    assert run(tmp_path, verb, name) == 2
    assert "session" in capsys.readouterr().err
