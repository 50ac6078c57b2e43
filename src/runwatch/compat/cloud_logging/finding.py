"""How Python finds `google.cloud.logging`: Google's own if it is installed, else the stand-in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Final

from runwatch.compat.cloud_logging.account import SWITCH
from runwatch.sdk.auto import Finder
from runwatch.sdk.switches import is_off

CLIENT: Final = "google.cloud.logging_v2.client"
FOLDERS: Final = ("google", "google.cloud")
STANDINS: Final = ("google.cloud.logging", "google.cloud.logging_v2")

Find = Callable[[str, Sequence[str] | None], ModuleSpec | None]


def found(name: str, path: Sequence[str] | None, others: Find) -> ModuleSpec | None:
    """`others` asks the finders that come after ours; theirs comes first."""
    if is_off(SWITCH):
        return None
    if name == CLIENT:
        return _watching.find_spec(name, path)
    spec = others(name, path)
    if spec is not None:
        return spec
    if name in FOLDERS:
        return _folder(name)
    return _standin(name) if name in STANDINS else None


def _loaded(name: str) -> None:
    from runwatch.compat.cloud_logging.real import adapt

    adapt(sys.modules[name])


_watching: Final = Finder({CLIENT}, _loaded)


def _folder(name: str) -> ModuleSpec:
    """Where no package of Google's is installed, there is not even `google`."""
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = []
    return spec


def _standin(name: str) -> ModuleSpec | None:
    folder = Path(__file__).parent / "standin"
    return spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )


def look() -> None:
    """Google's client, if it was loaded before."""
    if CLIENT in sys.modules and not is_off(SWITCH):
        _loaded(CLIENT)
