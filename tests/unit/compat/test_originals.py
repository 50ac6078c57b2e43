"""Ours have every public name, signature and enum of the originals, of both generations of each,
but for what docs/differences.md lists.

tests/fixtures/*/original-api.json were recorded from the originals' own wheels with
tests/originals.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.originals import Description, differences

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "google_cloud_mldiagnostics": ("mldiagnostics", ["1.0.0", "1.0.10"], 140),
    "ml_goodput_measurement": ("goodput", ["0.0.8", "0.2.3"], 120),
    "cloud_tpu_diagnostics": ("tpu_diagnostics", ["0.1.5"], 20),
}
RECORDED = "the recording"


class Row(NamedTuple):
    """One difference, as the page tells it."""

    package: str
    name: str
    theirs: str
    ours: str
    why: str
    shown_by: str


def rows() -> Iterator[Row]:
    package = ""
    for line in (ROOT / "docs" / "differences.md").read_text().splitlines():
        if line.startswith("## "):
            package = line.removeprefix("## ").strip("` ")
        elif line.startswith("| `"):
            yield Row(package, *(cell.strip().strip("`") for cell in line.strip("|").split(" | ")))


def recorded(folder: str) -> dict[str, Description]:
    text = (ROOT / "tests" / "fixtures" / folder / "original-api.json").read_text()
    releases: dict[str, Description] = json.loads(text)
    return releases


@pytest.mark.parametrize("package", PACKAGES)
def test_the_recording_is_whole(package: str) -> None:
    folder, releases, at_least = PACKAGES[package]
    found = recorded(folder)
    assert list(found) == releases
    names = {(module, name) for release in found.values() for module in release
             for name in release[module]}  # fmt: skip
    assert len(names) >= at_least


@pytest.mark.parametrize("package", PACKAGES)
def test_names_differ_only_as_the_page_says(package: str) -> None:
    found = differences(package, recorded(PACKAGES[package][0]))
    told = {row.name for row in rows() if row.package == package and row.shown_by == RECORDED}
    assert {name: why for name, why in found.items() if name not in told} == {}
    assert told - found.keys() == set(), "no longer a difference"


def test_other_differences_are_shown_by_a_test_that_is_there() -> None:
    others = [row for row in rows() if row.shown_by != RECORDED]
    assert len(others) > 10
    for row in others:
        file, _, test = row.shown_by.partition("::")
        assert test and (ROOT / file).is_file(), row
        assert re.search(rf"def {re.escape(test)}\(", (ROOT / file).read_text()), row


def test_the_page_is_short_and_each_row_says_all() -> None:
    told = list(rows())
    assert all(all(row) for row in told)
    assert len({(row.package, row.name) for row in told}) == len(told)
    for package in {row.package for row in told}:
        assert len([row for row in told if row.package == package]) <= 20


class Theirs:
    def __init__(self, a: int, b: str = "x") -> None: ...
    def go(self, far: bool = True) -> None: ...


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ([["a", "POSITIONAL_OR_KEYWORD", ""], ["b", "POSITIONAL_OR_KEYWORD", "'x'"]], ""),
        ([["a", "POSITIONAL_OR_KEYWORD", ""]], ""),
        ([["b", "POSITIONAL_OR_KEYWORD", "'x'"], ["a", "POSITIONAL_OR_KEYWORD", ""]], "elsewhere"),
        ([["a", "POSITIONAL_OR_KEYWORD", ""], ["b", "POSITIONAL_OR_KEYWORD", "'y'"]], "default"),
        ([["a", "POSITIONAL_OR_KEYWORD", ""], ["c", "POSITIONAL_OR_KEYWORD", ""]], "no parameter"),
        ([["b", "KEYWORD_ONLY", "'x'"]], "wants 'a'"),
    ],
)
def test_a_signature_that_differs_is_seen(asked: Any, why: str) -> None:
    from tests.originals import other_parameters

    assert why in other_parameters(asked, Theirs)
    assert bool(why) == bool(other_parameters(asked, Theirs))
