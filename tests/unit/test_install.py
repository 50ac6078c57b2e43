"""What `pip install 'runwatch[…]'` brings: every extra that we name exists, and [all] is all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
GROUPS = SETTINGS["dependency-groups"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
NAMED = re.compile(
    r"runwatch(?:-[\w.]+-py3-none-any\.whl)?\[([a-z]+(?:,[a-z]+)*)\]|'\.\[([a-z]+)\]'"
)


def brought(extra: str) -> set[str]:
    """The distributions that an extra asks for, through others that it names."""
    names: set[str] = set()
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == PROJECT["name"]:
            names |= {name for inner in requirement.extras for name in brought(inner)}
        else:
            names.add(requirement.name)
    return names


def test_all_is_all() -> None:
    assert brought("all") == {name for extra in EXTRAS for name in brought(extra)}
    assert {"duckdb", "xprof", "matplotlib", "tensorboardX", "google-cloud-logging"} <= brought(
        "all"
    )


def test_every_extra_that_is_named_exists() -> None:
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/runwatch/**/*.py")]
    texts += [*ROOT.glob("examples/**/*.md"), *ROOT.glob("dropin/**/*.md")]
    named = {
        extra
        for path in texts
        for found in NAMED.finditer(path.read_text())
        for extra in (found[1] or found[2]).split(",")
    }
    assert {"all", "head", "profiles", "plots", "gcp", "tensorboard"} <= named
    assert named <= set(EXTRAS)


def test_the_readme_brings_the_pytorch_that_tests_ask_for() -> None:
    """Another version would be replaced by `make test`, with CUDA."""
    [named] = re.findall(r"--torch-backend cpu (\S+)", (ROOT / "README.md").read_text())
    assert named in GROUPS["test"]


def test_the_readme_names_every_extra() -> None:
    [section] = re.findall(r"## Install\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.DOTALL)
    for extra in EXTRAS:
        assert f"`runwatch[{extra}]`" in section
