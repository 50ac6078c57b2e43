"""What is in the repository's first folder: a trial that somebody made there must not stay."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
    "SECURITY.md", "hatch_build.py", "locked.txt", "mkdocs.yml", "pyproject.toml",
}  # fmt: skip
FOLDERS = {
    ".ci", "benchmarks", "deploy", "docs", "dropin", "examples", "scripts", "src", "tests", "web",
}  # fmt: skip


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_nothing_else_is_in_the_first_folder() -> None:
    """A head's log, with its token, once was."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    first = {name.partition("/")[0] for name in names if name}
    assert first - FILES - FOLDERS == set()
