"""Where the drop-ins are that Runwatch has with itself, whatever else is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MARK: Final = "_runwatch_dropin.py"
"""A folder with this file in it holds drop-ins of ours."""
DROPIN_SWITCH: Final = "RUNWATCH_DROPIN"
"""off: originals that are installed go first."""
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_FOLDERS: Final = (_PACKAGE / "dropin", _PACKAGE.parents[1] / "dropin")
"""Where a wheel has them, and where a checkout has them."""


def dropin_folders() -> list[Path]:
    return [folder for folder in _FOLDERS if (folder / MARK).is_file()]


def packages_in(folder: Path) -> list[str]:
    """The names that programs import from there; what begins with `runwatch` is our own."""
    names = (path.parent.name for path in folder.glob("*/__init__.py"))
    return sorted(name for name in names if not name.startswith("runwatch"))


def is_ours(origin: str) -> bool:
    """`origin`: the `__init__.py` of a package."""
    return (Path(origin).resolve().parents[1] / MARK).is_file()
