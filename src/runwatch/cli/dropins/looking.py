"""What a program of this Python gets under the names of the originals.

Nothing is imported here: Python is asked where it would find each name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from runwatch.cli.dropins.originals import DROPIN, ORIGINALS, Installed, installed
from runwatch.launcher.dropins import DROPIN_SWITCH, MARK, is_ours, packages_in
from runwatch.sdk.switches import is_off

_SAID: Final = "RUNWATCH_DROPIN_SAID"
_SCRIPT_BYTES: Final = 8192
_NEEDED: Final = (".py", ".pth")


@dataclass(frozen=True, slots=True)
class Name:
    """What a program can import; `origin`: the file that Python finds, "" if none."""

    name: str
    origin: str
    ours: bool


@dataclass(frozen=True, slots=True)
class Command:
    """`state`: ours, missing, or other: a script of this name that does not lead to us.
    `owner`: whose that is, if it can be told."""

    name: str
    path: str
    state: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Dropins:
    """`version`: None if `runwatch-dropin` is not installed."""

    version: str | None
    editable: str
    """The folder that it was installed from with -e; "" otherwise."""
    folder: Path | None
    """None also if it is installed, but Python does not find it."""
    names: tuple[Name, ...]
    commands: tuple[Command, ...]
    missing: tuple[str, ...]
    originals: tuple[Installed, ...]
    off: bool

    @property
    def strangers(self) -> tuple[Name, ...]:
        """What others have put in front."""
        return tuple(name for name in self.names if name.origin and not name.ours)

    @property
    def lost_commands(self) -> tuple[Command, ...]:
        return tuple(command for command in self.commands if command.state != "ours")

    @property
    def is_damaged(self) -> bool:
        """Whether installing it again mends something."""
        lost = self.missing or self.lost_commands or self.folder is None
        return self.version is not None and bool(lost)

    @property
    def stand_ins(self) -> tuple[Installed, ...]:
        return tuple(each for each in self.originals if each.stand_in)

    @property
    def beside(self) -> tuple[Installed, ...]:
        """Originals that are installed."""
        return tuple(each for each in self.originals if not each.stand_in)


def look() -> Dropins:
    with _unsaid():
        return _look()


@contextmanager
def _unsaid() -> Iterator[None]:
    """The drop-in says nothing about names that are not its own: we are about to."""
    before = os.environ.get(_SAID)
    os.environ[_SAID] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAID]
        else:
            os.environ[_SAID] = before


def _look() -> Dropins:
    found = tuple(each for original in ORIGINALS if (each := installed(original)) is not None)
    off = is_off(DROPIN_SWITCH)
    try:
        distribution = Distribution.from_name(DROPIN)
    except PackageNotFoundError:
        return Dropins(None, "", None, (), (), (), found, off)
    folder = _folder()
    return Dropins(
        version=distribution.version,
        editable=_editable(distribution),
        folder=folder,
        names=tuple(map(_name, packages_in(folder) if folder is not None else ())),
        commands=tuple(_commands(distribution, folder)),
        missing=tuple(_missing(distribution)),
        originals=found,
        off=off,
    )


def _folder() -> Path | None:
    spec = find_spec(MARK.removesuffix(".py"))
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _editable(distribution: Distribution) -> str:
    try:
        direct = json.loads(distribution.read_text("direct_url.json") or "{}")
        return unquote(urlsplit(direct["url"]).path) if direct["dir_info"]["editable"] else ""
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""


def _name(name: str) -> Name:
    spec = find_spec(name)
    origin = spec.origin if spec is not None and spec.origin is not None else ""
    return Name(name, origin, bool(origin) and is_ours(origin))


def _missing(distribution: Distribution) -> Iterator[str]:
    """Files that were installed and are needed.  Bytecode is not: images are made without it."""
    for path in distribution.files or ():
        if path.suffix in _NEEDED and not (there := Path(str(path.locate()))).exists():
            yield str(there)


def _commands(distribution: Distribution, folder: Path | None) -> Iterator[Command]:
    scripts = {
        path.name: Path(str(path.locate())).resolve()
        for path in distribution.files or ()
        if path.parts[0] == ".." or path.parts[0] == "bin"
    }
    for entry in distribution.entry_points.select(group="console_scripts"):
        if entry.name in scripts:
            yield _command(entry, scripts[entry.name], folder)


def _command(entry: EntryPoint, path: Path, folder: Path | None) -> Command:
    try:
        with path.open(errors="replace") as script:
            text = script.read(_SCRIPT_BYTES)
    except OSError:
        return Command(entry.name, str(path), "missing")
    called = re.search(r"^from ([\w.]+) import ", text, re.MULTILINE)
    if called is not None and (called[1] == entry.module or _has(folder, called[1])):
        return Command(entry.name, str(path), "ours")
    return Command(entry.name, str(path), "other", _owner(entry))


def _has(folder: Path | None, module: str) -> bool:
    """The script may be an original's and lead to ours: then all is well."""
    if folder is None:
        return False
    path = folder.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _owner(entry: EntryPoint) -> str:
    for other in entry_points(group="console_scripts", name=entry.name):
        if other.module != entry.module and other.dist is not None:
            return f"{other.dist.name} {other.dist.version}"
    return ""
