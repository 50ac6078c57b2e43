"""What the documents name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import runwatch

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/**/README.md"))
    if not any(p.startswith(".") or p == "node_modules" for p in path.relative_to(ROOT).parts)
)
ROOMS = ("src/", "tests/", "docs/", "examples/", "benchmarks/", "dropin/", "scripts/")
SHORT = ("journal/", "sdk/", "agent/", "store/", "head/", "wire/", "views/", "ship/", "cli/")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_paths_and_links_exist(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith(("http:", "https:")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
    for name in re.findall(r"`([\w./-]+/[\w./-]*)`", text):
        if name.startswith(ROOMS):
            there = (ROOT / name).exists() or (document.parent / name).exists()
            assert there, f"{document.name} names {name}"
        elif name.startswith(SHORT) and name.endswith(".py"):
            assert (ROOT / "src/runwatch" / name).exists(), f"{document.name} names {name}"


def test_the_front_page_names_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "$ make demo" in text
    assert "$ make test" in text


def test_the_tests_of_old_defects_exist() -> None:
    document = ROOT / "tests/integration/README.md"
    named = re.findall(r"`([\w./]+\.py)::(test_\w+)`", document.read_text())
    assert len(named) > 50
    for file, test in named:
        assert f"\ndef {test}(" in (document.parent / file).read_text(), f"{file}::{test}"


def test_the_python_reference_has_every_offered_name() -> None:
    told = set(re.findall(r"[\w.]+", (ROOT / "docs/reference/python.md").read_text()))
    last = {word.rpartition(".")[2] for word in told}
    assert set(runwatch.__all__) - {"__version__"} - last == set()


def test_every_original_and_neighbour_has_a_page_for_those_who_come_from_it() -> None:
    """Each shows a before and an after, and says what is different on purpose."""
    folder = ROOT / "docs/coming-from"
    listed = re.findall(r"\]\((\w[\w-]*\.md)\)", (folder / "README.md").read_text())
    assert sorted(listed) == sorted(p.name for p in folder.glob("*.md") if p.name != "README.md")
    for page in listed:
        text = (folder / page).read_text()
        assert "\n## Before and after\n" in text, page
        assert "\n## What is different on purpose\n" in text, page
