"""A folder with a Secret in it, as a kubelet mounts one.

Each name is a link to `..data/<name>`, and `..data` is a link to a folder with a date.  A new form
of the Secret is a new folder; then `..data` is replaced in one go, and names that are gone go last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


class MountedSecret:
    """`group`: the pod's fsGroup."""

    def __init__(
        self, place: Path, data: Mapping[str, str], *, mode: int = 0o440, group: int | None = None
    ) -> None:
        self.place = place
        self._mode, self._group, self._forms = mode, group, 0
        place.mkdir()
        place.chmod(0o1777 if group is None else 0o3777)
        self.write(data)

    def write(self, data: Mapping[str, str]) -> None:
        self._forms += 1
        folder = self.place / f"..2026_11_19_09_00_00.{self._forms}"
        folder.mkdir(mode=0o755)
        for name, word in data.items():
            self._put(folder / name, word)
        before = self.place / "..data"
        old = before.resolve() if before.is_symlink() else None
        (self.place / "..data_tmp").symlink_to(folder.name)
        os.rename(self.place / "..data_tmp", before)
        for name in data:
            if not (self.place / name).is_symlink():
                (self.place / name).symlink_to(f"..data/{name}")
        for name in {path.name for path in self.place.iterdir()} - set(data):
            if not name.startswith(".."):
                (self.place / name).unlink()
        if old is not None:
            shutil.rmtree(old)

    def _put(self, file: Path, word: str) -> None:
        file.write_text(word)
        if self._group is not None:
            os.chown(file, -1, self._group)
        file.chmod(self._mode)
