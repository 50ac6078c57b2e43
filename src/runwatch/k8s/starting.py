"""A container whose Python programs do not know us: our folders come first in PYTHONPATH.

An image may set PYTHONPATH, and a variable of the container would replace that.  So where the
container names its command, a shell of the image begins it: that puts our folders before whatever
is there, and becomes the command.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from runwatch.k8s.additions import FILES_PLACE
from runwatch.k8s.names import EXEC
from runwatch.k8s.wishes import Wishes
from runwatch.kube import Thing, listed, notes, parts, text
from runwatch.launcher.dropins import DROPIN_SWITCH
from runwatch.sdk.switches import is_off

SHELL: Final = "/bin/sh"
_BOOT: Final = f"{FILES_PLACE}/runwatch/sdk/boot"
_DROPIN: Final = f"{FILES_PLACE}/runwatch/dropin"
_ITSELF: Final = "runwatch"
"""What the shell is called in its own messages."""
_DEFAULT: Final = "kubectl.kubernetes.io/default-container"
_VARIABLE: Final = "PYTHONPATH"


def chosen(
    pod: Thing, wished: Wishes, containers: Sequence[Thing], warnings: list[str]
) -> set[str]:
    """The named ones; else the one that people mean if they name none.  If the pod was here before,
    those of then: another webhook may have put its container first."""
    if wished.starts not in ("", "true", "pythonpath"):
        warnings.append(f"{EXEC} is {wished.starts!r}, and not true, pythonpath or false")
    if wished.starts not in ("true", "pythonpath"):
        return set()
    names = [text(each, "name") for each in containers]
    if wished.containers:
        if unknown := sorted(set(wished.containers) - set(names)):
            warnings.append(f"there is no container {unknown[0]!r} to begin: {', '.join(names)}")
        return set(wished.containers) & set(names)
    if before := {text(each, "name") for each in containers if is_begun(each)}:
        return before
    default = text(notes(pod), _DEFAULT)
    return {default if default in names else names[0]} if names else set()


def is_begun(container: Thing) -> bool:
    return any(
        text(each, "mountPath") == FILES_PLACE for each in parts(container.get("volumeMounts"))
    )


def script(paths: str) -> str:
    return f'PYTHONPATH="{paths}${{PYTHONPATH:+:$PYTHONPATH}}"; export PYTHONPATH; exec "$@"'


def _paths(container: Thing) -> str:
    """As `runwatch exec` has them: the drop-ins are second, unless they are switched off."""
    for each in parts(container.get("env")):
        if text(each, "name") == DROPIN_SWITCH and is_off(
            DROPIN_SWITCH, {DROPIN_SWITCH: text(each, "value")}
        ):
            return _BOOT
    return f"{_BOOT}:{_DROPIN}"


def begin(container: MutableMapping[str, Any], how: str, warnings: list[str]) -> None:
    """Changes it.  Once: a command that we begin is left alone."""
    name, command, paths = text(container, "name"), listed(container, "command"), _paths(container)
    if command and how == "true":
        if not (command[:2] == [SHELL, "-c"] and command[3:4] == [_ITSELF]):
            container["command"] = [SHELL, "-c", script(paths), _ITSELF, *command]
        return
    variables = container.setdefault("env", [])
    for each in parts(variables):
        if text(each, "name") == _VARIABLE:
            if "value" not in each and "valueFrom" in each:
                warnings.append(
                    f"container {name!r}: {_VARIABLE} comes from elsewhere and has no room for us; "
                    f"with a `command` and {EXEC}=true it has"
                )
            elif _BOOT not in (theirs := text(each, "value")):
                variables[variables.index(each)] = dict(each) | {
                    "value": f"{paths}:{theirs}" if theirs else paths
                }
            return
    variables.append({"name": _VARIABLE, "value": paths})
    why = f"{EXEC} is {how}" if command else "it has no `command`"
    warnings.append(
        f"container {name!r}: {why}, so the variable {_VARIABLE} is set: one that its image has "
        "is replaced"
    )
