"""Where a process's journal lies, which head it is for, and where people look at the run."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from runwatch._version import __version__
from runwatch.clock import Clock, system_clock
from runwatch.interruption import let_pass
from runwatch.journal import heads as heads_note
from runwatch.journal.liveness import boot_id, pid_namespace, read_stat, start_ticks, this_host
from runwatch.journal.moved import check_private, fallback_place, note_wanted
from runwatch.journal.segment import DEFAULT_SEGMENT_BYTES, new_journal_id
from runwatch.journal.writer import DEFAULT_BUDGET_BYTES, JournalWriter
from runwatch.record import Origin, Role, RunId
from runwatch.sdk.guard import attempt, guarded, tally
from runwatch.sdk.switches import is_off, is_on


def open_journal(
    directory: str | os.PathLike[str] | None,
    on_keep: Callable[[], None],
    *,
    role: Role = "process",
    since_ns: int | None = None,
    environment: Mapping[str, str] = os.environ,
    clock: Clock = system_clock,
) -> JournalWriter | None:
    """A new journal in the first directory that takes one; None (counted) if none does.

    `since_ns` (monotonic): the process's part in the run began then; None: now.
    """
    configured = directory or environment.get("RUNWATCH_DIR") or "~/.runwatch"
    named = attempt("read which head is named", None, lambda: named_head(environment, configured))
    heads = heads_note.note(heads_note.Destination([named])) if named is not None else b""
    try:
        return _open(absolute(configured), on_keep, role, since_ns, environment, clock, heads)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        let_pass(error)
        first = error
    fallback = fallback_place(environment)
    try:
        _claim_private(fallback)
        writer = _open(fallback, on_keep, role, since_ns, environment, clock, heads)
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
    since_ns: int | None,
    environment: Mapping[str, str],
    clock: Clock,
    heads: bytes,
) -> JournalWriter:
    host, pid, now = this_host(), os.getpid(), clock.wall_ns()
    late_ns = 0 if since_ns is None else max(clock.mono_ns() - since_ns, 0)
    origin = Origin(
        journal=new_journal_id(host, pid, now, os.urandom(4).hex()),
        host=host,
        pid=pid,
        start_ns=now - late_ns,
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
        heads=heads,
    )


def named_head(
    environment: Mapping[str, str], directory: str | os.PathLike[str]
) -> heads_note.NamedHead | None:
    """The head that RUNWATCH_HEAD names, or the settings file of the directory; None: none does."""
    settings: Mapping[str, str] = {
        "head": environment.get("RUNWATCH_HEAD", ""),
        "token": environment.get("RUNWATCH_TOKEN", ""),
        "token_file": environment.get("RUNWATCH_TOKEN_FILE", ""),
        "ca": environment.get("RUNWATCH_CA", ""),
    }
    if not settings["head"].strip():
        settings = _in_file(absolute(directory) / "config.toml") | {
            name: value for name, value in settings.items() if value
        }
    if not settings.get("head", "").strip():
        return None
    from runwatch.address import http_address, place_of, split_token  # few programs need it

    address, token = split_token(settings["head"])
    http_address(address)  # raises, and is counted: nobody could send it there
    files = {n: str(absolute(settings[n])) for n in ("token_file", "ca") if settings.get(n)}
    token = "" if "token_file" in files else settings.get("token") or token
    return heads_note.NamedHead(address, place_of(address), token, **files)


class Shown:
    """A run, as far as people look at it."""

    id: RunId
    name: str
    rank: int
    _directory: str | os.PathLike[str] | None

    @property
    def url(self) -> str:
        """Where the run is shown; empty if no head is known.  Asks nobody: the head may be away."""
        return attempt("find the run's page", "", lambda: _page(self._directory, self.id))

    @guarded("say where to look")
    def _say_where(self) -> None:
        """One line for people, of the first run of rank 0; RUNWATCH_QUIET=1 keeps it away."""
        global _has_said
        if _has_said or self.rank != 0 or is_on("RUNWATCH_QUIET"):
            return
        _has_said = True
        url = self.url
        if url:
            _say(f"runwatch: run {self.name!r} is shown at {url}")
        elif sys.stderr.isatty():
            _say(f"runwatch: recording run {self.name!r}; `runwatch ui` shows it")


_has_said = False


def _say(words: str) -> None:
    """Never waits: nobody may read the pipe behind stderr, and it may be full."""
    with contextlib.suppress(OSError, ValueError):
        ready = select.poll()
        ready.register(sys.stderr.fileno(), select.POLLOUT)
        if not ready.poll(0):
            return
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _page(directory: str | os.PathLike[str] | None, run: RunId) -> str:
    from urllib.parse import quote

    from runwatch.address import page_of, read_quietly

    environment = os.environ
    root = absolute(directory or environment.get("RUNWATCH_DIR") or "~/.runwatch")
    named = named_head(environment, root)
    if named is not None:
        page = page_of(named.address, root)
    else:
        note = read_quietly(root)
        page = note[0].http if note is not None and _runs_here(note[0].host, note[0].pid) else ""
    return f"{page}/#/run/{quote(run, safe='')}" if page else ""


def _runs_here(host: str, pid: int) -> bool:
    """Whether a head that left its note still runs; True for one on another host."""
    return host != this_host() or (stat := read_stat(pid)) is not None and not stat.dead


def _in_file(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    import tomllib  # slow to import

    with path.open("rb") as file:
        table = tomllib.load(file).get("agent", {})
    names = ("head", "token", "token_file", "ca")
    return {name: str(table[name]) for name in names if table.get(name)}


def _bytes(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, "").strip()
    if not value:
        return default
    if value.isascii() and value.isdigit() and 0 < len(value) < 16:
        return int(value)
    tally.count(f"setting {name}", f"{name} has value {value!r}, not a number of bytes: ignored")
    return default
