"""The page's types are those of the OpenAPI document."""

from __future__ import annotations

import difflib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "page_types.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page_types", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_types_of_the_api(script: ModuleType) -> None:
    if not script.page_build().has_tools():
        pytest.skip("openapi-typescript is not installed: `python web/build.py test` installs it")
    checked_in, made = script.GENERATED.read_text(), script.generated()
    changed = difflib.unified_diff(
        checked_in.splitlines(), made.splitlines(), "checked in", "made now", lineterm="", n=1
    )
    assert made == checked_in, "\n".join(
        ["a shape of the API changed; `make types` writes the page's types anew:", *changed]
    )


def test_the_page_has_the_words_and_colours_of_the_command_line(script: ModuleType) -> None:
    assert script.TABLES.read_text() == script.tables(), (
        "`make types` writes the page's tables anew"
    )
