"""A wheel, written without a build backend: what `runwatch dropin install` hands to pip or uv."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runwatch._version import __version__

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""As the time of every file: the same content is the same bytes."""
_READABLE: Final = 0o644 << 16


@dataclass(frozen=True, slots=True)
class Wheel:
    """`metadata`: what follows name and version there; `build`: of two wheels of one version,
    installers take the one with the higher build."""

    name: str
    version: str
    metadata: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    build: str = ""

    def write(self, folder: Path) -> Path:
        plain = self.name.replace("-", "_")
        about = f"{plain}-{self.version}.dist-info"
        contents = {**self.files, f"{about}/METADATA": self._metadata()}
        contents[f"{about}/WHEEL"] = self._wheel()
        if self.commands:
            lines = [f"{name} = {target}" for name, target in self.commands.items()]
            text = "\n".join(["[console_scripts]", *lines, ""])
            contents[f"{about}/entry_points.txt"] = text.encode()
        record = "".join(_recorded(path, content) for path, content in contents.items())
        contents[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
        parts = (plain, self.version, self.build, "py3-none-any.whl")
        path = folder / "-".join(part for part in parts if part)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside, content in contents.items():
                entry = zipfile.ZipInfo(inside, _EPOCH)
                entry.external_attr = _READABLE
                archive.writestr(entry, content)
        return path

    def _metadata(self) -> bytes:
        first = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n"
        return (first + self.metadata).encode()

    def _wheel(self) -> bytes:
        build = f"Build: {self.build}\n" if self.build else ""
        return (
            f"Wheel-Version: 1.0\nGenerator: runwatch {__version__}\nRoot-Is-Purelib: true\n"
            f"Tag: py3-none-any\n{build}"
        ).encode()


def _recorded(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(content)}\n"
