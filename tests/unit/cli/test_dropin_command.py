"""`runwatch dropin`: stand-ins that installers accept, and what it says without an installer."""

from __future__ import annotations

import json
import zipfile
from email import message_from_bytes
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from runwatch.cli.__main__ import main
from runwatch.cli.dropins.originals import ORIGINALS, Original
from runwatch.cli.dropins.stand_ins import stand_in

DROPIN = Path(__file__).parents[3] / "dropin"
RECORDED = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "dropin" / "originals.json").read_text()
)


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda each: each.distribution)
def test_a_stand_in_is_a_wheel_with_a_name_and_nothing_else(
    original: Original, tmp_path: Path
) -> None:
    path = stand_in(original).write(tmp_path)
    name, version, build, _ = parse_wheel_filename(path.name)
    assert (name, str(version), build) == (original.distribution, original.version, (1, "runwatch"))
    with zipfile.ZipFile(path) as wheel:
        inside = wheel.namelist()
        wheel.extractall(tmp_path)
    assert {Path(each).parent.suffix for each in inside} == {".dist-info"}
    distribution = PathDistribution(tmp_path / inside[0].split("/")[0])
    assert sorted(map(str, distribution.files or ())) == sorted(inside)
    assert (distribution.name, distribution.version) == (original.distribution, original.version)
    assert list(map(Requirement, distribution.requires or ())) == [Requirement("runwatch-dropin")]
    [metadata] = tmp_path.glob("*.dist-info/METADATA")
    about = message_from_bytes(metadata.read_bytes())
    assert about.get_all("Provides-Extra", []) == list(original.extras)
    assert "There is no code in this distribution" in about.get_payload()
    before = path.read_bytes()
    assert stand_in(original).write(tmp_path).read_bytes() == before


def test_the_versions_are_those_of_the_originals() -> None:
    known = {each.distribution: each.version for each in ORIGINALS}
    assert {name: known[name] for name in RECORDED} == {
        name: about["version"] for name, about in RECORDED.items()
    }


def test_there_are_stand_ins_for_what_the_drop_ins_answer_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dropin", "wheels", str(tmp_path / "new" / "folder"), "--json"]) == 0
    written = [Path(path).name for path in json.loads(capsys.readouterr().out)["wheels"]]
    packages = {path.parent.name for path in DROPIN.glob("*/__init__.py")}
    expected = [each for each in ORIGINALS if each.package in packages]
    assert [parse_wheel_filename(name)[0] for name in written] == [
        "runwatch-dropin", *(each.distribution for each in expected)
    ]  # fmt: skip
    assert len(expected) >= 3


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["dropin", "wheels", str(tmp_path / "file" / "x")]) == 2
    assert f"cannot write into {tmp_path}/file/x: Not a directory" in capsys.readouterr().err


def test_the_path_is_that_of_the_drop_ins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dropin", "path"]) == 0
    assert capsys.readouterr().out == f"{DROPIN}\n"
