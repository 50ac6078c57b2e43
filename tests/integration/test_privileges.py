"""An agent for several users, with exactly the capabilities it needs, and with fewer."""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.capture import process
from runwatch.journal.liveness import ENDED, this_host
from runwatch.journal.reader import JournalReader
from runwatch.record import Event
from runwatch.testing import until
from tests.integration import filtered
from tests.integration.processes import Cluster, end
from tests.integration.strangers import (
    ALICE,
    MALLORY,
    SERVANT,
    capable,
    command_as,
    do_as,
    forge,
    honest,
    needs_users,
    origin_of,
    process_of,
)
from tests.sampling import sampled
from tests.tokens import known, urlopen

pytestmark = needs_users

NEEDED: Final = ("setuid", "setgid", "sys_ptrace")
DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PROFILE: Final = DEPLOY / "seccomp-agent.json"
FILTERED: Final = [sys.executable, filtered.__file__, str(PROFILE)]
PROGRAM: Final = """
import ctypes, os, subprocess, sys
import runwatch
run, how, *more = sys.argv[1:]
runwatch.init(run)
runwatch.log(value=1.0, step=1)
def waits_for_a_word():
    return sys.stdin.readline()
def keeps_the_lock():
    ctypes.PyDLL(None).pause()
if how == "held":
    keeps_the_lock()
if how == "parent":
    subprocess.Popen(more, stdin=subprocess.PIPE)
word = waits_for_a_word().strip()
os._exit(int(word or 0))
"""
OTHERS_CHILD: Final = "def a_secret():\n    input()\na_secret()"


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    return shared_cluster


class Program:
    """Of that user; it records, waits, and ends as it is told."""

    def __init__(self, cluster: Cluster, uid: int, run: str, *how: str) -> None:
        self.run = run
        self.process = subprocess.Popen(
            [*command_as(uid), sys.executable, "-c", PROGRAM, run, *(how or ("waits",))],
            env=cluster.environment | {"HOME": "/"}, cwd="/", text=True,
            stdin=subprocess.PIPE, stderr=cluster.log, start_new_session=True,
        )  # fmt: skip
        self.pid = self.process.pid

    def end(self, code: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{code}\n")
        self.process.stdin.flush()
        assert self.process.wait(60) == code

    def close(self) -> None:
        with suppress(ProcessLookupError):  # what it started goes with it
            os.killpg(self.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def programs(cluster: Cluster) -> Iterator[list[Program]]:
    made: list[Program] = []
    yield made
    for program in made:
        program.close()


def start_agent(cluster: Cluster, before: list[str]) -> None:
    cluster.agent = subprocess.Popen(
        [*before, sys.executable, "-m", "runwatch.agent", "--dir", str(cluster.node_root),
         "--idle", "0", "--all-hosts", "--head", f"127.0.0.1:{cluster.grpc_port}"],
        env=cluster.environment | {"HOME": "/", "RUNWATCH_TOKEN": known(cluster.grpc_port)},
        stdout=cluster.log, stderr=cluster.log,
    )  # fmt: skip


def sees(agent: subprocess.Popen[bytes] | None, pid: int) -> bool:
    """Whether the agent has a pidfd on the process."""
    assert agent is not None and agent.poll() is None
    texts = [_text(path) for path in Path(f"/proc/{agent.pid}/fdinfo").glob("*")]
    return any(f"Pid:\t{pid}\n" in text for text in texts)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def ask_for(shared: Path, kind: str, **body: Any) -> None:
    """As root, by a file."""
    folder = shared / "commands" / this_host()
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)  # whoever carries it out takes it away first
    text = json.dumps(
        {"id": f"{kind}-1", "kind": kind, "body": body, "issued_ns": 0, "expires_ns": 2**62}
    )
    (folder / ".new").write_text(text)
    (folder / ".new").chmod(0o644)
    (folder / ".new").rename(folder / f"{kind}.json")


def told(shared: Path, kind: str) -> list[Event]:
    """What the agents have recorded."""
    found: list[Event] = []
    for folder in (shared / "journals").iterdir():
        reader = JournalReader(folder)
        try:
            if reader.origin is not None and reader.origin.role == "agent":
                while (batch := reader.read()) is not None:
                    found += [event for event in batch.events if event.kind == kind]
        finally:
            reader.close()
    return found


def bodies(shared: Path, kind: str) -> list[dict[str, Any]]:
    return [dict(event.body) for event in told(shared, kind)]


def runs_at(cluster: Cluster) -> dict[str, str]:
    """Runs that the head knows, and how they stand."""
    with urlopen(f"http://127.0.0.1:{cluster.http_port}/api/v1/runs", timeout=100) as answer:
        return {run["run"]: run["state"] for run in json.load(answer)["runs"]}


@pytest.mark.parametrize(
    ("uid", "behind"),
    sampled([(SERVANT, []), (0, FILTERED), (SERVANT, FILTERED), (0, [])], 2),
    ids=["servant-plain", "container root-filtered", "servant-filtered", "container root-plain"],
)
def test_three_capabilities_serve_two_users(
    cluster: Cluster, shared: Path, programs: list[Program], uid: int, behind: list[str]
) -> None:
    if behind and ctypes.util.find_library("seccomp") is None:
        pytest.skip("no libseccomp here")
    if uid:  # what root would own in a DaemonSet is the servant's
        for name in ("agent", "commands"):
            os.chown(shared / name, uid, uid)
    cluster.start_head()
    programs += [Program(cluster, ALICE, "alices"), Program(cluster, MALLORY, "mallorys")]
    start_agent(cluster, [*capable(uid, *NEEDED), *behind])
    for program in programs:
        until(lambda p=program: sees(cluster.agent, p.pid), 60, cluster.words())
    until(lambda: {"alices", "mallorys"} <= runs_at(cluster).keys(), 60, cluster.words())
    ask_for(shared, "stacks")
    until(lambda: told(shared, "command_result"), 60, cluster.words())
    stacks = {body["pid"]: body for body in bodies(shared, "stacks")}
    for program in programs:
        assert "waits_for_a_word" in json.dumps(stacks[program.pid]), stacks[program.pid]
        assert stacks[program.pid]["how"] == "outside"
    for code, program in zip((3, 7), programs, strict=True):
        program.end(code)
        ended = until(lambda p=program: exit_of(shared, p.pid), 60, cluster.words())
        assert ended["code"] == code
    for path in (shared / "journals").glob(f"*/{ENDED}"):
        assert path.stat().st_uid == path.parent.stat().st_uid in (ALICE, MALLORY)
    assert "Traceback" not in cluster.words() and "WARNING" not in cluster.words()


def exit_of(shared: Path, pid: int) -> dict[str, Any] | None:
    return next((body for body in bodies(shared, "process_exit") if body["pid"] == pid), None)


def looked_at(cluster: Cluster, shared: Path) -> dict[int, dict[str, Any]]:
    """Stacks of all, by process."""
    ask_for(shared, "stacks")
    until(lambda: told(shared, "command_result"), 60, cluster.words())
    return {body["pid"]: body for body in bodies(shared, "stacks")}


def test_without_ptrace_a_servant_asks_them(
    cluster: Cluster, shared: Path, programs: list[Program]
) -> None:
    """Through their sockets, which answer their own user only, and by a signal, which only their
    own user may send."""
    for name in ("agent", "commands"):
        os.chown(shared / name, SERVANT, SERVANT)
    programs += [Program(cluster, ALICE, "alices"), Program(cluster, MALLORY, "mallorys", "held")]
    start_agent(cluster, capable(SERVANT, "setuid", "setgid"))
    for program in programs:
        until(lambda p=program: sees(cluster.agent, p.pid), 60, cluster.words())
    alices, mallorys = programs
    until(lambda: is_stuck(mallorys.pid), 60, cluster.words())
    stacks = looked_at(cluster, shared)
    assert stacks[alices.pid]["how"] == "asked", stacks[alices.pid]
    assert "waits_for_a_word" in json.dumps(stacks[alices.pid])
    assert stacks[mallorys.pid]["how"] == "signalled", stacks[mallorys.pid]
    assert "keeps_the_lock" in json.dumps(stacks[mallorys.pid])
    assert "CAP_SYS_PTRACE" in json.dumps(stacks[alices.pid]["problems"])
    alices.end(3)
    ended = until(lambda: exit_of(shared, alices.pid), 60, cluster.words())
    assert ended["code"] == 3


def is_stuck(pid: int) -> bool:
    """In `pause`, which some machines make of another call."""
    facts = process.look_up(pid)
    return facts is not None and facts.main is not None and facts.main.syscall in ("pause", "ppoll")


@pytest.mark.parametrize(
    ("uid", "missing"),
    sampled([(SERVANT, "setuid"), (0, "setgid"), (SERVANT, "setgid"), (0, "setuid")], 2),
)
def test_without_one_it_says_what_it_cannot_do_and_goes_on(
    cluster: Cluster, shared: Path, programs: list[Program], uid: int, missing: str
) -> None:
    for name in ("agent", "commands"):
        os.chown(shared / name, uid, uid)
    cluster.start_head()
    programs += [Program(cluster, ALICE, "alices"), Program(cluster, uid, "own")]
    left = [name for name in NEEDED if name != missing]
    start_agent(cluster, capable(uid, *left))
    until(lambda: sees(cluster.agent, programs[1].pid), 60, cluster.words())
    until(lambda: "own" in runs_at(cluster), 60, cluster.words())
    words = until(lambda: w if "is set aside" in (w := cluster.words()) else None, 60)
    assert f"cannot act as them (CAP_{missing.upper()} missing)" in words
    assert "give it CAP_SETUID and CAP_SETGID" in words
    assert f"belongs to user {ALICE}, and we cannot act as that user" in words
    aside = until(lambda: bodies(shared, "journal_aside"), 60, cluster.words())
    assert "cannot act as that user" in aside[0]["why"]
    assert "alices" not in runs_at(cluster) and not sees(cluster.agent, programs[0].pid)
    assert cluster.agent is not None and end(cluster.agent, signal.SIGTERM) == 0
    assert "Traceback" not in cluster.words()


def test_what_a_program_runs_with_anothers_rights_is_not_looked_into(
    cluster: Cluster, shared: Path, programs: list[Program]
) -> None:
    """As sudo would: its user may not look into it, and the root agent could."""
    become = shared / "become"
    shutil.copy(shutil.which("setpriv") or "", become)
    become.chmod(0o4755)
    command = [str(become), "--reuid", "0", "--regid", "0", "--clear-groups"]
    programs.append(
        Program(cluster, MALLORY, "mallorys", "parent", *command, sys.executable, "-c",
                OTHERS_CHILD)
    )  # fmt: skip
    parent = programs[0].pid
    children = Path(f"/proc/{parent}/task/{parent}/children")
    until(lambda: is_python_of(0, _text(children)), 60, cluster.words())
    start_agent(cluster, [])
    until(lambda: sees(cluster.agent, parent), 60, cluster.words())
    stacks = looked_at(cluster, shared)
    assert "waits_for_a_word" in json.dumps(stacks[parent])
    child = stacks[int(_text(children))]
    assert child["threads"] == [] and "runs as user 0" in child["problems"][0], child
    assert "a_secret" not in json.dumps(list(stacks.values()))


def is_python_of(uid: int, pid: str) -> bool:
    folder = Path("/proc") / pid.strip()
    words = _text(folder / "status")
    return bool(pid) and f"Uid:\t{uid}\t" in words and "python" in os.readlink(folder / "exe")


def test_what_its_owner_may_not_read_root_does_not_read_for_him(
    cluster: Cluster, shared: Path, tmp_path: Path
) -> None:
    """Whatever a name is made to lead to: the kernel is asked for the owner, not for root."""
    closed = forge(shared, MALLORY, origin_of(2**22 - 7))
    for segment in closed.iterdir():
        segment.chmod(0)
    with process_of(ALICE) as pid:
        forge(shared, ALICE, origin_of(pid, number=1))
        start_agent(cluster, [])
        until(lambda: sees(cluster.agent, pid), 60, cluster.words())
        aside = until(lambda: bodies(shared, "journal_aside"), 60, cluster.words())
    assert [body["journal"] for body in aside] == [closed.name]
    assert "Permission denied" in aside[0]["why"]


REFUSED: Final = """
import ctypes, errno, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
POKE, SEIZE, DETACH = 4, 0x4206, 17
with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
    assert libc.ptrace(SEIZE, other.pid, 0, 0) == 0
    assert libc.ptrace(POKE, other.pid, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM
    other.stdin.close()
assert libc.unshare(0x10000000) == -1 and ctypes.get_errno() == errno.EPERM
assert libc.mount(b"x", b"/", b"tmpfs", 0, None) == -1 and ctypes.get_errno() == errno.EPERM
try:
    os.chown(sys.argv[1], 1, 1)
except PermissionError:
    print("refused")
"""


@pytest.mark.skipif(ctypes.util.find_library("seccomp") is None, reason="no libseccomp here")
def test_behind_the_filter_even_root_only_looks(tmp_path: Path) -> None:
    done = subprocess.run(
        [*FILTERED, sys.executable, "-c", REFUSED, str(tmp_path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "refused\n", done.stderr


def test_the_manifests_give_what_is_tested_here() -> None:
    manifest = (DEPLOY / "daemonset.yaml").read_text()
    assert re.findall(r"add: \[(.*)\]", manifest) == [", ".join(NEEDED).upper()]
    unit = (DEPLOY / "runwatch-agent.service").read_text()
    names = " ".join(f"CAP_{name.upper()}" for name in NEEDED)
    for setting in ("AmbientCapabilities", "CapabilityBoundingSet"):
        assert f"\n{setting}={names}\n" in unit


def test_profiles_that_only_their_user_may_read_are_brought(cluster: Cluster, shared: Path) -> None:
    for name in ("agent", "commands"):
        os.chown(shared / name, SERVANT, SERVANT)
    session = "run-1/plugins/profile/s1"
    script = (
        'umask 077; mkdir -p "$1"; echo trace > "$1/.x"; touch -d @1 "$1/.x"; mv "$1/.x" "$1/$2"'
    )
    do_as(MALLORY, script, shared / "profiles" / session, "host.xplane.pb")
    cluster.start_head()
    start_agent(cluster, capable(SERVANT, *NEEDED))
    kept = cluster.head_root / "profiles" / session / "host.xplane.pb"
    until(kept.exists, 60, cluster.words())
    assert kept.read_text() == "trace\n"


def test_a_process_of_another_container_is_not_one_beside_us(
    cluster: Cluster, shared: Path
) -> None:
    """Two tenants may have the same user id; what tells them apart is where they live."""
    boxed = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", *command_as(ALICE), "cat"],
        stdin=subprocess.PIPE, cwd="/",
    )  # fmt: skip
    try:
        children = Path(f"/proc/{boxed.pid}/task/{boxed.pid}/children")
        pid = int(until(lambda: _text(children).strip(), 60))
        until(lambda: process.users(pid) == (ALICE,) * 4, 60)
        forge(shared, ALICE, origin_of(pid, number=1))
        forge(shared, ALICE, origin_of(pid, number=2, pid_namespace=0))
        with process_of(ALICE) as beside:
            forge(shared, ALICE, origin_of(beside, number=3))
            start_agent(cluster, [])
            until(lambda: sees(cluster.agent, beside), 60, cluster.words())
        assert not sees(cluster.agent, pid)
        refused = f"process {pid}, which lives in another PID namespace than it says"
        assert cluster.words().count(refused) == 2
    finally:
        boxed.communicate()


LOOKING: Final = """
import sys
from pathlib import Path
from runwatch import identity
from runwatch.agent.syncing import DiskSync
from runwatch.ship.estates import Estates
root, journal = Path(sys.argv[1]), sys.argv[2]
assert identity.begin() == ""
sync = DiskSync(root)
sync.look_at([journal])
sync.round()
print(sync._reached, Estates(root)._pulse(journal)[0])
"""


@pytest.mark.parametrize("uid", [SERVANT, 0], ids=["servant", "container root"])
def test_what_others_record_is_put_on_the_disk_and_seen_to_beat(shared: Path, uid: int) -> None:
    """Nobody but its owner may list a journal, not even such a root."""
    journal = honest(shared, MALLORY, os.getpid())
    done = subprocess.run(
        [*capable(uid, *NEEDED), sys.executable, "-c", LOOKING, str(shared), journal],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{{{journal!r}: 0}} 0\n", "")
