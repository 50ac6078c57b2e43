"""Our files in a folder: a plain program that is started with them is a run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runwatch.errors import RunwatchError
from runwatch.k8s.files import put
from runwatch.testing import read_stories
from tests.cluster import objects
from tests.unit.k8s.admitted import injected, noted, variables

PROGRAM = """
import mine
from google_cloud_mldiagnostics import machinelearning_run, metrics

run = machinelearning_run(name="train", run_group="g")
metrics.record("loss", 0.5, step=1)
print(mine.WORD, run.name)
"""


def test_a_program_of_the_original_begun_by_the_injected_command_is_a_run(tmp_path: Path) -> None:
    """Its image has neither us nor the original; its own PYTHONPATH stays."""
    place = tmp_path / "files"
    assert put(place) is True
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/mine.py").write_text("WORD = 'mine'")
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    spec = objects.pod_spec(objects.container(command=(sys.executable, "-B", str(script))))
    (container,) = injected(noted(spec, exec="true")).pod["spec"]["containers"]
    command = [each.replace("/var/lib/runwatch-files", str(place)) for each in container["command"]]
    told = variables(container) | {"RUNWATCH_DIR": str(tmp_path / "records"), "POD_NAME": "p-0"}
    told |= {"PYTHONPATH": str(tmp_path / "theirs"), "RUNWATCH_POD_UID": "u-1"}
    told.pop("RUNWATCH_HEAD")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH", "PYTHON"))}
    ran = subprocess.run(command, env=inherited | told, capture_output=True, text=True)
    id = hashlib.sha256(b"c_team_Job_nightly_20261119-060000").hexdigest()
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"mine {id}\n", "")
    (story,) = read_stories(tmp_path / "records")
    assert [scope.run for scope in story.scopes] == [id]
    (started,) = story.bodies("run_start")
    assert (started["pod"], started["container"]) == ("p-0", "trainer")
    assert started["workload"] == "Job/nightly"
    assert story.values("loss") == [0.5] and story.end["status"] == "completed"


def test_what_programs_need_is_there_and_everybody_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        put(tmp_path)
    finally:
        os.umask(before)
    modes = {oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*.py")}
    folders = {oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*") if path.is_dir()}
    assert (modes, folders) == ({"0o644"}, {"0o755"})
    assert (tmp_path / "runwatch/sdk/boot/sitecustomize.py").is_file()
    assert (tmp_path / "runwatch/dropin/google_cloud_mldiagnostics/__init__.py").is_file()
    assert not (tmp_path / "runwatch/head/static").exists()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package of two files in place of ours: what follows is about the putting."""
    ours = tmp_path / "ours"
    (ours / "sdk").mkdir(parents=True)
    (ours / "__init__.py").write_text("one")
    (ours / "sdk/boot.py").write_text("two")
    monkeypatch.setattr("runwatch.k8s.files._OURS", ours)
    monkeypatch.setattr("runwatch.k8s.files.dropin_folders", list)
    return tmp_path / "place"


def test_what_is_there_already_is_not_written_again(few: Path) -> None:
    """The init container is started anew when its pod's sandbox is."""
    assert put(few) is True
    before = {path: path.stat().st_ino for path in few.rglob("*")}
    assert put(few) is False
    assert {path: path.stat().st_ino for path in few.rglob("*")} == before


def test_a_torn_or_older_copy_is_replaced_as_a_whole(few: Path) -> None:
    put(few)
    (few / "runwatch/sdk/boot.py").write_text("torn")
    (few / "runwatch/of_an_older_release.py").write_text("x")
    (few / ".runwatch-left").mkdir()
    assert put(few) is True
    assert (few / "runwatch/sdk/boot.py").read_text() == "two"
    assert not (few / "runwatch/of_an_older_release.py").exists()
    assert [path.name for path in few.iterdir()] == ["runwatch"]


def test_what_else_is_in_the_folder_stays(few: Path) -> None:
    few.mkdir()
    (few / "theirs.txt").write_text("x")
    put(few)
    assert (few / "theirs.txt").read_text() == "x"


def test_a_place_that_is_none_is_named(few: Path) -> None:
    few.write_text("a file")
    with pytest.raises(RunwatchError, match=str(few)):
        put(few)
