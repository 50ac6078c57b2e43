"""`runwatch profiles` over a directory without a head."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

from runwatch.cli import local_source
from runwatch.cli.__main__ import main

TRACES = Path(__file__).parents[2] / "fixtures" / "profiles"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "profiles" / "llama" / "plugins" / "profile" / "s1"
    folder.mkdir(parents=True)
    shutil.copy(TRACES / "jax.xplane.pb", folder / "gpu-17.xplane.pb")
    return tmp_path / "root"


def run(root: Path, *words: str) -> int:
    return main(["profiles", *words, "--dir", str(root)])


def test_listing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root) == 0
    assert "llama" in capsys.readouterr().out
    assert run(root, "llama", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["profiles"]
    assert (found["session"], found["state"]) == ("s1", "done")
    assert run(root, "nobody") == 1
    assert "nobody" in capsys.readouterr().err


def test_nothing_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    assert "runwatch capture" in capsys.readouterr().out


def test_showing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "show", "llama", "s1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary_state"] == "done" and found["summary"]["traces"]
    assert run(root, "show", "llama", "s1") == 0
    assert "gpu-17.xplane.pb" in capsys.readouterr().out


def test_exporting_keeps_the_layout(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(root, "export", "llama", "s1", str(out)) == 0
    made = out / "plugins" / "profile" / "s1" / "gpu-17.xplane.pb"
    assert made.read_bytes() == (TRACES / "jax.xplane.pb").read_bytes()
    capsys.readouterr()
    assert run(root, "export", "llama", "s1", str(out)) == 2
    assert "--force" in capsys.readouterr().err
    assert run(root, "export", "llama", "s1", str(out), "--force") == 0


@pytest.mark.parametrize("said", ["", "n\n", "maybe\n"])
def test_deleting_asks(
    root: Path, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    assert run(root, "delete", "llama", "s1") == 1
    assert "nothing was deleted" in capsys.readouterr().err
    assert list((root / "profiles").rglob("*.pb"))


def test_deleting(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(root, "delete", "llama", "s1") == 0
    assert "deleted profile s1" in capsys.readouterr().out
    assert not list((root / "profiles").rglob("*.pb"))
    assert run(root, "delete", "llama", "s1", "--yes") == 1


def test_nothing_opens_without_a_server(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "open") == 2
    assert "runwatch ui" in capsys.readouterr().err


def test_the_links_of_a_profile(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = property(lambda _: "http://head:8090", lambda _, name: None)
    monkeypatch.setattr(local_source.LocalSource, "name", served, raising=False)
    assert run(root, "open", "llama") == 0
    assert "s1: http://head:8090/viewers/xprof/" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("show", "llama"), ("delete",), ("list", "a", "b"), ("show", "llama", "../s1")]
)
def test_wrong_words(root: Path, words: tuple[str, ...]) -> None:
    assert run(root, *words) == 2
