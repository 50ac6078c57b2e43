"""What other users lay in a directory leads neither a root agent nor a head astray."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from runwatch.address import read_address
from runwatch.agent.errands import control
from runwatch.agent.errands.control import NoAnswer
from runwatch.capture import process
from runwatch.capture.asking import STACKS_FILE, NotSignalled, _Signalling
from runwatch.capture.dump_file import About, DumpFile
from runwatch.cli.asgi import Exchange
from runwatch.clock import system_clock
from runwatch.compat.goodput.log.remote import head_of
from runwatch.errors import UsageError
from runwatch.head.access.shares import Shares
from runwatch.head.main import LocalHead, _main_token
from runwatch.head.settings import HeadSettings
from runwatch.journal.control import SOCKET
from runwatch.journal.liveness import ENDED, PROC, this_host
from runwatch.journal.segment import segment_name
from runwatch.record.commands import Ping, PingResult
from runwatch.ship.courier import NOTES, Courier
from runwatch.testing import until
from tests import tokens
from tests.integration.processes import Cluster, agent_sees, end
from tests.integration.strangers import (
    ALICE,
    MALLORY,
    do_as,
    forge,
    honest,
    needs_users,
    origin_of,
    process_of,
    without,
)

pytestmark = needs_users

ORDINARY = without("dac_override", "dac_read_search", "fowner", "chown", "setuid")
"""Root without these is a user like others: what is not its own it may not read."""
SESSION = "run-1/plugins/profile/s1"
PLANE = Path(__file__).parents[1] / "fixtures" / "profiles" / "jax.xplane.pb"
LAY = 'mkdir -p "$(dirname "$2")"; ln -s "$1" "$2"'


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    return shared_cluster


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """Files of root's, which stay as they are and alone."""
    folder = tmp_path / "precious"
    folder.mkdir(mode=0o700)
    for name in ("a", "b", "c", "d", "e", "f"):
        (folder / name).write_text(name)
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict(
        zip("abcdef", "abcdef", strict=True)
    )


def profile(root: Path, uid: int, name: str, text: str) -> None:
    script = 'mkdir -p "$1"; printf %s "$3" > "$1/.$2"; touch -d @1 "$1/.$2"; mv "$1/.$2" "$1/$2"'
    do_as(uid, script, root / "profiles" / SESSION, name, text)


# ── 1: written through ────────────────────────────────────────────────────────────────────────


def test_a_root_agent_writes_through_no_link(
    cluster: Cluster, shared: Path, precious: Path
) -> None:
    host = this_host()
    gone = origin_of(2**22 - 7)  # no such process: its end is noted at once
    well_named = forge(shared, MALLORY, gone)
    do_as(MALLORY, LAY, precious / "a", well_named / ENDED)
    way_out = f"../../../../../../../..{precious}"
    forge(shared, MALLORY, origin_of(2**22 - 8, number=1, journal=way_out), name="way-out")
    for target, link in (
        ("b", f"agent/{host}.lock"),
        ("c", f"agent/{host}.head.tmp"),
        ("d", f"agent/{host}.head"),
        ("e", f"profiles/{NOTES}.part"),
        ("f", f"profiles/{NOTES}"),
    ):
        do_as(MALLORY, LAY, precious / target, shared / link)
    profile(shared, MALLORY, "host.xplane.pb", "a trace")
    cluster.start_head()
    cluster.start_agent()
    kept = cluster.head_root / "profiles" / SESSION / "host.xplane.pb"
    until(kept.exists, 60, cluster.words())
    for path in (well_named / ENDED, shared / f"agent/{host}.head", shared / "profiles" / NOTES):
        until(lambda path=path: stat.S_ISREG(path.lstat().st_mode), 30, str(path))
    assert (well_named / ENDED).stat().st_uid == MALLORY


def test_the_place_of_a_journal_swapped_for_a_link_is_not_followed(
    cluster: Cluster, shared: Path, precious: Path
) -> None:
    with process_of(MALLORY) as pid:
        folder = forge(shared, MALLORY, origin_of(pid))
        cluster.start_agent()
        until(lambda: agent_sees(shared, pid), 60, cluster.words())
        do_as(MALLORY, 'mv "$1" "$1.away"; ln -s "$2" "$1"', folder, precious)
    until(lambda: "cannot note the end" in cluster.words(), 60, cluster.words())


# ── 2: sent to the head ───────────────────────────────────────────────────────────────────────


def test_a_root_agent_brings_no_file_that_a_link_names(
    cluster: Cluster, shared: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * len(str(secret)))  # as long as the link: that is what was asked
    session = shared / "profiles" / SESSION
    profile(shared, MALLORY, "mine.xplane.pb", "a trace")
    do_as(MALLORY, LAY, secret, session / "theirs.xplane.pb")
    do_as(MALLORY, 'touch -hd @1 "$1"; mkfifo "$2"; touch -d @1 "$2"',
          session / "theirs.xplane.pb", session / "pipe.xplane.pb")  # fmt: skip
    do_as(MALLORY, 'ln -s "$1" "$2"', tmp_path, shared / "profiles/run-2")
    cluster.start_head()
    courier = Courier(
        shared,
        lambda: grpc.insecure_channel(f"127.0.0.1:{cluster.grpc_port}"),
        host="node",
        token=tokens.known(cluster.grpc_port),
        keep_days=1e6,
    )
    until(courier.round, 30, courier.problem)
    assert courier.round() and courier.settled
    kept = {path.name for path in (cluster.head_root / "profiles").rglob("*.xplane.pb")}
    assert kept == {"mine.xplane.pb"}


def test_what_is_kept_of_agents_is_for_the_head_alone(cluster: Cluster, shared: Path) -> None:
    profile(shared, MALLORY, "mine.xplane.pb", "a trace")
    cluster.start_head()
    cluster.start_agent()
    kept = cluster.head_root / "profiles" / SESSION / "mine.xplane.pb"
    until(kept.exists, 60, cluster.words())
    made = [cluster.head_root, *cluster.head_root.rglob("*")]
    outside = [path for path in made if "store" not in path.relative_to(cluster.head_root).parts]
    open_to_others = [path for path in outside if path.stat().st_mode & 0o077]
    assert open_to_others == []


# ── 3: served and deleted ─────────────────────────────────────────────────────────────────────


def ask(head: LocalHead, path: str, method: str = "") -> tuple[int, bytes]:
    loop = asyncio.new_event_loop()
    try:
        answer = Exchange(head.app, loop, path, None, method)
        return answer.status, b"".join(answer.body())
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def session_of_roots(place: Path) -> Path:
    folder = place / "work" / "plugins" / "profile" / "s1"
    folder.mkdir(parents=True)
    (folder / "root.xplane.pb").write_text("root's")
    return folder


def test_a_record_of_anothers_names_no_files_of_roots(shared: Path, tmp_path: Path) -> None:
    folder = session_of_roots(tmp_path)
    told = {"session": "s1", "state": "done", "directory": str(folder),
            "files": ["root.xplane.pb"], "framework": "jax"}  # fmt: skip
    forge(shared, MALLORY, origin_of(2**22 - 7), ("profile", json.dumps(told)))
    head = LocalHead(shared)
    try:
        while head.tail.round():
            pass
        status, said = ask(head, "/api/v1/profiles")
        (session,) = json.loads(said)["profiles"]
        assert (status, session["files"]) == (200, [])
        assert ask(head, "/api/v1/profiles/forged/s1/files/root.xplane.pb")[0] == 404
        ask(head, "/api/v1/profiles/forged/s1?yes=1", "DELETE")
        assert (folder / "root.xplane.pb").read_text() == "root's"
    finally:
        head.close()


def test_what_was_swapped_since_it_was_found_is_neither_served_nor_deleted(
    shared: Path, tmp_path: Path
) -> None:
    folder = session_of_roots(tmp_path)
    mine = shared / "profiles" / "work" / "plugins" / "profile" / "s1"
    do_as(MALLORY, 'mkdir -p "$1"; chmod -R 755 "$2"; echo x > "$1/root.xplane.pb"', mine,
          shared / "profiles/work")  # fmt: skip
    head = LocalHead(shared)
    try:
        profiles = head.context.profiles
        (kept,) = profiles.all()
        (file,) = kept.files
        os.close(file.open())
        do_as(MALLORY, 'mv "$1" "$1.old"; ln -s "$2" "$1"', mine / file.name, folder / file.name)
        with pytest.raises(OSError, match="not a regular file"):
            file.open()
        do_as(MALLORY, 'rm "$1"; mv "$1.old" "$1"; mv "$2" "$2.old"; ln -s "$3" "$2"',
              mine / file.name, shared / "profiles/work", tmp_path / "work")  # fmt: skip
        with pytest.raises(OSError, match="not a directory"):
            file.open()
        with pytest.raises(Exception, match="cannot delete"):
            profiles.delete(kept)
        assert [item.run for item in profiles.all()] == ["work.old"]
        assert (folder / "root.xplane.pb").read_text() == "root's"
    finally:
        head.close()


@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_what_is_swapped_while_xprof_runs_is_not_read_by_it(
    shared: Path, tmp_path: Path, swapped: str
) -> None:
    """XProf runs as the head's user: a path that mallory can change must not lead it."""
    told = PLANE.read_bytes()
    assert told.count(b"train") and b"s3cr3" not in told
    work, mine = shared / "profiles/work", "work/plugins/profile/s1"
    do_as(MALLORY, 'mkdir -p "$1"; cp "$2" "$1/node.xplane.pb"; chmod -R a+rX "$3"',
          shared / "profiles" / mine, PLANE, work)  # fmt: skip
    secret = tmp_path / mine / "node.xplane.pb"
    secret.parent.mkdir(parents=True)
    secret.write_bytes(told.replace(b"train", b"s3cr3"))
    secret.chmod(0o600)
    head = LocalHead(shared)

    def xprof(question: str) -> bytes:
        status, said = ask(head, f"/viewers/xprof/data/plugin/profile/{question}")
        assert status == 200, said
        return gzip.decompress(said) if said.startswith(b"\x1f\x8b") else said

    try:
        assert json.loads(xprof("runs")) == ["work/s1"]
        # Before XProf has looked into the file at all.
        if swapped == "file":
            place = shared / "profiles" / mine / "node.xplane.pb"
            do_as(MALLORY, 'rm "$1"; ln -s "$2" "$1"', place, secret)
        else:
            do_as(MALLORY, 'mv "$1" "$1.old"; ln -s "$2" "$1"', work, tmp_path / "work")
        trace = xprof("data?run=work%2Fs1&tag=trace_viewer&host=node")
        assert b"s3cr3" not in trace, "root's own file"
        assert b"train 4" in trace, "the file that was opened is shown all the same"
        assert b"s3cr3" not in xprof("run_tools?run=work%2Fs1") + xprof("runs")
    finally:
        head.close()


def test_a_head_believes_nothing_that_somebody_else_laid_beside_its_store(shared: Path) -> None:
    said = {"http": "http://127.0.0.1:9", "grpc": "127.0.0.1:9", "token": "known", "pid": 1}
    script = 'for name in head.json token shares.json; do printf %s "$1" > "$2/$name"; done'
    do_as(MALLORY, script, json.dumps(said), shared)
    assert read_address(shared) is None
    assert head_of(shared) is None
    token = _main_token(HeadSettings(dir=shared, bind="0.0.0.0")).now.word
    assert token and "known" not in token
    assert (shared / "token").stat().st_uid == 0
    assert _main_token(HeadSettings(dir=shared, bind="0.0.0.0")).now.word == token
    with pytest.raises(UsageError, match="belongs to user"):
        Shares(shared / "shares.json").add("run", 1.0, "")


# ── 4: processes of others ────────────────────────────────────────────────────────────────────


def test_a_process_is_its_own_users_journals(cluster: Cluster, shared: Path) -> None:
    with process_of(ALICE) as alices, process_of(ALICE) as target, process_of(0) as roots:
        forge(shared, MALLORY, origin_of(target, number=1))
        forge(shared, MALLORY, origin_of(target, number=2, process_start_ticks=0))
        forge(shared, MALLORY, origin_of(roots, number=3))
        honest(shared, ALICE, alices)  # the last of them by its name
        cluster.start_agent()
        until(lambda: agent_sees(shared, alices), 60, cluster.words())
        assert not agent_sees(shared, target) and not agent_sees(shared, roots)
        assert f"process {target}, which is user {ALICE}'s" in cluster.words()


def test_a_socket_that_leads_elsewhere_is_not_asked(shared: Path, tmp_path: Path) -> None:
    journal = forge(shared, MALLORY, origin_of(os.getpid()))
    with socket.socket(socket.AF_UNIX) as powerful:
        powerful.bind(str(tmp_path / "powerful"))
        powerful.listen()
        powerful.settimeout(0)
        do_as(MALLORY, LAY, tmp_path / "powerful", journal / SOCKET)
        with pytest.raises(NoAnswer, match="is no socket"):
            control.ask(journal, "ping", {})
        (journal / SOCKET).unlink()
        os.link(tmp_path / "powerful", journal / SOCKET)
        with pytest.raises(NoAnswer, match="somebody else serves"):
            control.ask(journal, "ping", {})
        with powerful.accept()[0] as asked:
            assert asked.recv(1) == b""  # it was told nothing


def test_stacks_that_a_process_wrote_are_read_through_no_link_and_no_pipe(
    shared: Path, precious: Path
) -> None:
    """What it writes when it is asked by signal; the text must be a dump, and root's could be."""
    (precious / "a").write_text(
        "Current thread 0x1 (most recent call first):\n  File x, line 1 in y"
    )
    facts = process.look_up(os.getpid())
    assert facts is not None
    try:
        for number, script in enumerate(('ln -s "$1" "$2"', 'mkfifo "$2"')):
            journal = forge(shared, MALLORY, origin_of(os.getpid(), number=number))
            do_as(MALLORY, script, precious / "a", journal / STACKS_FILE)
            asking = _Signalling(journal, facts, 1.0, system_clock, PROC)
            with pytest.raises(NotSignalled, match="is not a regular file"):
                asking._read(0)
    finally:
        (precious / "a").write_text("a")


# ── 5: names that lead out ────────────────────────────────────────────────────────────────────


def test_a_host_called_like_a_path_is_none(shared: Path, tmp_path: Path) -> None:
    host = f"../../../../../..{tmp_path}/out"
    forge(shared, MALLORY, origin_of(os.getpid(), host=host, role="agent"))
    head = LocalHead(shared)
    try:
        while head.tail.round():
            pass
        assert head.tail.agents() == set()  # who is called so is nobody
        assert head.outbox.send(Ping(), PingResult, [host], 5).hosts == ()
    finally:
        head.close()
    assert not (tmp_path / "out").exists()
    assert [*(shared / "commands").rglob("*")] == []


def test_dumps_go_through_no_link(shared: Path, precious: Path) -> None:
    about = About("host", 0, os.getpid())
    do_as(MALLORY, 'ln -s "$1" "$2"; mkdir -m 777 "$3"', precious, shared / "link", shared / "own")
    with pytest.raises(OSError, match="another user"):
        DumpFile.create(shared / "link", about, 10**18)
    file = DumpFile.create(shared / "own", about, 10**18, max_bytes=1000)
    try:
        do_as(MALLORY, 'ln -s "$1" "$2"', precious / "a", file.path.with_suffix(".1.txt"))
        file.write("# dump\n" + "x" * 2000)
        aside = file.path.with_suffix(".1.txt")
        assert aside.read_text().endswith("x" * 2000) and not aside.is_symlink()
        assert file.path.stat().st_mode & 0o077 == aside.stat().st_mode & 0o077 == 0
    finally:
        file.close()


# ── 7: pipes ──────────────────────────────────────────────────────────────────────────────────


def test_a_pipe_in_place_of_a_file_stops_nobody(cluster: Cluster, shared: Path) -> None:
    commands = shared / "commands" / this_host()
    commands.mkdir()
    commands.chmod(0o1777)
    do_as(MALLORY, 'mkfifo "$1/a.json"', commands)
    do_as(MALLORY, 'mkdir "$1"; mkfifo "$1/$2"', shared / "journals" / "1-pipe-1-a",
          segment_name(0))  # fmt: skip
    with process_of(ALICE) as pid, process_of(MALLORY) as other:
        folder = forge(shared, MALLORY, origin_of(other, number=1))
        do_as(MALLORY, 'mkfifo "$1/$2"', folder, segment_name(1))
        honest(shared, ALICE, pid)
        cluster.start_head()
        cluster.start_agent()
        until(lambda: agent_sees(shared, pid), 60, cluster.words())
        until(lambda: "1-pipe-1-a" in cluster.words(), 60, cluster.words())
        until(lambda: "a.json" in cluster.words(), 60, cluster.words())
        assert cluster.agent is not None
        assert end(cluster.agent, signal.SIGTERM) == 0
    assert stat.S_ISFIFO((commands / "a.json").stat().st_mode)


def test_commands_of_strangers_are_not_carried_out(cluster: Cluster, shared: Path) -> None:
    commands = shared / "commands" / this_host()
    commands.mkdir()
    commands.chmod(0o1777)
    now = 2**62
    said = {"kind": "ping", "body": {}, "issued_ns": 0, "expires_ns": now}
    for name, uid in (("a", MALLORY), ("b", 0)):
        text = json.dumps({"id": f"{name}-1", **said})
        do_as(uid, 'printf %s "$1" > "$2/.x"; mv "$2/.x" "$2/$3.json"', text, commands, name)
    cluster.start_agent()
    until(lambda: not (commands / "b.json").exists(), 60, cluster.words())
    assert (commands / "a.json").exists()
    assert f"belongs to user {MALLORY}" in cluster.words()


# ── 14: what cannot be read ───────────────────────────────────────────────────────────────────


def test_a_journal_that_cannot_be_read_is_set_aside(
    cluster: Cluster, shared: Path, tmp_path: Path
) -> None:
    forge(shared, MALLORY, origin_of(2**22 - 7, number=1))
    with process_of(0) as pid:
        forge(shared, 0, origin_of(pid, number=2), ("run_end", '{"status": "completed"}'))
        shown = subprocess.run(
            [*ORDINARY, sys.executable, "-m", "runwatch.cli", "runs", "--dir", str(shared)],
            env=cluster.environment, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert shown.returncode == 0, shown.stderr
        assert "forged" in shown.stdout and "Traceback" not in shown.stderr
        assert shown.stderr.count("is set aside") == 1
        with (tmp_path / "agent.log").open("wb") as log:
            agent = cluster.agent = subprocess.Popen(
                [*ORDINARY, sys.executable, "-m", "runwatch.agent", "--dir", str(shared),
                 "--idle", "0"],
                env=cluster.environment, stderr=log,
            )  # fmt: skip
        until(lambda: agent_sees(shared, pid), 60)
        assert end(agent, signal.SIGTERM) == 0
    words = (tmp_path / "agent.log").read_text()
    assert "cannot act as that user: CAP_SETUID missing" in words and "Traceback" not in words


FEW = """
import resource, sys
from pathlib import Path
from runwatch.ship.tail import Tail
root = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
tail = Tail(root, alive=lambda _: False)
hoarded = []
def hoard():
    try:
        while True:
            hoarded.append(open("/dev/null"))
    except OSError:
        pass
hoard()
assert tail.discover(surely=True) == []
while hoarded:
    hoarded.pop().close()
assert len(tail.discover(surely=True)) == 60, len(tail.journals)
hoard()
assert list(tail.read()) == [] and not any(f.done for f in tail.journals.values())
while hoarded:
    hoarded.pop().close()
events = 0
while not all(f.done for f in tail.journals.values()):
    events += sum(len(batch.events) for _, batch in tail.read())
assert events == 60, events
"""


def test_too_few_descriptors_delay_and_lose_nothing(shared: Path) -> None:
    for number in range(60):
        origin = origin_of(2**22 - 7, number=number)
        forge(shared, 0, origin, ("run_end", '{"status": "completed"}'))
    done = subprocess.run(
        [sys.executable, "-c", FEW, str(shared)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot list") == 1


def test_escapes_in_a_record_do_not_reach_the_terminal(cluster: Cluster, shared: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    end_of_it = {"status": "failed", "error": evil, "reason": evil, "exception": evil,
                 "type": evil, "message": evil, "traceback": evil}  # fmt: skip
    forge(shared, MALLORY, origin_of(2**22 - 7), ("run_end", json.dumps(end_of_it)))
    for words in (["runs"], ["show", "forged", "--once"], ["show", "none\x1b[2J"]):
        shown = subprocess.run(
            [sys.executable, "-m", "runwatch.cli", *words, "--dir", str(shared)],
            env=cluster.environment, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        said = shown.stdout + shown.stderr
        assert "owned" in said or "none" in said or "forged" in said, said
        assert "\x1b" not in said and "\x07" not in said and "\u202e" not in said
