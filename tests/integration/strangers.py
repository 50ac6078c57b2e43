"""Other users on this machine, and what they lay in a directory that everybody may write."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.journal.liveness import boot_id, pid_namespace, start_ticks, this_host
from runwatch.journal.segment import (
    DEFINE,
    ORIGIN,
    Header,
    definition_to_json,
    event_record,
    new_journal_id,
    origin_to_json,
    segment_name,
    text_record,
)
from runwatch.record import NO_STEP, JournalId, Origin, Role, RunId, RunScope

MALLORY: Final = 61_001
ALICE: Final = 61_002
SERVANT: Final = 61_009
"""The user that an agent runs as where it need not be root."""
SHELVES: Final = ("journals", "agent", "profiles", "commands")
needs_users: Final = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can be several users (setpriv)",
)


def command_as(uid: int) -> list[str]:
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]


def capable(uid: int, *names: str) -> list[str]:
    """As that user with these capabilities and no others."""
    wanted = ",".join(["-all", *(f"+{name}" for name in names)])
    if uid == 0:  # a container's: root, without what was dropped
        return [*command_as(uid), "--bounding-set", wanted, "--inh-caps", wanted]
    return [*command_as(uid), "--inh-caps", wanted, "--ambient-caps", wanted]


def without(*names: str) -> list[str]:
    """As root, but for these capabilities."""
    return ["setpriv", "--bounding-set", ",".join(f"-{name}" for name in names)]


NO_POWER: Final = without("dac_override", "dac_read_search", "fowner", "chown")
"""Root without these is a user like others: it may neither read nor take away what is theirs."""


def do_as(uid: int, script: str, *words: object) -> None:
    """A shell script, run by that user."""
    command = [*command_as(uid), "sh", "-euc", script, "sh", *map(str, words)]
    subprocess.run(command, check=True, timeout=100, cwd="/")


@contextmanager
def everybodys() -> Iterator[Path]:
    """A Runwatch directory as a node's administrator would make it for all users."""
    root = Path(tempfile.mkdtemp(prefix="runwatch-everybodys-"))
    try:
        for folder in (root, *(root / name for name in SHELVES)):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777)
        yield root
    finally:
        shutil.rmtree(root)


@contextmanager
def process_of(uid: int) -> Iterator[int]:
    """The number of a process of that user, which only waits."""
    command = [*command_as(uid), "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as made:
        assert made.stdin is not None and made.stdout is not None
        made.stdin.write(b"\n")
        made.stdin.flush()
        made.stdout.readline()  # it has become what it is to be
        yield made.pid
        made.stdin.close()


def origin_of(pid: int, *, number: int = 0, **more: Any) -> Origin:
    """As a process of ours would write it."""
    role: Role = "process"
    made = {
        "journal": new_journal_id(this_host(), pid, (1_700_000_000 + number) * 10**9, "ab"),
        "host": this_host(),
        "pid": pid,
        "start_ns": 1_700_000_000 * 10**9,
        "boot": boot_id(),
        "process_start_ticks": start_ticks(pid) or 1,
        "role": role,
        "version": "1",
        "pid_namespace": pid_namespace(),
    }
    return Origin(**{**made, **more})


def forge(root: Path, owner: int, origin: Origin, *events: tuple[str, str], name: str = "") -> Path:
    """A journal of that user that says what it likes; its run is called `forged`."""
    folder = root / "journals" / (name or origin.journal)
    folder.mkdir(mode=0o700)
    scope = RunScope(1, RunId("forged"), "forged", rank=0, world_size=1)
    wall = origin.start_ns
    data = Header(0, 1 << 20, 0, wall, wall).pack()
    data += text_record(ORIGIN, wall, origin_to_json(origin))
    data += text_record(DEFINE, wall, definition_to_json(scope))
    for kind, body in events:
        data += event_record(wall, kind, body.encode(), NO_STEP, 1)
    segment = folder / segment_name(0)
    segment.write_bytes(data.ljust(1 << 16, b"\0"))
    segment.chmod(0o600)
    for path in (folder, segment):
        os.chown(path, owner, owner)
    return folder


def honest(root: Path, uid: int, pid: int, number: int = 9) -> JournalId:
    origin = origin_of(pid, number=number)
    forge(root, uid, origin)
    return origin.journal
