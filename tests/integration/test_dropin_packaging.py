"""Whose code a program gets, whatever is installed over, under or after the drop-ins."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.integration.packages import (
    ORIGINALS,
    ROOT,
    THEIRS,
    Place,
    build_ours,
    wheel,
    write_needs_of,
    write_originals,
)
from tests.integration.status_shape import deviations

pytestmark = pytest.mark.xdist_group("dropin_packaging")

NEEDED = ("google-cloud-mldiagnostics", "ml-goodput-measurement", "cloud-tpu-diagnostics")
DEPENDANT = wheel(
    "maxtext-like",
    "1.0",
    needs=(
        "google-cloud-mldiagnostics>=1.0.10",
        "ml-goodput-measurement>=0.0.15",
        "cloud-tpu-diagnostics>=0.1.5",
    ),
)
NEWER = wheel(
    "google-cloud-mldiagnostics", "1.0.11", files=["google_cloud_mldiagnostics/__init__.py"]
)
WARNING = "runwatch-dropin: "


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an index would have: ours, the originals, and who needs them."""
    folder = tmp_path_factory.mktemp("wheels")
    runwatch, _ = build_ours(folder)
    write_needs_of(runwatch, folder)
    write_originals(folder)
    DEPENDANT.write(folder)
    return folder


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Place:
    """Runwatch and nothing else."""
    place = Place(tmp_path_factory.mktemp("fresh") / "venv", wheels)
    place.pip("install", "-q", "runwatch")
    return place


@pytest.fixture
def place(fresh: Place, tmp_path: Path) -> Iterator[Place]:
    made = fresh.copy(tmp_path / "venv")
    yield made
    shutil.rmtree(made.root)


@pytest.fixture(scope="module")
def ours(fresh: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The drop-ins too.  Tests leave it as it is."""
    place = fresh.copy(tmp_path_factory.mktemp("ours") / "venv")
    place.pip("install", "-q", "runwatch-dropin")
    return place


def names_in(place: Place) -> list[str]:
    """What the installed distribution brings, by its own record."""
    [about] = place.packages.glob("runwatch_dropin-*.dist-info")
    files = PathDistribution(about).files
    assert files is not None
    return sorted({path.parts[1] for path in files if path.match("runwatch_dropin/*/__init__.py")})


def origins(place: Place, names: list[str], **more: str) -> dict[str, str]:
    """The folder of packages that each name is imported from."""
    done = place.run("python", "-c", look_for(names), **more)
    assert (done.returncode, done.stderr) == (0, "")
    return folders(done.stdout)


def look_for(names: list[str]) -> str:
    return (
        "import importlib, json\n"
        f"modules = map(importlib.import_module, {names})\n"
        "print(json.dumps({m.__name__: m.__file__ for m in modules}))"
    )


def folders(said: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(said)
    return {name: str(Path(file).parents[1]) for name, file in found.items()}


def assert_ours(place: Place) -> None:
    """All names are ours, without a word, and pip is content."""
    names = names_in(place)
    assert {"google_cloud_mldiagnostics", "cloud_tpu_diagnostics", "gsprof"} <= set(names)
    expected = str(place.packages / "runwatch_dropin")
    assert origins(place, names) == dict.fromkeys(names, expected)
    assert "No broken requirements" in place.pip("check")


def versions(place: Place) -> dict[str, str]:
    look = (
        "import json; from importlib.metadata import version\n"
        f"print(json.dumps({{name: version(name) for name in {NEEDED}}}))"
    )
    found: dict[str, str] = json.loads(place.done("python", "-c", look))
    return found


def status(place: Place, **more: str) -> dict[str, Any]:
    done = place.run("python", "-m", "runwatch", "status", "--json", **more)
    assert done.stderr == "" and done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    assert list(deviations(answer)) == []
    about = [each for each in answer["attention"] if each["about"] == "dropins"]
    assert (answer["dropins"]["state"] == "broken") == bool(about)
    return {**answer["dropins"], "attention": about}


def is_whole(place: Place, distribution: str) -> bool:
    """Whether its files are the ones that its wheel had."""
    plain = distribution.replace("-", "_")
    [about] = place.packages.glob(f"{plain}-*.dist-info")
    files = PathDistribution(about).files or []
    code = [place.packages / path for path in files if path.suffix == ".py"]
    return bool(code) and all(path.exists() and path.read_text() == THEIRS for path in code)


# ── the orders ─────────────────────────────────────────────────────────────────────────────────


def test_a_dependant_over_ours_is_content_with_the_stand_ins(place: Place) -> None:
    said = place.dropin("install")
    assert "installed: runwatch-dropin, google-cloud-mldiagnostics" in said
    place.pip("install", "-q", "maxtext-like")
    assert_ours(place)
    assert versions(place) == {name: ORIGINALS[name]["version"] for name in NEEDED}
    assert not list(place.packages.glob("ml_goodput_measurement/"))  # no original came
    before = status(place)
    assert before["state"] == "whole" and all(each["stand_in"] for each in before["originals"])
    again = json.loads(place.dropin("install", "--json"))
    assert again == {"installed": [], "kept": []}

    # Somebody wants a newer original: it comes, and changes nothing of ours.
    NEWER.write(place.home)
    place.pip("install", "-q", "--upgrade", "--find-links", str(place.home), NEWER.name)
    assert_ours(place)
    assert versions(place)[NEWER.name] == "1.0.11"
    assert {"name": NEWER.name, "version": "1.0.11", "stand_in": False} in status(place)[
        "originals"
    ]

    place.dropin("uninstall")
    assert is_whole(place, NEWER.name)
    left = {path.name for path in place.packages.glob("*.dist-info")}
    assert not {name for name in left if name.startswith(("runwatch_dropin", "ml_good"))}


@pytest.mark.soak
def test_ours_over_a_dependant_and_the_originals_removed_afterwards(place: Place) -> None:
    place.pip("install", "-q", "maxtext-like", "cloud-diagnostics-xprof")
    place.dropin("install")
    assert_ours(place)
    assert all(is_whole(place, name) for name in NEEDED)
    assert status(place)["state"] == "whole"

    place.pip("uninstall", "-q", "-y", *NEEDED, "cloud-diagnostics-xprof")
    # Both distributions have a command of this name; whoever goes takes it away.
    assert [each["what"].split(":")[0] for each in status(place)["attention"]] == [
        "the command xprofiler is gone"
    ]
    place.dropin("install")
    assert status(place)["state"] == "whole"
    assert_ours(place)
    assert versions(place) == {name: ORIGINALS[name]["version"] for name in NEEDED}


def test_a_dependant_after_ours_brings_originals_that_are_not_imported(place: Place) -> None:
    place.pip("install", "-q", "runwatch-dropin")
    place.pip("install", "-q", "maxtext-like")
    assert_ours(place)
    all_names, names = names_in(place), [name.replace("-", "_") for name in NEEDED]
    theirs = dict.fromkeys(names, str(place.packages))
    assert origins(place, names, RUNWATCH_DROPIN="off") == theirs
    assert status(place, RUNWATCH_DROPIN="off")["state"] == "off"

    place.pip("uninstall", "-q", "-y", "runwatch-dropin")
    assert origins(place, names) == theirs
    assert all(is_whole(place, name) for name in NEEDED)
    # The way that needs no drop-in installed.
    folder = place.runwatch("dropin", "path").strip()
    assert folder == str(place.packages / "runwatch" / "dropin")
    said = place.runwatch("exec", "--", "python", "-c", look_for(all_names))
    assert folders(said) == dict.fromkeys(all_names, folder)
    assert set(origins(place, names, PYTHONPATH=folder).values()) == {folder}


# ── what is said, and what is not ──────────────────────────────────────────────────────────────


def in_front(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(THEIRS)
    return folder


def test_a_foreign_package_in_front_is_said_once(ours: Place, tmp_path: Path) -> None:
    folder = in_front(tmp_path, "ml_goodput_measurement", "cloud_tpu_diagnostics")
    look = (
        "import subprocess, sys, ml_goodput_measurement as m, cloud_tpu_diagnostics, gsprof\n"
        "subprocess.run([sys.executable, '-c', 'import ml_goodput_measurement'], check=True)\n"
        "print(m.WHOSE)"
    )
    done = ours.run("python", "-W", "error", "-c", look, PYTHONPATH=str(folder))
    assert (done.returncode, done.stdout) == (0, "theirs\n")
    assert done.stderr.count(WARNING) == 1
    assert f"takes {folder}/ml_goodput_measurement/__init__.py, not the drop-in" in done.stderr
    assert "runwatch exec" in done.stderr and "RUNWATCH_DROPIN=off" in done.stderr
    found = status(ours, PYTHONPATH=str(folder))
    assert [each["what"].split("`")[1] for each in found["attention"]] == [
        "import cloud_tpu_diagnostics",
        "import ml_goodput_measurement",
    ]
    said = ours.runwatch(
        "exec", "--", "python", "-c",
        "import ml_goodput_measurement as m; print(m.__file__)", PYTHONPATH=str(folder),
    )  # fmt: skip
    assert "runwatch/dropin" in said


def test_beside_the_script_too(ours: Place, tmp_path: Path) -> None:
    in_front(tmp_path, "cloud_tpu_diagnostics")
    (tmp_path / "train.py").write_text("import cloud_tpu_diagnostics as m; print(m.WHOSE)")
    done = ours.run("python", str(tmp_path / "train.py"))
    assert done.stdout == "theirs\n" and done.stderr.count(WARNING) == 1


def test_what_is_in_order_is_silent(ours: Place, tmp_path: Path) -> None:
    def said(cwd: str = "", **more: str) -> str:
        look = "import xprofiler, ml_goodput_measurement as m; print(m.__file__)"
        done = ours.run("python", "-W", "error", "-c", look, cwd=cwd, **more)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    # A folder with files of the program, of a name of ours.
    (tmp_path / "xprofiler").mkdir()
    assert "runwatch_dropin" in said(cwd=str(tmp_path))
    # Another copy of ours in front.
    assert str(ROOT / "dropin") in said(PYTHONPATH=str(ROOT / "dropin"))
    # The user's will.
    folder = in_front(tmp_path / "front", "ml_goodput_measurement")
    assert str(folder) in said(PYTHONPATH=str(folder), RUNWATCH_DROPIN="off")
    # Nobody reads what we say.
    closed = "import os, sys; os.close(2); import ml_goodput_measurement as m; print(m.WHOSE)"
    assert ours.done("python", "-c", closed, PYTHONPATH=str(folder)) == "theirs\n"
    nobody = "import sys; sys.stderr = None; import ml_goodput_measurement as m; print(m.WHOSE)"
    assert ours.done("python", "-c", nobody, PYTHONPATH=str(folder)) == "theirs\n"


def test_without_runwatch_the_original_serves_and_it_is_said(ours: Place, tmp_path: Path) -> None:
    hidden = tmp_path / "runwatch"
    original = in_front(ours.packages, "cloud_tpu_diagnostics") / "cloud_tpu_diagnostics"
    (ours.packages / "runwatch").rename(hidden)
    try:
        done = ours.run("python", "-c", "import cloud_tpu_diagnostics as m; print(m.WHOSE)")
    finally:
        hidden.rename(ours.packages / "runwatch")
        shutil.rmtree(original)
    assert done.stdout == "theirs\n"
    assert done.stderr.count(WARNING) == 1 and "pip install runwatch" in done.stderr


def test_a_python_starts_with_no_more_than_it_needs(ours: Place) -> None:
    loaded = ours.done("python", "-c", "import sys; print(*sys.modules)").split()
    assert "_runwatch_dropin" in loaded
    assert not {"runwatch", "importlib.util", "importlib.metadata", "re"} & set(loaded)


# ── damage ─────────────────────────────────────────────────────────────────────────────────────


def test_files_that_are_gone(ours: Place, tmp_path: Path) -> None:
    package = ours.packages / "runwatch_dropin" / "cloud_tpu_diagnostics"
    package.rename(tmp_path / "away")
    try:
        found = status(ours)
        said = ours.run("python", "-m", "runwatch", "status")
    finally:
        (tmp_path / "away").rename(package)
    assert len(found["missing"]) > 5 and len(found["attention"]) == 1
    assert said.returncode == 1
    assert re.search(r"files of runwatch-dropin are gone: .*/cloud_tpu_diagnostics/", said.stdout)
    assert "`runwatch dropin install` installs it again" in said.stdout
    assert status(ours)["state"] == "whole"


def test_an_image_without_bytecode_is_whole(ours: Place) -> None:
    """A script whose first line was changed is ours still."""
    for cache in ours.packages.rglob("__pycache__"):
        shutil.rmtree(cache)
    script = ours.root / "bin" / "gsprof"
    before = script.read_text()
    script.write_text(before.replace(before.splitlines()[0], "#!/usr/bin/env python3"))
    try:
        assert status(ours)["state"] == "whole"
    finally:
        script.write_text(before)


def test_a_command_of_somebody_else(ours: Place) -> None:
    script = ours.root / "bin" / "xprofiler"
    before = script.read_text()
    script.write_text("#!/bin/sh\nexec true\n")
    try:
        [problem] = status(ours)["attention"]
    finally:
        script.write_text(before)
    assert problem["what"] == f"the command xprofiler is another one: {script}"


def test_a_folder_that_nobody_may_write(ours: Place) -> None:
    subprocess.run(["chmod", "-R", "a-w", str(ours.packages)], check=True)
    try:
        names = names_in(ours)
        expected = str(ours.packages / "runwatch_dropin")
        assert origins(ours, names) == dict.fromkeys(names, expected)
        assert status(ours)["state"] == "whole"
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(ours.packages)], check=True)


def test_no_installer_at_all(ours: Place) -> None:
    done = ours.run("python", "-m", "runwatch", "dropin", "install")
    assert done.returncode == 2 and "has no pip, and there is no uv" in done.stderr
    written = ours.runwatch("dropin", "wheels", "stand-ins").split()
    assert {Path(path).name.split("-")[0] for path in written} >= {
        name.replace("-", "_") for name in NEEDED
    }
    assert all((ours.home / path).exists() for path in written)


# ── our own wheels ─────────────────────────────────────────────────────────────────────────────


def test_every_package_of_the_checkout_is_in_both_wheels(ours: Place) -> None:
    names = sorted(path.parent.name for path in ROOT.glob("dropin/*/__init__.py"))
    assert names_in(ours) == names
    folder = ours.packages / "runwatch" / "dropin"
    assert sorted(path.parent.name for path in folder.glob("*/__init__.py")) == names


def test_the_wheel_that_runwatch_makes_is_the_one_that_is_built(ours: Place) -> None:
    written = ours.runwatch("dropin", "wheels", "made").split()
    [made] = [ours.home / path for path in written if "runwatch_dropin" in path]
    [built] = ours.wheels.glob("runwatch_dropin-*.whl")
    assert made.name == built.name
    inside = [contents(path) for path in (made, built)]
    [own, backend] = [
        {name: text for name, text in each.items() if ".dist-info/" not in name} for each in inside
    ]
    assert own == backend
    commands = [re.findall(rb"^\w+ = \S+$", _of(each, "entry_points.txt"), re.M) for each in inside]
    assert commands[0] and sorted(commands[0]) == sorted(commands[1])
    told = [message_from_bytes(_of(each, "METADATA")) for each in inside]
    for field in ("Name", "Version", "Summary", "License-Expression", "Requires-Python"):
        assert told[0][field] == told[1][field], field
    needs = [set(map(Requirement, each.get_all("Requires-Dist", ()))) for each in told]
    assert needs[0] == needs[1]


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _of(inside: dict[str, bytes], name: str) -> bytes:
    [text] = [text for path, text in inside.items() if path.endswith(f".dist-info/{name}")]
    return text


def test_no_file_of_ours_is_where_an_original_has_one(ours: Place) -> None:
    [about] = ours.packages.glob("runwatch_dropin-*.dist-info")
    mine = {str(path) for path in PathDistribution(about).files or ()}
    theirs = {path for each in ORIGINALS.values() for path in each["files"]}
    assert mine and not mine & theirs


# ── slow: with what an index has, other ways to install, other Pythons ─────────────────────────


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The originals' own wheels."""
    folder = tmp_path_factory.mktemp("real")
    exactly = [f"{name}=={about['version']}" for name, about in ORIGINALS.items()]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    subprocess.run([*command, *exactly], check=True, timeout=100)
    return [str(path) for path in folder.glob("*.whl")]


def assert_names_are_ours(place: Place) -> None:
    names = names_in(place)
    assert set(origins(place, names).values()) == {str(place.packages / "runwatch_dropin")}


@pytest.mark.soak
def test_the_originals_themselves(place: Place, real: list[str]) -> None:
    place.pip("install", "-q", "runwatch-dropin")
    place.pip("install", "-q", "--no-deps", *real)
    assert_names_are_ours(place)
    place.dropin("install")
    assert status(place)["state"] == "whole"
    place.pip("uninstall", "-q", "-y", *ORIGINALS)
    place.dropin("install")
    assert status(place)["state"] == "whole"
    assert_ours(place)
    place.pip("install", "-q", "--no-deps", "--force-reinstall", *real)
    assert_names_are_ours(place)


@pytest.mark.soak
def test_stand_ins_without_the_drop_in_are_told(place: Place) -> None:
    place.dropin("install")
    place.pip("uninstall", "-q", "-y", "runwatch-dropin")
    checked = place.run("python", "-m", "pip", "check", PYTHONPATH=str(place.tools))
    assert checked.returncode == 1
    assert "requires runwatch-dropin, which is not installed" in checked.stdout
    [problem] = status(place)["attention"]
    assert "are only stand-ins" in problem["what"] and "pip uninstall" in problem["todo"]
    place.dropin("install")
    assert_ours(place)


@pytest.mark.soak
def test_uv(place: Place, tmp_path: Path) -> None:
    tools = tmp_path / "uv"
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tools), "uv"]
    subprocess.run(command, check=True, timeout=100)
    place.environment["PATH"] = f"{tools / 'bin'}:{place.environment['PATH']}"
    offline = ("install", "--no-index", "--find-links", str(place.wheels))

    def uv(*words: str) -> None:
        python = str(place.root / "bin" / "python")
        command = [str(tools / "bin" / "uv"), "pip", *words, "-q", "--python", python]
        subprocess.run(command, env=place.environment, check=True, timeout=100)

    uv(*offline, "maxtext-like", "runwatch-dropin")
    assert_names_are_ours(place)
    assert all(is_whole(place, name) for name in NEEDED)
    uv("uninstall", *NEEDED)
    assert "installed: google-cloud-mldiagnostics" in place.runwatch("dropin", "install")
    uv(*offline, "maxtext-like")
    uv("check")
    assert_ours(place)
    place.runwatch("dropin", "uninstall")
    assert not list(place.packages.glob("*mldiagnostics*"))


@pytest.mark.soak
def test_an_editable_install(place: Place) -> None:
    place.pip("install", "-q", "maxtext-like")
    command = [sys.executable, "-m", "pip", "--python", str(place.root / "bin" / "python")]
    editable = [*command, "install", "-q", "--no-deps", "-e", str(ROOT / "dropin")]
    subprocess.run(editable, check=True, timeout=100)
    names = sorted(path.parent.name for path in ROOT.glob("dropin/*/__init__.py"))
    assert set(origins(place, names).values()) == {str(ROOT / "dropin")}
    found = status(place)
    assert (found["state"], found["directory"]) == ("whole", str(ROOT / "dropin"))


@pytest.mark.soak
def test_a_folder_beside_the_environment(place: Place, tmp_path: Path) -> None:
    """`pip install --target`: the originals stay where they are, and as they are."""
    place.pip("install", "-q", "maxtext-like")
    names = [name.replace("-", "_") for name in NEEDED]
    for distribution, folder in (
        ("runwatch", "runwatch/dropin"),
        ("runwatch-dropin", "runwatch_dropin"),
    ):
        target = tmp_path / distribution
        place.pip("install", "-q", "--target", str(target), distribution)
        paths = f"{target / folder}:{target}"
        assert set(origins(place, names, PYTHONPATH=paths).values()) == {str(target / folder)}
    assert all(is_whole(place, name) for name in NEEDED)


def python_of(minor: int) -> str:
    name = f"python3.{minor}"
    shelves = [None, *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin")]
    for found in (shutil.which(name, path=shelf) for shelf in shelves):
        if found and subprocess.run([found, "-V"], capture_output=True).returncode == 0:
            return found
    pytest.skip(f"no {name} (pyenv install 3.{minor})")


@pytest.mark.soak
@pytest.mark.parametrize("minor", [12, 13, 14])
def test_another_python(minor: int, wheels: Path, tmp_path: Path) -> None:
    python = python_of(minor)
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    place = Place(tmp_path / "venv", wheels)
    place.pip("install", "-q", "maxtext-like", "runwatch-dropin")
    assert_ours(place)
    assert status(place)["state"] == "whole"


@pytest.mark.soak
@pytest.mark.parametrize("minor", [8, 9, 10])
def test_a_python_that_is_too_old_for_us_runs_what_it_has(
    minor: int, ours: Place, tmp_path: Path
) -> None:
    folder = in_front(tmp_path, "cloud_tpu_diagnostics")
    look = "import cloud_tpu_diagnostics as m; print(m.WHOSE)"
    said = ours.runwatch("exec", "--", python_of(minor), "-c", look, PYTHONPATH=str(folder))
    assert said == "theirs\n"
