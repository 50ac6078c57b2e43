"""Puts every package here into a folder of the wheel's own, with the `.pth` file that makes their
names known (`_runwatch_dropin.py` says how).  An editable install has the packages here, and gets
that file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "runwatch_dropin"
START = {"runwatch_dropin.pth": "runwatch_dropin.pth"}


class FolderHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data["force_include_editable"].update(START)
        if version == "standard":
            parts = [package.parent.name for package in Path(self.root).glob("*/__init__.py")]
            parts.append("_runwatch_dropin.py")
            build_data["force_include"].update(START)
            build_data["force_include"].update({part: f"{FOLDER}/{part}" for part in parts})
