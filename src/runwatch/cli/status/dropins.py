"""`runwatch status`: whose code a program gets under the names of the originals, in this Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from runwatch.cli.dropins.looking import Dropins
from runwatch.cli.dropins.originals import DROPIN, Installed
from runwatch.cli.status.types import Problem, Section
from runwatch.launcher.dropins import DROPIN_SWITCH

MEND: Final = "`runwatch dropin install` installs it again"


def section(found: Dropins) -> Section:
    lines, problems = _absent(found) if found.version is None else _present(found)
    return Section("dropins", _facts(found, broken=bool(problems)), lines, problems)


def _facts(found: Dropins, broken: bool) -> dict[str, Any]:
    state = "absent" if found.version is None else "off" if found.off else "whole"
    return {
        "state": "broken" if broken else state,
        "version": found.version,
        "directory": None if found.folder is None else str(found.folder),
        "names": [asdict(name) for name in found.names],
        "commands": [asdict(command) for command in found.commands],
        "originals": [asdict(each) for each in found.originals],
        "missing": list(found.missing),
    }


def _absent(found: Dropins) -> tuple[list[str], list[Problem]]:
    lines = ["not installed; `runwatch exec -- CMD` has its own"]
    if found.beside:
        lines.append(f"other programs import the originals: {_list(found.beside)}")
    if not found.stand_ins:
        return lines, []
    what = f"{_list(found.stand_ins)} are only stand-ins, and {DROPIN} is not installed"
    names = " ".join(each.name for each in found.stand_ins)
    return lines, [Problem(what, f"`pip install {DROPIN}`, or `pip uninstall {names}`")]


def _present(found: Dropins) -> tuple[list[str], list[Problem]]:
    lines = [f"{DROPIN} {found.version}: {_names_that_are_ours(found)}"]
    if found.off:
        lines.append(f"switched off by {DROPIN_SWITCH}: originals that are installed go first")
    if found.beside:
        lines.append(f"also installed: {_list(found.beside)}")
    if found.stand_ins:
        lines.append(f"stand-ins, for pip: {_list(found.stand_ins)}")
    return lines, [*_damage(found), *_strangers(found), *_commands(found)]


def _names_that_are_ours(found: Dropins) -> str:
    ours = [name.name for name in found.names if name.ours]
    return f"programs import {', '.join(ours)} from it" if ours else "programs import none of it"


def _damage(found: Dropins) -> Iterable[Problem]:
    if found.missing:
        more = f" and {len(found.missing) - 1} more" if len(found.missing) > 1 else ""
        yield Problem(f"files of {DROPIN} are gone: {found.missing[0]}{more}", MEND)
    elif found.folder is None:
        yield Problem(f"{DROPIN} is installed, but Python does not find it", MEND)


def _strangers(found: Dropins) -> Iterable[Problem]:
    if found.off or found.missing or found.folder is None:
        return
    for name in found.strangers:
        yield Problem(
            f"`import {name.name}` takes {name.origin}, not the drop-in",
            "take that folder out of PYTHONPATH, or start programs with `runwatch exec`; "
            f"{DROPIN_SWITCH}=off keeps it so",
        )


def _commands(found: Dropins) -> Iterable[Problem]:
    for command in found.lost_commands:
        if command.state == "missing":
            what = f"the command {command.name} is gone: {command.path}"
        else:
            owner = f" of {command.owner}" if command.owner else ""
            what = f"the command {command.name} is another one{owner}: {command.path}"
        yield Problem(what, MEND)


def _list(each: Iterable[Installed]) -> str:
    return ", ".join(f"{one.name} {one.version}" for one in each)
