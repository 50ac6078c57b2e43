"""What is installed for the demo is what is locked, and what is locked is what we ask for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["head"]]
LOCKED = re.split(r"\n(?=\S)", (ROOT / "locked.txt").read_text().strip())


def locked() -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for entry in LOCKED:
        requirement = Requirement(entry.partition("\\")[0])
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


@pytest.mark.parametrize("wanted", WANTED)
def test_what_we_need_is_locked_in_a_version_that_we_allow(wanted: str) -> None:
    requirement = Requirement(wanted)
    found = locked()[canonicalize_name(requirement.name)]
    for each in found:
        (version,) = [specifier.version for specifier in each.specifier]
        assert requirement.specifier.contains(version), f"run make lock: {each}"


@pytest.mark.parametrize("entry", LOCKED, ids=lambda entry: str(entry).split("==")[0])
def test_everything_that_is_locked_has_its_hashes(entry: str) -> None:
    assert re.match(r"[a-z0-9-]+==[0-9][^ ]* ", entry)
    hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}(?= |\n|$)", entry)
    assert hashes and len(hashes) == len(set(hashes)) == entry.count("--hash")


@pytest.mark.parametrize("wanted", WANTED)
def test_every_dependency_says_its_oldest_version(wanted: str) -> None:
    """`make oldest` tests with it."""
    assert any(s.operator == ">=" for s in Requirement(wanted).specifier), wanted
