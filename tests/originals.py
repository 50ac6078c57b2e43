"""What a package offers to its callers, as JSON: modules, functions, classes, enums, values.

`python originals.py PACKAGE VERSION FILE` adds what the PACKAGE found on the path offers to FILE,
under VERSION.  It runs alone, with the standard library only, in the original's environment (with
all that its modules import: of google-cloud-mldiagnostics that is JAX, and PyTorch or an empty
module of its name).  Tests compare our drop-in with that; how far they may differ is in
docs/differences.md.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

Description = dict[str, Any]

LEFT_OUT = ("tests",)
"""The originals' own tests travel in their wheels; nobody imports them."""
WITH_FIELDS = (".src.goodput", ".src.goodput_elastic")


def describe_package(package: str) -> Description:
    """{module, relative to the package: {name: description}}."""
    return {
        module.__name__.removeprefix(package).lstrip("."): describe_module(module, package)
        for module in modules(package)
    }


def modules(package: str) -> Iterator[ModuleType]:
    """Found by their files: some of the originals' folders have no `__init__.py`."""
    root = Path(importlib.import_module(package).__path__[0])
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if not {*parts} & {*LEFT_OUT}:
            name = ".".join((package, *parts)).removesuffix(".__init__")
            yield importlib.import_module(name)


def describe_module(module: ModuleType, package: str) -> Description:
    described = {
        name: describe(value, module, package)
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") or name == "__version__" or is_field(module, name, value)
    }
    return {name: found for name, found in described.items() if found is not None}


def is_field(module: ModuleType, name: str, value: Any) -> bool:
    """A word of a log's format: private, and yet spelled in the tests of its users."""
    return module.__name__.endswith(WITH_FIELDS) and isinstance(value, str) and name[1:].isupper()


def describe(value: Any, module: ModuleType, package: str) -> Description | None:
    """None for what the module merely uses, as it uses other modules."""
    if isinstance(value, ModuleType):
        inside = value.__name__.startswith(f"{package}.") and hasattr(module, "__path__")
        return {"module": value.__name__.removeprefix(f"{package}.")} if inside else None
    if isinstance(value, logging.Logger):
        return {"logger": value.name}
    if isinstance(value, (str, int, float, list, tuple, dict, set, frozenset)):
        return {"value": plain(value)}
    home = str(getattr(value, "__module__", None) or "")
    if home.split(".")[0] != package:
        return None
    if home != module.__name__ and hasattr(value, "__qualname__"):
        return {"is": f"{home.removeprefix(package).lstrip('.')}.{value.__qualname__}"}
    if inspect.isfunction(value):
        return {"parameters": parameters(value)}
    if not inspect.isclass(value):
        return {"methods": methods(value)} if hasattr(type(value), "__module__") else None
    return describe_class(value)


def describe_class(value: type) -> Description:
    if issubclass(value, enum.Enum):
        return {"members": {m.name: m.value for m in value}}
    if issubclass(value, BaseException):
        return {"bases": [base.__name__ for base in value.__mro__ if base is not object]}
    if issubclass(value, dict) and hasattr(value, "__total__"):
        return {"keys": sorted(value.__annotations__)}
    found: Description = {
        "parameters": parameters(value),
        "methods": methods(value),
        "properties": sorted(
            name
            for name, member in inspect.getmembers(value)
            if not name.startswith("_") and isinstance(member, property)
        ),
    }
    if dataclasses.is_dataclass(value):
        found["fields"] = [field.name for field in dataclasses.fields(value)]
    return found


def methods(value: Any) -> Description:
    """Those that are written in Python: a subclass of a built-in type has many more."""
    return {
        name: parameters(member)
        for name, member in inspect.getmembers(value, inspect.isroutine)
        if not name.startswith("_") and hasattr(inspect.unwrap(member), "__code__")
    }


def parameters(function: Any) -> list[list[str]]:
    """[name, kind, default] of each; `self` left out."""
    try:
        given = inspect.signature(function).parameters.values()
    except ValueError:
        return []  # a built-in type's own
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


def plain(value: Any) -> Any:
    """As it is after a journey through JSON, in an order that does not change."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value, str) else shown(value)
    if isinstance(value, dict):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(str(plain(each)) for each in value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (str, int, float, type(None))):
        return value
    return getattr(value, "__qualname__", f"<{type(value).__name__}>")


# ── what ours lacks ──────────────────────────────────────────────────────────────────────────────


def differences(ours: str, releases: Mapping[str, Description]) -> dict[str, str]:
    """{"module.name" or "module.Class.method": what is otherwise} of our package of that name.

    `releases` are in order, the newest last.  What the newest release itself has changed since an
    older one is its shape that counts; but a name that any release has must be there.
    """
    *_, newest = releases.values()
    found: dict[str, str] = {}
    for release in releases.values():
        for module, names in release.items():
            path = f"{ours}.{module}".rstrip(".")
            try:
                home = importlib.import_module(path)
            except ModuleNotFoundError:
                found[module] = "absent"
                continue
            for name, theirs in names.items():
                now = theirs if release is newest else newest.get(module, {}).get(name, theirs)
                found.update(
                    _lacking(f"{module}.{name}".lstrip("."), home, name, theirs, now, ours)
                )
    return found


def _lacking(
    what: str, home: Any, name: str, theirs: Description, now: Description, package: str
) -> Iterator[tuple[str, str]]:
    if not hasattr(home, name):
        yield what, "absent"
        return
    value = getattr(home, name)
    if "module" in theirs:
        if not isinstance(value, ModuleType):
            yield what, "is no module"
    elif "is" in theirs:
        there, _, same = theirs["is"].rpartition(".")
        if value is not getattr(importlib.import_module(f"{package}.{there}"), same, None):
            yield what, f"is not {theirs['is']}"
    elif "logger" in theirs:
        if getattr(value, "name", None) != theirs["logger"]:
            yield what, f"is not the logger {theirs['logger']}"
    elif "value" in now:
        if plain(value) != now["value"]:
            yield what, f"is not {now['value']!r}"
    elif "members" in now:
        members = {member.name: member.value for member in value}
        if members != now["members"] or not {*theirs["members"]} <= {*members}:
            yield what, f"has other members: {members}"
    elif "bases" in theirs:
        if not {*theirs["bases"]} <= {base.__name__ for base in value.__mro__}:
            yield what, "derives from something else"
    elif "keys" in theirs:
        if not {*theirs["keys"]} <= {*value.__annotations__}:
            yield what, "has other keys"
    else:
        yield from _lacking_members(what, value, theirs, now)


def _lacking_members(
    what: str, value: Any, theirs: Description, now: Description
) -> Iterator[tuple[str, str]]:
    if "parameters" in now and (why := other_parameters(now["parameters"], value)):
        yield what, why
    for name in theirs.get("properties", ()):
        if not hasattr(value, name):
            yield f"{what}.{name}", "absent"
    fields = now.get("fields", [])
    ours = [*getattr(value, "__dataclass_fields__", ())]
    if ours[: len(fields)] != fields:
        yield what, "has other fields"
    for name, asked in theirs.get("methods", {}).items():
        if not callable(getattr(value, name, None)):
            yield f"{what}.{name}", "absent"
        elif why := other_parameters(now.get("methods", {}).get(name, asked), getattr(value, name)):
            yield f"{what}.{name}", why


def other_parameters(expected: list[list[str]], function: Any) -> str:
    """Why a call that the original takes would not mean the same here; "" if it would.

    What ours has besides is optional, and what the original wants, ours may have a default for.
    """
    ours = {name: (place, kind, default) for place, (name, kind, default) in
            enumerate(parameters(function))}  # fmt: skip
    for place, (name, kind, default) in enumerate(expected):
        if kind.startswith("VAR_"):
            continue
        if name not in ours:
            return f"has no parameter {name!r}"
        our_place, our_kind, our_default = ours[name]
        if kind == "POSITIONAL_OR_KEYWORD" and (our_place, our_kind) != (place, kind):
            return f"has {name!r} elsewhere"
        if default and our_default != default:
            return f"has another default for {name!r}: {our_default} for {default}"
    asked = {name for name, _, _ in expected}
    for name, (_, kind, default) in ours.items():
        if name not in asked and not kind.startswith("VAR_") and not default:
            return f"wants {name!r}"
    return ""


def main(package: str, version: str, file: str) -> None:
    path = Path(file)
    known = json.loads(path.read_text()) if path.exists() else {}
    known[version] = describe_package(package)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
