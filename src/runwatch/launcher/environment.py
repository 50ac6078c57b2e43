"""The variables that the command gets from us, beside all that it would have without us."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from runwatch.launcher.dropins import DROPIN_SWITCH, dropin_folders
from runwatch.launcher.naming import name_of
from runwatch.sdk.identity import attempt_key, scheduled_name
from runwatch.sdk.launched import ADDRESS, RANK_OF_WRAPPER, rank_in
from runwatch.sdk.switches import is_off

_PACKAGE: Final = Path(__file__).resolve().parents[1]
BOOT: Final = str(_PACKAGE / "sdk" / "boot")
"""Holds the `sitecustomize` with which every Python process of the command begins."""
_CONNECT_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Options:
    """What `runwatch exec` was told."""

    name: str = ""
    group: str = ""
    id: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    directory: str = ""
    head: str = ""
    hooks: bool = True
    console: bool = True


def for_command(
    options: Options, command: Sequence[str], address: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """`address`: where its processes reach us; "" if they cannot."""
    made = dict(environment)
    if options.name:
        made["RUNWATCH_NAME"] = made["RUNWATCH_RUN_ID"] = options.name
    else:
        made.setdefault("RUNWATCH_NAME", scheduled_name(environment) or name_of(command))
    given = {
        "RUNWATCH_RUN_ID": options.id,
        "RUNWATCH_GROUP": options.group,
        "RUNWATCH_DIR": os.path.abspath(options.directory) if options.directory else "",
        "RUNWATCH_HEAD": options.head,
        ADDRESS: address,
        RANK_OF_WRAPPER: "" if (rank := rank_in(environment)) is None else str(rank),
    }
    made.update({name: value for name, value in given.items() if value})
    # Several of us may be started together, as by `srun`: then a scheduler's key is theirs.
    if not attempt_key(environment):
        made["RUNWATCH_ATTEMPT"] = f"exec-{os.urandom(8).hex()}"
    made.setdefault("RUNWATCH_QUIET", "1")  # the wrapper says it, and only to a person
    made["RUNWATCH_AUTO"] = "1" if options.hooks and not is_off("RUNWATCH_AUTO", made) else "0"
    if options.hooks or options.console:
        made["PYTHONPATH"] = os.pathsep.join(_paths(environment))
    return made


def _paths(environment: Mapping[str, str]) -> list[str]:
    dropins = [] if is_off(DROPIN_SWITCH, environment) else dropin_folders()
    ours = [BOOT, *map(str, dropins)]
    before = environment.get("PYTHONPATH", "")
    theirs = before.split(os.pathsep) if before else []
    return [*ours, *(path for path in theirs if path not in ours)]


def is_inside(environment: Mapping[str, str]) -> bool:
    """Whether another `runwatch exec` that still runs has started us."""
    address = environment.get(ADDRESS, "")
    if not address:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.settimeout(_CONNECT_SECONDS)
        try:
            line.connect(address)
        except OSError:
            return False
    return True
