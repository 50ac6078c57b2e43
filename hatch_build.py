"""Puts the page into the wheel, and into the source tree for an editable install; and into the
wheel the drop-ins, for `runwatch exec` and `runwatch dropin`.

Node comes from the PATH, or where there is none from a wheel that this hook asks for.  A source
distribution holds the page ready made.  RUNWATCH_WEB=off installs without it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSTALLED_WITH = ("_runwatch_dropin.py", "runwatch_dropin.pth", "pyproject.toml")
"""What `runwatch dropin install` makes the distribution `runwatch-dropin` of, beside packages."""


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        builder = self._builder()
        needed = builder is not None and not builder.is_current() and not builder.node_on_path()
        return [builder.NODE_WHEEL] if builder is not None and needed else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and version == "standard":
            # `runwatch exec` puts these first on the path; an editable install has them beside it.
            dropin = Path(self.root, "dropin")
            parts = [package.parent for package in dropin.glob("*/__init__.py")]
            parts += [dropin / name for name in INSTALLED_WITH]
            for part in parts:
                build_data["force_include"][f"dropin/{part.name}"] = f"runwatch/dropin/{part.name}"
        builder = self._builder()
        if builder is None or builder.is_current():
            return
        self.app.display_info("Building the page (RUNWATCH_WEB=off installs without it) …")
        builder.build()

    def _builder(self) -> ModuleType | None:
        """`web/build.py`; None where there is nothing to build, or it is not wanted."""
        web = Path(self.root, "web")
        if os.environ.get("RUNWATCH_WEB", "").lower() == "off" or not (web / "build.py").exists():
            return None
        sys.path.insert(0, str(web))
        try:
            import build

            return build
        finally:
            sys.path.remove(str(web))
