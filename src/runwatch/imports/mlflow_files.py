"""MLflow's file store: `mlruns/EXPERIMENT/RUN/` with meta.yaml, metrics/, params/ and tags/.

A metric is a file of lines "milliseconds value step", which grows; parameters and tags are a file
each.  meta.yaml is flat: a key and a value to a line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runwatch.imports.growing import Growing, identity, opened
from runwatch.imports.items import Item, LeftOut, Mark, NotALog, Point, Reached, Source
from runwatch.imports.mlflow_runs import About, told
from runwatch.record import NO_STEP

META: Final = "meta.yaml"
_STATES: Final = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
_LONGEST: Final = 64 << 10


def is_run(folder: Path) -> bool:
    if not (folder / META).is_file():
        return False
    return any((folder / part).is_dir() for part in ("metrics", "params", "tags"))


def sources(folders: Iterable[Path]) -> Iterator[Source]:
    for folder in folders:
        about = _about(folder)
        if about.is_deleted:
            continue
        yield Source(
            "mlflow",
            folder,
            about.name or about.id,
            identity("mlflow files", about.id),
            _reader(folder, about),
            about.group,
            sum(path.stat().st_size for _, path in _metrics(folder)),
        )


def _reader(folder: Path, about: About) -> Any:
    return lambda marks: _read(folder, about, marks)


def _about(folder: Path) -> About:
    meta = flat_yaml(folder / META)
    id = meta.get("run_id") or meta.get("run_uuid") or folder.name
    experiment = flat_yaml(folder.parent / META) if (folder.parent / META).is_file() else {}
    tags = _values(folder / "tags")
    state = meta.get("status", "")
    return About(
        id,
        meta.get("run_name") or tags.get("mlflow.runName", ""),
        _STATES.get(state, state),
        _whole(meta.get("start_time")),
        _whole(meta.get("end_time")),
        experiment.get("name", ""),
        meta.get("user_id", ""),
        meta.get("lifecycle_stage") == "deleted",
        _values(folder / "params"),
        tags,
        _parent_name(folder, tags),
    )


def _parent_name(folder: Path, tags: Mapping[str, str]) -> str:
    parent = tags.get("mlflow.parentRunId", "")
    if not parent or "/" in parent:
        return parent
    meta = folder.parent / parent / META
    return (flat_yaml(meta).get("run_name") if meta.is_file() else "") or parent


def flat_yaml(path: Path) -> dict[str, str]:
    """The keys and values of a YAML file without nesting.  A long text goes on in indented lines,
    a quoted one may hold anything."""
    values: dict[str, str] = {}
    key = ""
    for line in _text(path).splitlines():
        if line[:1] in (" ", "\t") and key:
            values[key] += " " + line.strip()
            continue
        key, colon, value = line.partition(":")
        if not colon:
            key = ""
            continue
        values[key] = value.strip()
    return {key: _unquoted(value) for key, value in values.items() if value != "null"}


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")
    return value


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST)
    except OSError as error:
        raise NotALog(f"cannot read {path}: {error.strerror or error}") from error


def _values(folder: Path) -> dict[str, str]:
    """One file for each value.  A key with slashes is a path."""
    return {name: _text(path) for name, path in _files(folder)}


def _metrics(folder: Path) -> list[tuple[str, Path]]:
    return _files(folder / "metrics")


def _files(folder: Path) -> list[tuple[str, Path]]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            found.append((path.relative_to(folder).as_posix(), path))
    return sorted(found)


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def _read(folder: Path, about: About, marks: Mapping[str, Mark]) -> Iterator[Item]:
    yield from told(about, marks)
    for name, path in _metrics(folder):
        stream = f"metric {name}"
        with opened(path, marks.get(stream)) as file:
            for line in file.lines():
                yield _point(name, line, file)
                file.take(line)
                if file.is_due:
                    yield Reached(stream, *file.mark())
            yield Reached(stream, *file.mark())


def _point(name: str, line: bytes, file: Growing) -> Item:
    words = line.split()
    if not words:
        return LeftOut("empty lines")
    try:
        step = int(words[2]) if len(words) > 2 else NO_STEP
        return Point(name, step, int(words[0]) * 1_000_000, float(words[1]))
    except (ValueError, IndexError):
        raise NotALog(
            f"{file.path}, at byte {file.offset:,}: {line[:60]!r} is no line of an MLflow metric "
            "(milliseconds, value, step)"
        ) from None
