"""Where a process's journal lies, and how it is opened there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from runwatch._version import __version__
from runwatch.clock import Clock, system_clock
from runwatch.interruption import let_pass
from runwatch.journal.liveness import boot_id, pid_namespace, start_ticks, this_host
from runwatch.journal.moved import check_private, fallback_place, note_wanted
from runwatch.journal.segment import DEFAULT_SEGMENT_BYTES, new_journal_id
from runwatch.journal.writer import DEFAULT_BUDGET_BYTES, JournalWriter
from runwatch.record import Origin, Role
from runwatch.sdk.guard import tally
from runwatch.sdk.switches import is_off


def open_journal(
    directory: str | os.PathLike[str] | None,
    on_keep: Callable[[], None],
    *,
    role: Role = "process",
    environment: Mapping[str, str] = os.environ,
    clock: Clock = system_clock,
) -> JournalWriter | None:
    """A new journal in the first directory that takes one; None (counted) if none does."""
    configured = directory or environment.get("RUNWATCH_DIR") or "~/.runwatch"
    try:
        return _open(absolute(configured), on_keep, role, environment, clock)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        let_pass(error)
        first = error
    fallback = fallback_place(environment)
    try:
        _claim_private(fallback)
        writer = _open(fallback, on_keep, role, environment, clock)
    except OSError as second:
        let_pass(second)
        tally.count(
            "no journal",
            f"nothing is recorded: cannot write to {configured} ({first}) or {fallback} ({second})",
        )
        return None
    with contextlib.suppress(OSError, ValueError):
        note_wanted(writer.directory, absolute(configured))
    tally.count("journal moved", f"cannot write to {configured} ({first}); recording to {fallback}")
    return writer


def absolute(place: str | os.PathLike[str]) -> Path:
    """An absolute path, since the program may change its directory."""
    expanded = os.path.expanduser(os.fspath(place))
    if expanded.startswith("~"):  # a container's user may have no home
        raise FileNotFoundError(f"no home directory for {expanded}: set RUNWATCH_DIR")
    return Path(os.path.abspath(expanded))


def _claim_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    check_private(folder)


def _open(
    root: Path,
    on_keep: Callable[[], None],
    role: Role,
    environment: Mapping[str, str],
    clock: Clock,
) -> JournalWriter:
    host, pid, now = this_host(), os.getpid(), clock.wall_ns()
    origin = Origin(
        journal=new_journal_id(host, pid, now, os.urandom(4).hex()),
        host=host,
        pid=pid,
        start_ns=now,
        boot=boot_id(),
        process_start_ticks=start_ticks(pid) or 0,
        role=role,
        version=__version__,
        pid_namespace=pid_namespace(),
    )
    return JournalWriter(
        root,
        origin,
        segment_bytes=_bytes(environment, "RUNWATCH_SEGMENT_BYTES", DEFAULT_SEGMENT_BYTES),
        budget_bytes=_bytes(environment, "RUNWATCH_JOURNAL_BYTES", DEFAULT_BUDGET_BYTES),
        mapped=not is_off("RUNWATCH_MAPPED", environment),
        clock=clock,
        on_keep=on_keep,
    )


def _bytes(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, "").strip()
    if not value:
        return default
    if value.isascii() and value.isdigit() and 0 < len(value) < 16:
        return int(value)
    tally.count(f"setting {name}", f"{name} has value {value!r}, not a number of bytes: ignored")
    return default
