"""XProf's process: started when needed, shared, watched, ended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runwatch.head.features.profiles.shown import Giver, Taker
from runwatch.head.features.profiles.viewer_process import Viewer, ViewerFailed, wanted
from runwatch.head.state.profile_files import File, Place, for_viewer
from runwatch.head.state.profiles import StoredProfile, folder_name
from runwatch.record import RunId
from runwatch.testing import until

XPLANE = Path(__file__).parents[4] / "fixtures" / "profiles" / "jax.xplane.pb"


def stored(run: str, session: str, *paths: Path) -> StoredProfile:
    files = tuple(
        File(path.name, "xplane", 1, 1, Place(path.parent, path.parent)) for path in paths
    )
    return StoredProfile(RunId(run), run, session, (), files, None)


@pytest.fixture
def make() -> Iterator[Callable[..., Viewer]]:
    made: list[Viewer] = []

    def viewer(**options: Any) -> Viewer:
        made.append(Viewer(lambda: [stored("llama", "s1", XPLANE)], **options))
        return made[-1]

    yield viewer
    for one in made:
        one.close()


def ask(address: Path, path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(address))
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_many_users_share_one_process(make: Callable[..., Viewer]) -> None:
    viewer = make()
    assert viewer.pid is None
    found: list[tuple[Path, int | None]] = []

    def use() -> None:
        address = viewer.socket(fresh=True)
        assert b"200 OK" in ask(address, "/data/plugin/profile/runs")
        found.append((address, viewer.pid))

    users = [threading.Thread(target=use) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert len(found) == 4 and len(set(found)) == 1
    assert os.stat(found[0][0].parent).st_mode & 0o077 == 0


def test_a_crash_costs_one_process_and_no_more(make: Callable[..., Viewer]) -> None:
    viewer = make()
    before = viewer.socket(fresh=True)
    pid = viewer.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: viewer.pid is None)
    after = viewer.socket(fresh=True)
    assert viewer.pid not in (None, pid) and before != after
    assert not before.parent.exists()
    assert b"200 OK" in ask(after, "/version")


def test_it_ends_when_nobody_uses_it(make: Callable[..., Viewer]) -> None:
    viewer = make(idle_seconds=0.1)
    viewer.hold()
    address = viewer.socket(fresh=True)
    pid = viewer.pid
    assert b"200 OK" in ask(address, "/version") and viewer.pid == pid is not None
    viewer.release()
    until(lambda: viewer.pid is None, what="it to end")
    until(lambda: not address.parent.exists())
    assert "nobody" in viewer.ended_because


def test_it_ends_when_it_takes_too_much_memory(make: Callable[..., Viewer]) -> None:
    viewer = make(memory_bytes=20 << 20)
    viewer.hold()
    viewer.socket(fresh=True)
    until(lambda: viewer.pid is None and viewer.ended_because, what="it to end")
    assert "viewer_memory" in viewer.ended_because


def test_a_closed_one_starts_no_more(make: Callable[..., Viewer]) -> None:
    viewer = make()
    viewer.close()
    with pytest.raises(ViewerFailed):
        viewer.socket(fresh=True)


def test_it_does_not_outlive_whoever_started_it(tmp_path: Path) -> None:
    program = (
        "import time; from runwatch.head.features.profiles.viewer_process import Viewer\n"
        "viewer = Viewer(list); print(viewer.socket(fresh=True), viewer.pid, flush=True)\n"
        "time.sleep(60)"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    address, pid = starter.stdout.readline().split()
    starter.kill()
    starter.wait()
    starter.stdout.close()
    until(lambda: not Path(f"/proc/{pid}").exists(), what="the viewer to end")
    assert not Path(address).parent.exists()


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[tuple[Giver[File], Path]]:
    """What a viewer is given, taken in this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = tmp_path / "shown"
    folder.mkdir()
    taker = threading.Thread(target=Taker(theirs, folder).follow)
    taker.start()
    yield Giver(ours, for_viewer), folder
    ours.close()
    taker.join(100)
    theirs.close()
    for link in folder.rglob("*.pb"):
        os.close(int(os.readlink(link).rpartition("/")[2]))


def test_what_is_shown_follows_the_sessions(
    shown: tuple[Giver[File], Path], tmp_path: Path
) -> None:
    giver, folder = shown
    plane = tmp_path / "a.xplane.pb"
    shutil.copy(XPLANE, plane)
    bad = tmp_path / "bad.xplane.pb"
    bad.write_bytes(b"PK\3\4")
    sessions = [stored("r", "s1", plane), stored("r", "s2", bad)]
    assert giver.show(wanted(sessions)) == 0
    (link,) = folder.rglob("*.pb")
    assert link == folder / "r/plugins/profile/s1/a.xplane.pb"
    assert link.read_bytes() == XPLANE.read_bytes()
    first = os.readlink(link)
    assert giver.show(wanted(sessions)) == 0 and os.readlink(link) == first, "once is enough"

    newer = replace(sessions[0], files=(replace(sessions[0].files[0], modified_ns=2),))
    assert giver.show(wanted([newer])) == 0 and os.readlink(link) != first
    assert not os.path.exists(first), "what was shown before is closed"
    assert giver.show({}) == 0
    assert list(folder.rglob("*.pb")) == [] and plane.exists()


def test_what_is_put_in_the_place_of_a_file_is_not_shown(
    shown: tuple[Giver[File], Path], tmp_path: Path
) -> None:
    giver, folder = shown
    place = tmp_path / "session"
    place.mkdir()
    plane = place / "a.xplane.pb"
    shutil.copy(XPLANE, plane)
    secret = tmp_path / "secret"
    secret.write_bytes(XPLANE.read_bytes()[:100])
    giver.show(wanted([stored("r", "s1", plane)]))
    plane.unlink()
    plane.symlink_to(secret)
    (link,) = folder.rglob("*.pb")
    assert link.read_bytes() == XPLANE.read_bytes()
    found = stored("r", "s1", plane)
    swapped = replace(found, files=(replace(found.files[0], modified_ns=2),))
    giver.show(wanted([swapped]))
    assert all(path.read_bytes() != secret.read_bytes() for path in folder.rglob("*.pb"))


@pytest.mark.parametrize(("run", "name"), [("r-1", "r-1"), ("a:b", "a_b"), ("../x", "___x")])
def test_no_run_names_a_folder_elsewhere(run: str, name: str) -> None:
    assert folder_name(run) == name
