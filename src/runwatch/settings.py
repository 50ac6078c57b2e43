"""One loader for every room's settings: defaults, then file, then environment, then flags.

A room declares a frozen dataclass; a field's `env` metadata names its variable and `help` describes
it.  `load` remembers where each value came from; `runwatch config` prints that.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

from runwatch.errors import UsageError
from runwatch.files import Folder

T = TypeVar("T")
TOKEN_FILE_BYTES = 4096
_UNITS = {
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip


def setting(default: Any, *, env: str = "", help: str = "", secret: bool = False) -> Any:
    return field(default=default, metadata={"env": env, "help": help, "secret": secret})


@dataclass(frozen=True)
class Loaded(Generic[T]):
    values: T
    sources: Mapping[str, str]
    """Field → "default", "file PATH", "environment NAME" or "flag"."""


def runwatch_dir(environ: Mapping[str, str] = os.environ) -> Path:
    text = environ.get("RUNWATCH_DIR", "")
    return Path(text).expanduser() if text else Path.home() / ".runwatch"


def settings_file(environ: Mapping[str, str] = os.environ) -> Path:
    """A file that is named must be there: a container's is mounted outside of the directory."""
    text = environ.get("RUNWATCH_CONFIG", "")
    if not text:
        return runwatch_dir(environ) / "config.toml"
    path = Path(text).expanduser()
    if not path.is_file():
        raise UsageError(f"RUNWATCH_CONFIG names {path}, and there is no such file")
    return path


def read_token(file: Path) -> str:
    """The token in a file that nobody else may read: more people than expected can see a command
    line or an environment."""
    path = file.expanduser()
    try:
        # The path may have links, as that of a Kubernetes secret does.
        path = path.resolve(strict=True)
        with Folder.at(path.parent) as folder:
            about = folder.stat(path.name)
            token = folder.text(path.name, TOKEN_FILE_BYTES).strip()
    except OSError as error:
        raise UsageError(f"cannot read the token in {file}: {error}") from error
    if about.st_mode & 0o027:
        raise UsageError(f"everybody may read the token in {file}: run chmod 600 {file}")
    if not token:
        raise UsageError(f"there is no token in {file}: the file is empty")
    return token


def token_of(environ: Mapping[str, str] = os.environ) -> str:
    """The head's token from the environment, or from the file that it names; "" for none."""
    file = environ.get("RUNWATCH_TOKEN_FILE", "")
    return read_token(Path(file)) if file else environ.get("RUNWATCH_TOKEN", "")


def load(
    kind: type[T],
    *,
    section: str,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Loaded[T]:
    """Settings of one room.  `flags` that are None were not given."""
    values, sources = said(kind, section=section, flags=flags, environ=environ, file=file)
    return Loaded(kind(**values), sources)


def said(
    kind: type[Any],
    *,
    section: str,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """What was said of one room's settings, and where; not whether the room can be with it."""
    path = file or settings_file(environ)
    table = _section(path, section)
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    names = {f.name for f in fields(kind)}
    if unknown := sorted(set(table) - names):
        raise UsageError(
            f"{path}: [{section}] has {unknown[0]!r}, which is not a setting "
            f"(settings are {', '.join(sorted(names))})"
        )
    for item in fields(kind):
        name, env = item.name, item.metadata.get("env", "")
        value: Any = None
        sources[name] = "default"
        if name in table:
            value, sources[name] = table[name], f"file {path}"
        if env and environ.get(env, "") != "":
            value, sources[name] = environ[env], f"environment {env}"
        if flags and flags.get(name) is not None:
            value, sources[name] = flags[name], "flag"
        if value is not None:
            values[name] = _convert(value, hints[name], f"{name} ({sources[name]})")
    return values, sources


def _section(path: Path, section: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read settings from {path}: {error}") from error
    table = document.get(section, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: [{section}] is not a table")
    return table


def _convert(value: Any, hint: Any, what: str) -> Any:
    optional = {t for t in getattr(hint, "__args__", ()) if t is not type(None)}
    kind = optional.pop() if len(optional) == 1 else hint
    try:
        if kind is bool:
            return _boolean(value)
        if kind is int:
            return _integer(value)
        if kind is Path:
            return Path(str(value)).expanduser()
        if kind is str and isinstance(value, list):  # of a file; elsewhere they have commas
            return ",".join(map(str, value))
        return kind(value)
    except (TypeError, ValueError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise UsageError(f"setting {what} has value {value!r}, which is not a {name}") from error


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(text)


def _integer(value: Any) -> int:
    """Whole numbers; sizes may carry a unit: 512MiB, 2G."""
    if isinstance(value, int):
        return value
    text = str(value).strip().lower().replace("_", "").removesuffix("b")
    digits = text.rstrip("kmgti")
    unit = text[len(digits) :].strip()
    return round(float(digits) * _UNITS[unit]) if unit in _UNITS else int(text)
