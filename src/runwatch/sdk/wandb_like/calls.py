"""wandb's functions, for programs that import us under its name.

What has no meaning here can be called all the same.  It is counted, and one line says so.
"""

from __future__ import annotations

import random
import string
import sys
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from runwatch.sdk import front
from runwatch.sdk.guard import guarded, tally, text_of
from runwatch.sdk.values.config import ConfigDict
from runwatch.sdk.wandb_like.media import (
    Artifact,
    Audio,
    Classes,
    Graph,
    Histogram,
    Html,
    Image,
    Molecule,
    Object3D,
    Plotly,
    Table,
    Video,
    plot,
)
from runwatch.sdk.wandb_like.run import LikeWandb, Metric, Summary

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

__all__ = [
    "AlertLevel", "Artifact", "Audio", "Classes", "CommError", "Error", "Graph", "Histogram",
    "Html", "Image", "Molecule", "Object3D", "Plotly", "Settings", "Table", "UsageError", "Video",
    "alert", "define_metric", "ensure_configured", "join", "link_model", "log_artifact",
    "log_model", "login", "mark_preempting", "plot", "require", "restore", "save", "setup",
    "teardown", "termerror", "termlog", "termwarn", "unwatch", "use_artifact", "use_model", "util",
    "watch",
]  # fmt: skip

OF_A_RUN: Final = frozenset({
    "link_artifact", "link_model", "log_code", "log_model", "mark_preempting", "restore", "save",
    "status", "to_html", "unwatch", "upsert_artifact", "use_artifact", "use_model", "watch",
})  # fmt: skip
"""Functions here that are methods of wandb's run too."""


class Error(Exception):
    """Never raised by us; programs name it in their `except`."""


class UsageError(Error):
    pass


class CommError(Error):
    pass


class AlertLevel(Enum):
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class Settings(SimpleNamespace):
    """Taken, and of no effect but for `mode`."""


def _like_wandb() -> LikeWandb | None:
    run = front.current_run()
    return run if isinstance(run, LikeWandb) else None


def current() -> Run | None:
    """`wandb.run`."""
    return front.current_run()


def summary() -> ConfigDict:
    """`wandb.summary`: of the current run, or one that nobody reads."""
    run = _like_wandb()
    return Summary() if run is None else run.summary


def login(*args: Any, **options: Any) -> bool:
    """There is nothing to log in to: records go to the journal."""
    return True


def define_metric(name: str, *args: Any, **options: Any) -> Metric:
    run = _like_wandb()
    if run is not None:
        return run.define_metric(name, *args, **options)
    return Metric(text_of(name), None, None)


@guarded("record an alert")
def alert(title: str = "", text: str = "", level: Any = None, wait_duration: Any = None) -> None:
    """A `log` event named alert, in the run's timeline."""
    run = front.current_run()
    if run is None:
        tally.count("no run", "there is no run: call runwatch.init() first")
    elif isinstance(run, LikeWandb):
        run.alert(title, text, level)
    else:
        LikeWandb.alert(run, title, text, level)  # type: ignore[arg-type]  # it needs a run only


def log_artifact(artifact_or_path: Any, *args: Any, **options: Any) -> Any:
    run = _like_wandb()
    if run is not None:
        return run.log_artifact(artifact_or_path, *args, **options)
    _politely("log_artifact", "artifacts are not kept")
    return artifact_or_path


def watch(*models: Any, **options: Any) -> None:
    _politely("watch", "gradients and parameters are not recorded")


def unwatch(*models: Any) -> None:
    pass


def save(*globs: Any, **options: Any) -> list[str]:
    """Files stay where they are."""
    _politely("save", "files are not kept: they stay where they are")
    return []


def restore(name: Any, *args: Any, **options: Any) -> None:
    _politely("restore", "files are not kept, so none can be restored")


def use_artifact(artifact_or_name: Any, *args: Any, **options: Any) -> Any:
    _politely("use_artifact", "artifacts are not kept")
    if isinstance(artifact_or_name, Artifact):
        return artifact_or_name
    return Artifact(text_of(artifact_or_name))


def log_model(path: Any = "", name: Any = None, *args: Any, **options: Any) -> None:
    log_artifact(path, name)


def log_code(*args: Any, **options: Any) -> None:
    _politely("log_code", "code is not kept")


def _nothing(*args: Any, **options: Any) -> None:
    """Has no meaning here, and nothing is lost by that."""


setup = teardown = require = ensure_configured = join = termsetup = _nothing
mark_preempting = status = link_artifact = link_model = to_html = pin_config_keys = _nothing
use_model = restore
upsert_artifact = log_artifact


@guarded("say something")
def termlog(text: Any = "", newline: bool = True, repeat: bool = True, **options: Any) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"runwatch: {text_of(text)}" + ("\n" if newline else ""))


termwarn = termerror = termlog


def _generate_id(length: int = 8) -> str:
    letters = string.ascii_lowercase + string.digits
    return "".join(random.SystemRandom().choice(letters) for _ in range(length))


util: Final = SimpleNamespace(generate_id=_generate_id)


def _politely(what: str, instead: str) -> None:
    tally.count(f"wandb {what}", f"{what}() has no effect: {instead}")
