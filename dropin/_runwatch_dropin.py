"""Python loads this when it starts, because `runwatch_dropin.pth` names it: the drop-ins go first.

The drop-ins are in a folder of their own.  So whatever installs, upgrades or removes an original
changes no file of ours, nor do we change one of its files.  If both are there, whoever installed
`runwatch-dropin` wants ours, and the finder here sees to it.  Two things go before:

- a folder that the program itself puts in front: its own, or one in PYTHONPATH.  If the name is
  found there and is not ours, that is said on standard error, once.
- RUNWATCH_DROPIN=off: what is installed is imported, as if we were not.

Every Python of the environment runs this.  It costs 0.4 ms at the start and 0.15 µs per import,
and needs no more than what is loaded anyway.  A folder with this file in it holds drop-ins: that is
how ours are told from others.
"""

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))
NO_NAMES = (".", "_", "runwatch")
"""How files and packages here begin that no program asks for."""
SAID = "RUNWATCH_DROPIN_SAID"
"""Set when it was said: processes that this one starts need not say it again."""


class Finder:
    """First of those that Python asks for a module; it knows the names of the drop-ins only."""

    def __init__(self, folder: str) -> None:
        self._names = frozenset(
            each for each in os.listdir(folder) if not each.startswith(NO_NAMES)
        )

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        return _found(name) if path is None and name in self._names else None


def _found(name: str) -> "ModuleSpec | None":
    from importlib.machinery import PathFinder

    in_front = PathFinder.find_spec(name, _in_front())
    if in_front is not None and in_front.origin is not None:  # None: a folder, but no package
        if not _is_ours(in_front.origin):
            _say(f"`import {name}` takes {in_front.origin}, not the drop-in: {_WHY_IN_FRONT}")
        return in_front
    if not _is_runwatch_there():
        _say(f"`import {name}` cannot take the drop-in: {_WITHOUT_RUNWATCH}")
        return None
    return PathFinder.find_spec(name, [HERE])


_WHY_IN_FRONT = """\
that folder is the program's own or in PYTHONPATH, and goes first.
  What this program does through that name is not recorded by Runwatch.
  To have it recorded: take the folder out of the way, or `runwatch exec -- python ...` for a
  folder in PYTHONPATH.  To keep it so: RUNWATCH_DROPIN=off.  `runwatch status` lists all names."""
_WITHOUT_RUNWATCH = """\
Runwatch itself is not installed here.
  To mend it: pip install runwatch.  To do without: pip uninstall runwatch-dropin."""


def _in_front() -> list[str]:
    """The folders that Python looks into before those where packages are installed."""
    import site

    installed = (*site.getsitepackages(), site.USER_SITE, os.path.dirname(HERE))
    at = next((at for at, folder in enumerate(sys.path) if folder in installed), 0)
    return sys.path[:at]


def _is_ours(origin: str) -> bool:
    """`origin`: the `__init__.py` of a package."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(origin)))
    return os.path.exists(os.path.join(folder, os.path.basename(__file__)))


def _is_runwatch_there() -> bool:
    from importlib.util import find_spec

    try:
        return find_spec("runwatch") is not None
    except ValueError:  # somebody made a module of that name by hand
        return True


def _say(words: str) -> None:
    if os.environ.get(SAID):
        return
    os.environ[SAID] = "1"
    text = f"runwatch-dropin: {words}\n"
    try:
        # Not through its buffer: what cannot be written would stay there, and change the exit code.
        os.write(sys.stderr.fileno(), text.encode())
    except io.UnsupportedOperation:  # it is in memory
        sys.stderr.write(text)
    except (OSError, ValueError, AttributeError):
        pass  # there is none, or nobody reads it


if os.environ.get("RUNWATCH_DROPIN", "").strip().lower() not in ("off", "0", "no", "false"):
    sys.meta_path.insert(0, Finder(HERE))
    if os.path.exists(os.path.join(HERE, "runwatch_dropin_start")):
        __import__("runwatch_dropin_start")  # what else is to be there before the program begins
