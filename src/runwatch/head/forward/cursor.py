"""The file in which a forwarder keeps how far it has got: one JSON object, written whole.

It is replaced by renaming, so a kill leaves the old one or the new one.  What was sent after the
last writing is sent again by the next head: a service is told so (an id that says "the same
entry", a point's own time).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final

from runwatch.files import Folder, private

VERSION: Final = 1
MOST_BYTES: Final = 256 << 20
logger = logging.getLogger("runwatch.head")


def whole(value: object, otherwise: int = 0) -> int:
    """A number of the file, or what to take if it has none."""
    return value if isinstance(value, int) else otherwise


class CursorFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.problem = ""
        """Why it could not be written last time; empty when it could."""

    def read(self) -> dict[str, Any]:
        """Empty if there is none yet, or none that can be read: then it begins anew."""
        try:
            with Folder.at(self._path.parent) as folder:
                text = folder.text(self._path.name, MOST_BYTES, owners=folder.trusted())
            kept = json.loads(text)
            if not isinstance(kept, dict) or kept.get("version") != VERSION:
                raise ValueError(f"it is not of version {VERSION}")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read, and is begun anew: %s", self._path, error)
            return {}
        return kept

    def write(self, kept: dict[str, Any]) -> bool:
        """Whether there was room for it.  Without it more is sent again after a restart."""
        text = json.dumps({"version": VERSION, **kept}, separators=(",", ":"))
        try:
            private(self._path.parent)
            with Folder.at(self._path.parent) as folder:
                folder.write(self._path.name, text.encode())
        except OSError as error:
            if not self.problem:
                logger.warning("%s is not written: %s", self._path, error.strerror)
            self.problem = str(error.strerror)
            return False
        self.problem = ""
        return True
