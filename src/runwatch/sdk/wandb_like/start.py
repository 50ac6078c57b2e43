"""The arguments of wandb's `init`, in our terms.

`name` is the run's name and `project` its group.  Without a name the run has the script's; a second
such run of the same process is another run, with a number.  Arguments that neither of us knows are
ignored, and one line says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from runwatch.sdk.guard import tally, text_of
from runwatch.sdk.identity import Identity, slug
from runwatch.sdk.run import Run
from runwatch.sdk.values.plain import config_values
from runwatch.sdk.wandb_like.run import Disabled, LikeWandb

_ABOUT: Final = ("project", "entity", "tags", "notes", "job_type")
_HANDLED: Final = ("mode", "reinit", "settings", "config_exclude_keys", "config_include_keys")
_NEEDLESS: Final = (
    # The same name or id is the same run: that is what resuming means here.
    "resume", "allow_val_change", "force", "save_code", "anonymous", "sync_tensorboard",
    "tensorboard", "magic",
)  # fmt: skip
_NOT_HERE: Final = ("resume_from", "fork_from", "monitor_gym")
_WANDB: Final = frozenset((*_ABOUT, *_HANDLED, *_NEEDLESS, *_NOT_HERE))
_ENVIRONMENT: Final = {
    "name": "WANDB_NAME", "id": "WANDB_RUN_ID", "group": "WANDB_RUN_GROUP", "dir": "WANDB_DIR",
    "project": "WANDB_PROJECT", "entity": "WANDB_ENTITY", "tags": "WANDB_TAGS",
    "notes": "WANDB_NOTES", "job_type": "WANDB_JOB_TYPE", "mode": "WANDB_MODE",
}  # fmt: skip


class Asked(NamedTuple):
    """What an `init` asks for."""

    name: str | None
    group: str
    id: str | None
    config: Mapping[str, Any]
    about: Mapping[str, Any]
    """Project, tags, notes and the like."""
    files: Any
    """wandb's `dir`: a folder for the program's files, not for our records."""
    kind: type[LikeWandb]
    anew: bool
    """Another run than the one that is going on, though neither has a name."""

    def numbered(self, identity: Identity, current: Run | None) -> Identity:
        """A run without a name is not the one before it, which has ended: it gets a number."""
        if self.name is not None or self.id is not None or os.environ.get("RUNWATCH_RUN_ID"):
            return identity
        if current is not None and current.name in _nameless and not self.anew:
            return identity._replace(name=current.name, run=current.id)
        _nameless.append(f"{identity.name}-{len(_nameless) + 1}" if _nameless else identity.name)
        name = _nameless[-1]
        return identity if name == identity.name else identity._replace(name=name, run=slug(name))

    @property
    def adoption(self) -> Callable[[Run], Run] | None:
        """How a run that goes on becomes this one; None: it does not, since nothing is recorded."""
        return None if self.kind is Disabled else lambda run: self.kind.of(run, self.group)

    def tell(self, run: Run) -> None:
        if isinstance(run, LikeWandb):
            run._about(self.about, self.files)


_nameless: list[str] = []
"""The names of this process's runs that were begun without one."""


def is_wandbs(others: Mapping[str, Any]) -> bool:
    """Whether a program that gives these arguments has wandb in mind."""
    return not _WANDB.isdisjoint(others)


def ignore(others: Mapping[str, Any]) -> None:
    """Say once which arguments have no effect."""
    for name in others:
        if name not in _WANDB or name in _NOT_HERE:
            tally.count(f"init {name}"[:200], f"init() ignores the argument {name!r}")


def asked(
    given: Mapping[str, Any],
    others: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
) -> Asked:
    """`given` are the arguments that we share with wandb, `others` the rest of its arguments."""
    named = {**others, **{name: value for name, value in given.items() if value}}
    for name, variable in _ENVIRONMENT.items():
        if not named.get(name) and environment.get(variable):
            named[name] = environment[variable]
    mode = named.get("mode") or _setting(named.get("settings"), "mode")
    project, group = text_of(named.get("project") or ""), text_of(named.get("group") or "")
    return Asked(
        name=named.get("name"),
        group=f"{project}/{group}" if project and group else project or group,
        id=named.get("id"),
        config=_chosen(config_values(named.get("config")), named),
        about={name: _told(name, named[name]) for name in _ABOUT if named.get(name)},
        files=named.get("dir"),
        kind=Disabled if mode == "disabled" else LikeWandb,
        anew=named.get("reinit") in (True, "finish_previous", "create_new"),
    )


def _setting(settings: Any, name: str) -> Any:
    values = settings if isinstance(settings, Mapping) else getattr(settings, "__dict__", {})
    return values.get(name)


def _told(name: str, value: Any) -> Any:
    if name != "tags":
        return text_of(value)[:5000]
    words = value.split(",") if isinstance(value, str) else value
    return tuple(text_of(word)[:200] for word in words)


def _chosen(config: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    include, exclude = named.get("config_include_keys"), named.get("config_exclude_keys") or ()
    return {k: v for k, v in config.items() if k not in exclude and (not include or k in include)}
