"""Let programs written for the originals use Runwatch, in this Python environment.

install makes it so: `import google_cloud_mldiagnostics` and the like are Runwatch's.  Originals
that are installed stay, untouched and unused.  In place of those that are not, pip gets stand-ins
(a name and a version, no code), so that packages which need them are content.  A second call
changes nothing, or mends what was damaged since; uninstall takes it all back.

To try it without installing anything: runwatch exec -- python train.py

example:
  runwatch dropin install
  runwatch dropin uninstall
  runwatch dropin wheels ./wheels
  PYTHONPATH=$(runwatch dropin path) python train.py
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from runwatch.cli.dropins.looking import look
from runwatch.cli.dropins.originals import DROPIN, ORIGINALS, Original, installed
from runwatch.cli.dropins.ours import dropin_wheel
from runwatch.cli.dropins.stand_ins import stand_in
from runwatch.cli.dropins.wheels import Wheel
from runwatch.cli.pictures.tables import print_json
from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.launcher.dropins import dropin_folders, packages_in


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser("install", help="install runwatch-dropin and the stand-ins")
    uninstall = actions.add_parser("uninstall", help="remove runwatch-dropin and the stand-ins")
    wheels = actions.add_parser("wheels", help="write all of it as wheels, for any installer")
    wheels.add_argument("folder", type=Path, metavar="DIR", help="where to; it is made if need be")
    path = actions.add_parser("path", help="print the folder of the drop-ins, for PYTHONPATH")
    for action in (install, uninstall, wheels, path):
        action.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "install":
        answer, said = _install()
    elif arguments.action == "uninstall":
        answer, said = _uninstall()
    elif arguments.action == "wheels":
        answer, said = _wheels(arguments.folder)
    else:
        answer, said = _path()
    if arguments.json:
        print_json(answer)
    else:
        print(said)
    return 0


# ── what they do ───────────────────────────────────────────────────────────────────────────────


def _install() -> tuple[dict[str, Any], str]:
    before, ours = look(), dropin_wheel(_folder())
    is_right = before.version == ours.version or before.version and before.editable
    made = [] if is_right and not before.is_damaged else [DROPIN]
    wanted = [stand_in(original) for original in _answered() if _lacks(original)]
    with tempfile.TemporaryDirectory(prefix="runwatch-dropin-") as folder:
        if made and before.editable:
            _pip("install", "--no-deps", "--force-reinstall", "--editable", before.editable)
        elif made:
            _install_wheels([ours], Path(folder), "--force-reinstall")
        if wanted:
            _install_wheels(wanted, Path(folder))
    made += [wheel.name for wheel in wanted]
    kept = [each.name for each in before.beside]
    words = [f"installed: {', '.join(made)}" if made else "nothing to do: all is installed"]
    if kept:
        words.append(f"left as they are, but not imported any more: {', '.join(kept)}")
    words.append("`runwatch status` checks it; `runwatch dropin uninstall` takes it back")
    return {"installed": made, "kept": kept}, "\n".join(words)


def _install_wheels(wheels: Sequence[Wheel], folder: Path, *more: str) -> None:
    """By name from a folder: installed by path, `pip freeze` would write that path for ever."""
    for wheel in wheels:
        wheel.write(folder)
    exactly = [f"{wheel.name}=={wheel.version}" for wheel in wheels]
    offline = ["--no-index", "--no-deps", "--find-links", str(folder)]
    _pip("install", *more, *offline, *exactly)


def _uninstall() -> tuple[dict[str, Any], str]:
    found = look()
    gone = [each.name for each in found.stand_ins]
    gone += [DROPIN] * (found.version is not None)
    if gone:
        _pip("uninstall", *gone)
    words = [f"removed: {', '.join(gone)}" if gone else "nothing to do: none of it is installed"]
    if found.beside:
        names = ", ".join(each.name for each in found.beside)
        words.append(f"programs import the originals again: {names}")
    if found.stand_ins:
        names = ", ".join(each.name for each in found.stand_ins)
        words.append(f"packages that need these must get them again: {names}")
    return {"removed": gone}, "\n".join(words)


def _wheels(folder: Path) -> tuple[dict[str, Any], str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [str(wheel.write(folder)) for wheel in _all()]
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}") from None
    return {"wheels": written}, "\n".join(written)


def _all() -> list[Wheel]:
    return [dropin_wheel(_folder()), *map(stand_in, _answered())]


def _path() -> tuple[dict[str, Any], str]:
    folder = str(_folder())
    return {"path": folder}, folder


def _folder() -> Path:
    for folder in dropin_folders():
        return folder
    raise NotFound("this Runwatch was installed without its drop-ins: install it from a wheel")


def _answered() -> list[Original]:
    """The originals that the drop-ins answer to: a stand-in promises no more."""
    names = packages_in(_folder())
    return [original for original in ORIGINALS if original.package in names]


def _lacks(original: Original) -> bool:
    there = installed(original)
    return there is None or there.stand_in and there.version != original.version


# ── pip ────────────────────────────────────────────────────────────────────────────────────────


def _pip(action: str, *words: str) -> None:
    """What it says goes to standard error: our output is the answer."""
    command = [*_tool(action), *words]
    if sys.stderr.isatty():
        doing = {"install": "installing", "uninstall": "removing"}[action]
        print(f"{doing} … (a few seconds)", file=sys.stderr)
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise RunwatchError(
            f"that did not work (exit code {done.returncode}): {' '.join([action, *words])}; its "
            "own message is above.  `runwatch dropin wheels DIR` writes wheels for any installer"
        )


def _tool(action: str) -> Sequence[str]:
    if find_spec("pip") is not None:
        sure = ["--yes"] if action == "uninstall" else ["--disable-pip-version-check"]
        return [sys.executable, "-m", "pip", action, "--quiet", *sure]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", action, "--quiet", "--python", sys.executable]
    raise UsageError(
        f"{sys.executable} has no pip, and there is no uv: `runwatch dropin wheels DIR` writes "
        "wheels for any installer"
    )
