"""`runwatch-dropin` as a wheel, of the drop-ins that Runwatch has with itself.

So installing them asks no index and builds nothing, and their version is the one that belongs to
this Runwatch.  A test compares it with what `dropin/hatch_build.py` makes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from runwatch.cli.dropins.wheels import Wheel
from runwatch.launcher.dropins import MARK

START: Final = "runwatch_dropin.pth"
_INSIDE: Final = "runwatch_dropin"
_KINDS: Final = (".py", ".typed")


def dropin_wheel(folder: Path) -> Wheel:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    files = {f"{_INSIDE}/{path.relative_to(folder)}": path.read_bytes() for path in _files(folder)}
    files[START] = (folder / START).read_bytes()
    return Wheel(
        name=project["name"],
        version=project["version"],
        metadata="\n".join([*_metadata(project), ""]),
        files=files,
        commands=project["scripts"],
    )


def _files(folder: Path) -> Iterator[Path]:
    yield folder / MARK
    for start in sorted(folder.glob("*/__init__.py")):
        for path in sorted(start.parent.rglob("*")):
            if path.suffix in _KINDS:
                yield path


def _metadata(project: dict[str, Any]) -> Iterator[str]:
    yield f"Summary: {project['description']}"
    yield f"License-Expression: {project['license']}"
    yield f"Requires-Python: {project['requires-python']}"
    for need in project["dependencies"]:
        yield f"Requires-Dist: {need}"
    for extra, needs in project["optional-dependencies"].items():
        yield f"Provides-Extra: {extra}"
        for need in needs:
            yield f"Requires-Dist: {need}; extra == '{extra}'"
