"""`runwatch status`: this user's agent on this host, or the node's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from runwatch._version import __version__
from runwatch.address import is_same_head
from runwatch.agent.note import AgentNote, HeadState, read_note
from runwatch.cli.pictures.moments import time as moment
from runwatch.cli.status.types import Problem, Section, user_name, whose
from runwatch.files import Folder, Refused, shelf
from runwatch.journal.agents import FOLDER, is_locked, lock_name
from runwatch.journal.liveness import pid_namespace

LOCKS: Final = Path("/proc/locks")
PROC: Final = Path("/proc")
_LOCK_BYTES: Final = 4096
_MOST_LOCKS: Final = 200


@dataclass(frozen=True, slots=True)
class Agent:
    """`state`: running, gone (killed: no last note), none, unknown (we may not look)."""

    state: str
    host: str = ""
    owner: int | None = None
    pid: int | None = None
    since_ns: int = 0
    note: AgentNote | None = None

    @property
    def runs(self) -> bool:
        return self.state == "running"

    @property
    def heads(self) -> Sequence[HeadState]:
        """Where it sends to, if it runs."""
        return self.note.heads if self.runs and self.note is not None else ()

    def sends_to(self, address: str) -> bool:
        """Whether it is connected to this head."""
        return any(h.connected and is_same_head(h.address, address) for h in self.heads)

    @property
    def own_head(self) -> str:
        """Where it sends journals that name no head."""
        return next((head.address for head in self.heads if head.own), "")


def find(root: Path, host: str) -> Agent:
    """This host's agent, or else one that serves all hosts of the directory."""
    try:
        with shelf(root, FOLDER) as folder:
            own = _agent_of(folder, host)
            return own if own.runs else next(_all_host_agents(folder, host), own)
    except FileNotFoundError:
        return Agent("none", host)
    except PermissionError:
        return _in_closed_folder(root, host)
    except OSError:
        return Agent("unknown", host)


def _agent_of(folder: Folder, host: str) -> Agent:
    name = lock_name(host)
    try:
        about = folder.stat(name)
    except FileNotFoundError:
        return Agent("none", host)
    note = read_note(folder, host, folder.known())
    if about.st_uid not in folder.known():
        return Agent("none", host)  # a stranger's file is no agent of ours
    if not lock_is_held(folder, name):
        gone = note is not None and not note.ended_ns
        pid = note.pid if note else None
        since = note.since_ns if note else 0
        return Agent("gone" if gone else "none", host, about.st_uid, pid, since, note)
    pid = _holder(folder, name)
    if note is not None and note.pid != pid:
        note = None  # an earlier agent wrote it
    since = note.since_ns if note else about.st_mtime_ns
    return Agent("running", host, about.st_uid, pid, since, note)


def _all_host_agents(folder: Folder, host: str) -> Iterator[Agent]:
    names = sorted(name for name in folder.names() if name.endswith(".lock"))
    for name in names[:_MOST_LOCKS]:
        other = name.removesuffix(".lock")
        if name != lock_name(host):
            agent = _agent_of(folder, other)
            if agent.runs and agent.note is not None and agent.note.all_hosts:
                yield agent


def _in_closed_folder(root: Path, host: str) -> Agent:
    """The folder belongs to somebody else, as an administrator sets it up for a node's agent."""
    with suppress(OSError), Folder.at(root) as folder:
        owner = folder.stat(FOLDER).st_uid
        for pid in _agents_in(PROC, owner):
            return Agent("running", host, owner, pid)
        return Agent("unknown", host, owner)
    return Agent("unknown", host)


def _agents_in(proc: Path, owner: int) -> Iterator[int]:
    """Processes of that user that look like agents; we may see only their command lines."""
    for name in sorted(os.listdir(proc)):
        if not name.isdigit():
            continue
        with suppress(OSError):
            if os.stat(proc / name).st_uid != owner:
                continue
            words = (proc / name / "cmdline").read_bytes().split(b"\0")
            if b"runwatch.agent" in words or _is_command(words):
                yield int(name)


def _is_command(words: list[bytes]) -> bool:
    """`runwatch agent`, also as `python /usr/bin/runwatch agent`."""
    pairs = zip(words[:3], words[1:4], strict=False)
    return any(word.endswith(b"runwatch") and after == b"agent" for word, after in pairs)


def lock_is_held(folder: Folder, name: str) -> bool:
    """Whether a user whom we trust in this folder holds the lock."""
    try:
        return is_locked(folder.open(name, owners=folder.known())) is True
    except (FileNotFoundError, Refused):
        return False
    except PermissionError:  # root's, readable only for root
        return _is_listed(folder.stat(name).st_ino)


def _is_listed(inode: int) -> bool:
    """Whether the kernel's list of locks has it, if we may read the list."""
    with suppress(OSError):
        for line in LOCKS.read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and "WRITE" in fields and fields[5].endswith(f":{inode}"):
                return True
    return False


def _holder(folder: Folder, name: str) -> int | None:
    """The pid of the lock's holder; None if it is in another container, where pids differ."""
    try:
        lock = json.loads(folder.text(name, _LOCK_BYTES, owners=folder.known()))
        pid, space = int(lock["pid"]), lock.get("pid_namespace", 0)
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError):
        return None
    return pid if space in (0, pid_namespace()) else None


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def section(agent: Agent, *, living: int, off: bool, waits: bool) -> Section:
    """`living`: programs that record here now; `off`: the environment forbids starting an agent;
    `waits`: some records are not sent yet."""
    lines, problems = _words(agent, living, off, waits)
    return Section("agent", _facts(agent), lines, problems)


def _facts(agent: Agent) -> dict[str, Any]:
    note = agent.note
    return {
        "state": agent.state,
        "host": agent.host,
        "user": None if agent.owner is None else user_name(agent.owner),
        "pid": agent.pid,
        "since_ns": agent.since_ns or None,
        "version": note.runwatch if note else None,
        "head": note.head if note else None,
        "connected": note.connected if note and agent.runs else None,
        "problem": note.problem if note and agent.runs else "",
        "heads": [asdict(head) for head in agent.heads],
        "connected_changed_ns": note.changed_ns if note and agent.runs else None,
        "all_hosts": note.all_hosts if note else None,
        "ended_ns": (note.ended_ns or None) if note else None,
    }


def _words(agent: Agent, living: int, off: bool, waits: bool) -> tuple[list[str], list[Problem]]:
    if agent.state == "unknown":
        who = f" belongs to {user_name(agent.owner)}" if agent.owner is not None else ""
        closed = f"the folder `{FOLDER}`{who or ' cannot be read'}"
        lines = [f"{closed}: we cannot see whether an agent runs"]
        return lines, []
    if agent.runs:
        return _running_words(agent)
    return _none_words(agent, living, off, waits)


def _none_words(
    agent: Agent, living: int, off: bool, waits: bool
) -> tuple[list[str], list[Problem]]:
    lines, note = ["no agent runs; the next program that records starts one"], agent.note
    start = "start one: `runwatch agent`"
    if off:
        lines = ["no agent runs, and programs start none: RUNWATCH_AGENT is off"]
    if agent.state == "gone" and note is not None:
        lines.append(
            f"the last one (pid {note.pid}, since {moment(note.since_ns)}) was killed: it wrote no "
            "last note"
        )
    elif note is not None:
        lines.append(f"the last one ended at {moment(note.ended_ns)}")
    if living:
        who = "a program records" if living == 1 else f"{living} programs record"
        soon = start if off else f"the program starts another within a minute or so; or {start}"
        return lines, [Problem(f"{who} here, and no agent watches it", soon)]
    if waits:
        return lines, [Problem("records wait to be sent, and no agent sends them", start)]
    return lines, []


def _running_words(agent: Agent) -> tuple[list[str], list[Problem]]:
    note, owner = agent.note, agent.owner
    pid = f"pid {agent.pid}" if agent.pid is not None else "in another container"
    of = f"of {whose(owner)}" if owner is not None and owner != os.geteuid() else "yours"
    since = f" since {moment(agent.since_ns)}" if agent.since_ns else ""
    lines = [f"runs{since} ({pid}, {of})"]
    if note is None and not agent.since_ns and owner is not None:
        who = user_name(owner)
        lines.append(f"only {who} can see whether it serves this directory: `{FOLDER}` is {who}'s")
        return lines, []
    if note is None:
        lines.append("more is unknown: it is another user's, an older version, or just starting")
        return lines, []
    if note.all_hosts:
        lines.append(f"on host {agent.host}; it serves every host that records in this directory")
    if note.runwatch != __version__:
        lines.append(
            f"version {note.runwatch}, ours is {__version__}; it ends when idle, and the next "
            "program starts ours"
        )
    else:
        lines.append(f"version {note.runwatch}, the same as ours")
    if not note.heads:
        lines.append("sends nothing: no journal here names a head, and it was started without one")
    problems = []
    for head in note.heads:
        more, wrong = _head_words(head)
        lines += more
        problems += wrong
    return lines, problems


def _head_words(head: HeadState) -> tuple[list[str], list[Problem]]:
    since = moment(head.changed_ns)
    if not head.connected:
        what = f"not connected to {head.address} since {since}: {head.problem}"
        return [], [Problem(what, _todo(head.problem))]
    moved = ", which has another address now" if head.moved else ""
    line = f"sends to {head.address}{moved}, connected since {since}"
    if not head.problem:
        return [line], []
    return [line], [Problem(f"{head.address} accepts nothing now: {head.problem}", _LATER)]


_LATER: Final = "records are sent when that is over; nothing is lost meanwhile"


def _todo(problem: str) -> str:
    words = problem.lower()
    if words.startswith(("unauthenticated", "permission denied")):
        return (
            "give programs the head's token (RUNWATCH_TOKEN or RUNWATCH_TOKEN_FILE): the next one "
            "hands it to the agent; an agent's own head needs it where the agent is started"
        )
    if "ssl" in words or "tls" in words or "certificate" in words:
        return "set RUNWATCH_CA to the certificate to check the head with; https:// turns TLS on"
    return (
        "the agent retries by itself, and nothing is lost; if that head has moved, it is enough "
        "that one program names its new address"
    )
