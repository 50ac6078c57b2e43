"""Tokens that a head is given: one in each file of a directory, as a Kubernetes Secret is mounted.

A file is called `main`, or `<role>-<name>`: `ingest-agents`, `view-prometheus`.  Files are read
again when they change, so a renewed Secret counts within a second.  A file that is gone, or is no
longer acceptable, lets nobody in.

A Secret's files are links to links, in a directory of root's that everybody could write to if it
were not mounted read-only.  So a link counts only if we or root made it and it stays inside; where
it leads, the file must be ours or root's, and others must not be able to read it.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from runwatch.clock import Clock, system_clock
from runwatch.errors import UsageError
from runwatch.files import Folder
from runwatch.head.access.roles import ROLES, Role
from runwatch.settings import TOKEN_FILE_BYTES

MAIN_FILE: Final = "main"
SHORTEST: Final = 24
LOOK_SECONDS: Final = 1.0
MOST_FILES: Final = 1000
_LOOK_NS: Final = round(LOOK_SECONDS * 1e9)
_NAME: Final = re.compile(r"[\w.@:+ -]{1,80}")
_SENDABLE: Final = re.compile(r"[!-~]+")
_TRIES: Final = 4
logger = logging.getLogger("runwatch.head")


@dataclass(frozen=True, slots=True)
class Given:
    main: str = ""
    words: Mapping[str, tuple[str, int]] = field(default_factory=dict, repr=False)
    """File → its token, and when it was written (wall clock, ns)."""


class _Seen(NamedTuple):
    marks: tuple[object, ...]
    """What is different when a file is."""
    given: Given
    problems: Sequence[str] = ()


class GivenTokens:
    """What is in the directory now.  Any thread may ask; most answers cost no more than a clock.

    Raises UsageError if something is wrong at the start.  What goes wrong later is logged, and that
    file is left out.
    """

    def __init__(self, directory: Path, *, clock: Clock = system_clock) -> None:
        self.directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_ns = clock.mono_ns()
        self._seen = _look(directory)
        if self._seen.problems:
            raise UsageError(self._seen.problems[0])
        self.on_changed: Callable[[], object] = lambda: None
        """Called in the thread that saw it."""

    def now(self) -> Given:
        """The same object as before, as long as nothing has changed."""
        if self._clock.mono_ns() - self._looked_ns < _LOOK_NS:
            return self._seen.given
        with self._lock:
            before, self._looked_ns = self._seen, self._clock.mono_ns()
            seen = self._seen = _look(self.directory, before)
        for problem in seen.problems:
            if problem not in before.problems:
                logger.error("a token is not accepted: %s", problem)
        if seen.given is not before.given:
            self.on_changed()
        return seen.given


def role_and_name(file: str) -> tuple[Role, str]:
    """Of a file `<role>-<name>`."""
    for role in ROLES:
        begin, name = f"{role}-", file[len(role) + 1 :]
        if file.startswith(begin) and _NAME.fullmatch(name):
            return role, name
    raise UsageError(
        f"{file[:100]!r} is no name for a file with a token: call it main, or <role>-<name> with "
        f"one of the roles {', '.join(ROLES)}"
    )


def _look(directory: Path, before: _Seen | None = None) -> _Seen:
    """Reads what has changed.  A Secret that is switched meanwhile is read again, as one."""
    seen = before
    for _ in range(_TRIES):
        try:
            marks = _marks(directory)
            if seen is not None and marks == seen.marks:
                break
            given, problems = _read(directory)
        except OSError as error:
            marks, given = (error.errno,), Given()
            problems = [f"cannot read the tokens in {directory}: {error.strerror}"]
        except UsageError as error:
            marks, given, problems = (), Given(), [str(error)]
        seen = _Seen(marks, given, problems)
    assert seen is not None
    if before is not None and seen.given == before.given:
        return seen._replace(given=before.given)
    return seen


def _marks(directory: Path) -> tuple[object, ...]:
    return (
        _mark(os.stat(directory)),
        *(mark for name in _names(directory) for mark in _marks_of(directory / name)),
    )


def _marks_of(file: Path) -> Iterator[object]:
    """A link has its own owner."""
    try:
        yield file.name, os.lstat(file).st_uid, _mark(os.stat(file))
    except OSError as error:
        yield file.name, error.errno


def _mark(about: os.stat_result) -> tuple[int, ...]:
    return about.st_ino, about.st_ctime_ns, about.st_mtime_ns, about.st_size


def _names(directory: Path) -> list[str]:
    names = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    if len(names) > MOST_FILES:
        raise UsageError(f"{directory} has {len(names)} files: at most {MOST_FILES} are tokens")
    return names


def _read(directory: Path) -> tuple[Given, list[str]]:
    words: dict[str, tuple[str, int]] = {}
    problems: list[str] = []
    if _is_open(directory):
        why = f"others may write to {directory}, which has tokens: run chmod go-w {directory}"
        return Given(), [why]
    for name in _names(directory):
        try:
            if name != MAIN_FILE:
                role_and_name(name)
            word, written_ns = _word(directory, name)
            same = next((file for file, (other, _) in words.items() if other == word), None)
            if same is not None:
                raise UsageError(f"{directory / name} has the same token as {same}: make another")
            words[name] = word, written_ns
        except UsageError as error:
            problems.append(str(error))
    main, _ = words.pop(MAIN_FILE, ("", 0))
    return Given(main, words), problems


def _is_open(directory: Path) -> bool:
    """Whether somebody else could put a file into it, or take one away."""
    about = os.stat(directory)
    if about.st_uid not in (0, os.geteuid()):
        return True
    others = about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX
    return bool(others) and not os.statvfs(directory).f_flag & os.ST_RDONLY


def _word(directory: Path, name: str) -> tuple[str, int]:
    """The token in a file, and when it was written."""
    file, ours = directory / name, frozenset((0, os.geteuid()))
    try:
        if os.lstat(file).st_uid not in ours:
            raise UsageError(f"{file} belongs to another user: the head's or root's is taken")
        path = file.resolve(strict=True)
        if not path.is_relative_to(directory.resolve()):
            raise UsageError(f"{file} leads out of the directory, to {path}")
        with Folder.at(path.parent) as folder:
            about = folder.stat(path.name)
            word = folder.text(path.name, TOKEN_FILE_BYTES, owners=ours).strip()
    except OSError as error:
        raise UsageError(f"cannot read the token in {file}: {error.strerror}") from error
    if about.st_mode & 0o027:
        raise UsageError(
            f"others may read the token in {file}: run chmod 600 {file} (in a pod: defaultMode: "
            "0440, and an fsGroup)"
        )
    if len(word) < SHORTEST:
        raise UsageError(
            f"the token in {file} has {len(word)} characters: use at least {SHORTEST} random ones"
        )
    if not _SENDABLE.fullmatch(word):
        raise UsageError(f"the token in {file} has spaces, or characters that no header can carry")
    return word, about.st_mtime_ns
