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
PIP = re.compile(r"(?<![\w./-])(?:python3? -m )?pip (?:install|uninstall)\b(?!.* --target )")
"""Refused by the Python of Debian and Ubuntu (PEP 668) unless a virtual environment is active."""
ACTIVATION = re.compile(r"(?:^|&& )\. \S+/bin/activate(?: |$)")
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


def test_pip_lines_are_recognised() -> None:
    assert PIP.search("$ pip install x") and PIP.search("cd x && python3 -m pip install x")
    for other in (".venv/bin/pip install x", "pipx install x", "pip install --target DIR x"):
        assert not PIP.search(other)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_pip_installs_into_a_virtual_environment(document: Path) -> None:
    """A block of commands activates one first; prose leads to the page that does."""
    prose = []
    for number, part in enumerate(re.split(r"^ *```.*$", document.read_text(), flags=re.MULTILINE)):
        if number % 2 == 0:
            prose.append(part)
            continue
        active = False
        for line in part.splitlines():
            active = active or ACTIVATION.search(line.removeprefix("$ ")) is not None
            assert active or not PIP.search(line), f"{document.name}: no environment for {line}"
    text = "".join(prose)
    if document.name != "CHANGELOG.md" and PIP.search("\n".join(re.findall(r"`[^`]+`", text))):
        linked = "README.md#install)" in text or "\n## Install\n" in text
        assert linked, f"{document.name} names pip without a link to how to install"


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
