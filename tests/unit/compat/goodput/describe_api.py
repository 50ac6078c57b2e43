"""What a package offers to its callers, as JSON: modules, functions, classes, enums.

`python describe_api.py ml_goodput_measurement.src VERSION FILE` adds what the installed original
offers to FILE (tests/fixtures/goodput/original-api.json); a test compares ours with that.  Runs
alone, with the standard library only, in the original's environment.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = (
    "goodput",
    "goodput_utils",
    "goodput_cache",
    "goodput_elastic",
    "goodput_exclusion",
    "exclusion_utils",
    "checkpoint_badput_calculator",
    "gcp_metrics",
    "monitoring",
    "monitoring_elastic",
)

KEEP_FIELDS = ("goodput", "goodput_elastic")

Description = dict[str, Any]


def describe_package(package: str) -> Description:
    found: Description = {}
    for name in MODULES:
        try:
            module = importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError:
            continue  # an older release has fewer
        found[name] = describe_module(module, package)
    return found


def describe_module(module: ModuleType, package: str) -> Description:
    """Its public names that are the package's own, and the log's field names, which are private."""
    found: Description = {}
    for name, value in sorted(vars(module).items()):
        if not name.startswith("_"):
            description = describe(value, module.__name__, package)
        elif not name.startswith("__") and module.__name__.rpartition(".")[2] in KEEP_FIELDS:
            description = {"value": value} if isinstance(value, str) else None
        else:
            description = None
        if description is not None:
            found[name] = description
    return found


def describe(value: Any, module: str, package: str) -> Description | None:
    """None for what the module merely uses."""
    if isinstance(value, (str, int, float)):
        return {"value": value}
    if isinstance(value, ModuleType):
        inside = value.__name__.startswith(f"{package}.")
        return {"module": value.__name__.rpartition(".")[2]} if inside else None
    home = str(getattr(value, "__module__", ""))
    if not home.startswith(f"{package}."):
        return None
    if home != module and hasattr(value, "__qualname__"):
        return {"is": f"{home.removeprefix(package + '.')}.{value.__qualname__}"}
    if inspect.isfunction(value):
        return {"parameters": parameters(value)}
    if not inspect.isclass(value):
        return None
    if issubclass(value, enum.Enum):
        return {"members": {m.name: m.value for m in value}}
    if issubclass(value, dict):
        return {"keys": sorted(value.__annotations__)}
    return describe_class(value)


def describe_class(value: type) -> Description:
    methods = {
        name: parameters(member)
        for name, member in inspect.getmembers(value, inspect.isfunction)
        if not name.startswith("_")
    }
    found: Description = {"parameters": parameters(value), "methods": methods}
    if dataclasses.is_dataclass(value):
        found["fields"] = [field.name for field in dataclasses.fields(value)]
    return found


def parameters(function: Any) -> list[list[str]]:
    """[name, kind, default] of each; `self` left out."""
    given = inspect.signature(function).parameters.values()
    return [
        [p.name, p.kind.name, "" if p.default is p.empty else shown(p.default)]
        for p in given
        if p.name != "self"
    ]


def shown(default: Any) -> str:
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    if dataclasses.is_dataclass(default) or not isinstance(
        default, (str, int, float, bool, type(None), list, tuple, Mapping)
    ):
        return f"<{type(default).__name__}>"
    return repr(default)


def main(package: str, version: str, file: str) -> None:
    path = Path(file)
    known = json.loads(path.read_text()) if path.exists() else {}
    known[version] = describe_package(package)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
