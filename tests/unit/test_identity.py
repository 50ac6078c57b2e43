"""A thread that acts as another user has that one's rights, and is itself again afterwards."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from runwatch import identity
from runwatch.agent import powers
from runwatch.capture.tracing.profile_files import place, publish
from runwatch.files import Folder, journal_folder, read_followed
from runwatch.identity import CannotBe, User, acting_as, once_as
from runwatch.journal.reader import JournalReader
from runwatch.journal.retention import enforce
from runwatch.journal.segment import MIN_SEGMENT_BYTES
from runwatch.journal.writer import JournalWriter
from tests.integration.strangers import (
    ALICE,
    MALLORY,
    SERVANT,
    capable,
    command_as,
    do_as,
    everybodys,
    forge,
    needs_users,
    origin_of,
    process_of,
    without,
)

pytestmark = needs_users


@pytest.fixture
def on() -> Iterator[None]:
    assert identity.begin() == ""
    yield
    identity.end()


@pytest.fixture
def secret() -> Iterator[Path]:
    with everybodys() as root:  # what leads there is not what keeps others out
        file = root / "secret"
        file.write_text("root's")
        file.chmod(0o600)
        yield file


def test_a_user_may_not_read_what_is_roots(on: None, secret: Path) -> None:
    with acting_as(User(MALLORY)), pytest.raises(PermissionError):
        secret.read_text()
    assert secret.read_text() == "root's"


def test_what_is_made_is_the_users(on: None) -> None:
    with everybodys() as root:
        with acting_as(User(MALLORY)):
            (root / "made").write_text("")
        assert (root / "made").stat().st_uid == MALLORY


def test_who_wanted_us_to_end_with_it_is_still_heard(secret: Path) -> None:
    """A change of user makes the kernel forget what `prctl` was told."""
    prctl, found = ctypes.CDLL(None).prctl, ctypes.c_int(0)
    prctl(1, signal.SIGUSR2)
    try:
        assert identity.begin() == ""
        with acting_as(User(MALLORY)), pytest.raises(PermissionError):
            secret.read_text()
        prctl(2, ctypes.byref(found))
        assert found.value == signal.SIGUSR2
    finally:
        identity.end()
        prctl(1, 0)


def test_other_threads_stay_what_they_are(on: None, secret: Path) -> None:
    read: list[str] = []
    with acting_as(User(MALLORY)):
        # One begun in here would be the user's, too: this one was there before.
        other.submit(lambda: read.append(secret.read_text()))
        assert read == ["root's"]
        with pytest.raises(PermissionError):
            secret.read_text()


class _Other:
    """A thread that does what it is given."""

    def __init__(self) -> None:
        self._work: list[object] = []
        self._ready, self._done = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, act: object) -> None:
        self._work.append(act)
        self._ready.release()
        assert self._done.acquire(timeout=100)

    def _run(self) -> None:
        self._ready.acquire()
        act = self._work.pop()
        assert callable(act)
        act()
        self._done.release()


other = _Other()


def test_it_is_itself_again_whatever_happens(on: None, secret: Path) -> None:
    before = identity.powers()
    with pytest.raises(ZeroDivisionError), acting_as(User(MALLORY)):
        raise ZeroDivisionError
    assert secret.read_text() == "root's" and identity.powers() == before


def test_nobody_acts_as_two(on: None) -> None:
    with acting_as(User(MALLORY)):
        with acting_as(User(MALLORY)):
            pass
        already = f"we already act as user {MALLORY}"
        with pytest.raises(CannotBe, match=already), acting_as(User(ALICE)):
            pass


def test_off_it_changes_nothing(secret: Path) -> None:
    with acting_as(User(MALLORY)):
        assert secret.read_text() == "root's"
    assert once_as(MALLORY, os.geteuid) == 0


def test_a_folder_is_worked_in_as_its_owner(on: None, tmp_path: Path) -> None:
    with everybodys() as root:
        do_as(MALLORY, 'mkdir "$1"; touch "$1/closed"; chmod 0 "$1/closed"', root / "journals/j")
        with journal_folder(root / "journals/j") as folder:
            with pytest.raises(PermissionError):
                folder.read("closed")
            folder.write("mine", b"x")
            assert folder.stat("mine").st_uid == MALLORY and folder.read("mine") == b"x"
            folder.remove("mine")
            tmp_path.chmod(0o700)
            with pytest.raises(PermissionError):
                Folder.at(tmp_path, folder.user)


def test_whose_folder_it_is_is_asked_as_ourselves(on: None) -> None:
    """Else everybody's folder would be ours, and root's process a user's journal's."""
    with everybodys() as root:
        do_as(MALLORY, 'mkdir "$1"', root / "journals/j")
        with journal_folder(root / "journals/j") as folder:
            assert folder.is_of(MALLORY) and not folder.is_of(0) and not folder.is_of(ALICE)


def test_a_signal_is_sent_as_its_user(on: None) -> None:
    with process_of(ALICE) as alices:
        once_as(ALICE, partial(os.kill, alices, signal.SIGURG))
        with pytest.raises(PermissionError):
            once_as(MALLORY, partial(os.kill, alices, signal.SIGURG))
    assert once_as(MALLORY, os.geteuid) == MALLORY
    assert os.geteuid() == 0


GROUPS = """
import os, sys
from runwatch import identity
from runwatch.identity import User, acting_as
print(repr(identity.begin()))
for uid in map(int, sys.argv[2:]):
    try:
        with acting_as(User(uid)):
            open(sys.argv[1]).read()
        print("read")
    except PermissionError:
        print("refused")
open(sys.argv[1]).read()
print(os.getgroups(), hex(identity.powers()))
"""


def told(before: list[str], *words: object) -> list[str]:
    command = [*before, sys.executable, "-c", GROUPS, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_groups_of_ours_are_laid_aside(secret: Path) -> None:
    os.chown(secret, 0, 61_050)
    secret.chmod(0o640)
    before = ["setpriv", "--groups", "61050"]
    said = told(before, secret, MALLORY)
    assert said[:2] == ["''", "refused"] and said[2].startswith("[61050]")


def test_capabilities_over_files_are_laid_aside(secret: Path) -> None:
    """Root loses them by the change itself; who is not root has to let go of them."""
    before = capable(SERVANT, "setuid", "setgid", "dac_read_search")
    assert told(before, secret, MALLORY, 0) == ["''", "refused", "read", "[] 0xc4"]


def test_who_may_not_says_which_capability_is_missing(secret: Path) -> None:
    before = without("setgid")
    assert told(before, secret, 0)[0] == "'CAP_SETGID missing'"


def test_an_ordinary_user_acts_as_nobody_else() -> None:
    script = (
        "from pathlib import Path\nfrom runwatch.agent import powers\n"
        "print(powers.take_up(Path('/')))"
    )
    command = [*command_as(MALLORY), sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_where_the_kernel_guards_processes_ptrace_is_asked_for(tmp_path: Path) -> None:
    scope = tmp_path / "scope"
    scope.write_text("1\n")
    try:
        assert powers.take_up(tmp_path, scope) == []  # we have it
    finally:
        identity.end()
    script = (
        "import sys\nfrom pathlib import Path\nfrom runwatch.agent import powers\n"
        "print(powers.take_up(Path(sys.argv[1]).parent, Path(sys.argv[1])))"
    )
    command = [*without("sys_ptrace"), sys.executable, "-c", script, str(scope)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "CAP_SYS_PTRACE" in done.stdout and "CAP_SETUID" not in done.stdout, done.stderr


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read_followed(tmp_path / "pipe")
    (tmp_path / "file").write_text("long")
    (tmp_path / "link").symlink_to("file")
    assert read_followed(tmp_path / "link", 2) == b"lo"


def test_who_serves_nobody_else_is_not_told_what_that_would_need(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom runwatch.agent import powers\n"
        "print(powers.take_up(Path(sys.argv[1]), Path('/nowhere')))"
    )
    command = [*without("setuid"), sys.executable, "-c", script]
    with everybodys() as shared:
        (tmp_path / "journals").mkdir(mode=0o700)
        said = [
            subprocess.run([*command, str(root)], capture_output=True, text=True, timeout=60).stdout
            for root in (tmp_path, shared)
        ]
    assert "CAP_SETUID" not in said[0] and "CAP_SETUID missing" in said[1]


def test_profiles_are_put_where_their_user_may(on: None, tmp_path: Path) -> None:
    with everybodys() as root:
        trace = tmp_path / "made.xplane.pb"
        trace.write_text("a trace")
        session = f"{root}/profiles/run-1/plugins/profile/s1"
        publish([trace], "made", place(session, User(MALLORY), ours=True), iter(["host"]), root)
        (kept,) = Path(session).iterdir()
        assert (kept.name, kept.stat().st_uid) == ("host.xplane.pb", MALLORY)
        assert kept.read_text() == "a trace"
        tmp_path.chmod(0o700)
        trace.write_text("another")
        elsewhere = place(f"{tmp_path}/run-1/plugins/profile/s1", User(MALLORY))
        with pytest.raises(PermissionError):
            publish([trace], "made", elsewhere, iter(["host"]), root)


def test_what_is_old_is_removed_as_its_owner(on: None) -> None:
    with everybodys() as root:
        done = forge(root, MALLORY, origin_of(2**22 - 7))
        kept = forge(root, MALLORY, origin_of(2**22 - 8, number=1))
        do_as(MALLORY, 'mkdir "$1/inner"; chmod 0 "$1/inner"', kept)
        report = enforce(
            root, acknowledged={}, live=(), budget_bytes=0, keep_acknowledged_seconds=0
        )
        assert not done.exists() and report.journals == 1
        assert [path.name for path in kept.iterdir()] == ["inner"]  # nothing of ours: it stays


def test_a_journal_of_anothers_is_followed_from_segment_to_segment(on: None) -> None:
    with everybodys() as root:
        origin = origin_of(os.getpid())
        writer = JournalWriter(root, origin, segment_bytes=MIN_SEGMENT_BYTES)
        folder = root / "journals" / origin.journal
        reader = JournalReader(folder)
        read: list[float] = []
        number = writer.series("value")
        for value in range(80_000):
            writer.points([number], [float(value)])
            if value % 1_000 == 999:
                give(folder, MALLORY)
                while (batch := reader.read()) is not None:
                    read += batch.points.value
        writer.close()
        give(folder, MALLORY)
        assert len(list(folder.glob("*.seg"))) > 2
        while (batch := reader.read(final=True)) is not None:
            read += batch.points.value
        reader.close()
        assert read == [float(value) for value in range(80_000)]


def give(folder: Path, uid: int) -> None:
    for path in (folder, *folder.iterdir()):
        with suppress(FileNotFoundError):  # what was made ready has got its name
            os.chown(path, uid, uid)


@pytest.mark.parametrize("groups", [[], ["setpriv", "--groups", "61050"]], ids=["bare", "groups"])
def test_in_a_box_with_one_user_there_is_nobody_else_to_be(secret: Path, groups: list[str]) -> None:
    box = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*box, "true"], capture_output=True, timeout=60).returncode:
        pytest.skip("no user namespaces here")
    said = told([*groups, *box], secret)
    assert ("cannot drop our groups" if groups else "the kernel refuses it") in said[0], said
    assert said[-1].startswith("[65534]" if groups else "[]")  # as we were
