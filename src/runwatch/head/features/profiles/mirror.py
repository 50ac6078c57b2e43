"""A local copy of the profiles at a URL: viewers read files, object stores have none."""

from __future__ import annotations

import importlib
import logging
import threading
from pathlib import Path
from typing import Any, Final

from runwatch.errors import UsageError
from runwatch.files import private
from runwatch.head.state.profile_files import kind_of

ROUND_SECONDS: Final = 30.0
logger = logging.getLogger("runwatch.head")


class Mirror:
    """`with Mirror(url, folder)`: the folder has what the URL has, and follows it."""

    def __init__(self, url: str, folder: Path, *, round_seconds: float = ROUND_SECONDS) -> None:
        self.folder = folder
        self._url = url
        self._round_seconds = round_seconds
        self._system, self._root = _reached(url)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="runwatch-mirror", daemon=True)

    def __enter__(self) -> Mirror:
        private(self.folder)
        self.round()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def round(self) -> int:
        """Copy what is new; how many files that was."""
        try:
            files: dict[str, Any] = self._system.find(self._root, detail=True)
        except OSError as error:
            raise UsageError(f"cannot list {self._url}: {error}") from error
        return sum(self._copy(path, int(about.get("size") or 0)) for path, about in files.items())

    def _copy(self, path: str, size: int) -> bool:
        parts = path.removeprefix(self._root).strip("/").split("/")
        if kind_of(parts[-1]) == "other" or any(p.startswith(".") or not p for p in parts):
            return False
        target = self.folder.joinpath(*parts)
        if target.exists() and target.stat().st_size == size:
            return False
        private(target.parent)
        # Not `files.written`: the drivers of object stores write to a name, not into an open file.
        part = target.with_name(f".{target.name}.part")
        self._system.get_file(path, str(part))
        part.chmod(0o600)
        part.replace(target)
        return True

    def _follow(self) -> None:
        while not self._closing.wait(self._round_seconds):
            try:
                self.round()
            except (UsageError, OSError) as error:
                logger.warning("profiles at %s are not followed now: %s", self._url, error)


def _reached(url: str) -> tuple[Any, str]:
    try:
        fsspec: Any = importlib.import_module("fsspec")
        system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"cannot reach {url}: {error} (pip install 'runwatch[profiles]')"
        ) from None
    return system, str(root)
