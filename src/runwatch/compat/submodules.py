"""Modules of a package that are loaded when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def submodules(
    package: str, *names: str
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package: the originals load all they have at once,
    and programs reach into it without an import of their own."""

    def get(name: str) -> ModuleType:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get, listed
