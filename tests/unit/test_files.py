"""The rule for files where others may write: what is opened, what is refused, what is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runwatch.files import Folder, Refused, journal_folder, private, safe_name, shelf

STRANGER = 61_003
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder.at(tmp_path)


@pytest.fixture(autouse=True)
def closed(folder: Folder) -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(folder.fd)


@pytest.mark.parametrize("name", ["link", "dangling", "folder", "folder link", "pipe"])
def test_only_regular_files_are_opened(folder: Folder, tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").write_text("plain")
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    assert folder.text("plain") == "plain"
    with pytest.raises(Refused, match="not a regular file"):
        folder.open(name)
    assert folder.has("plain") and not folder.has(name)
    with pytest.raises(Refused):
        folder.below("plain")
    with pytest.raises(Refused, match="not a directory"):
        folder.below("folder link")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"])
def test_a_name_is_no_path(folder: Folder, name: str) -> None:
    for act in (folder.open, folder.read, folder.stat, folder.remove, folder.below, folder.keep):
        with pytest.raises(Refused):
            act(name)
    with pytest.raises(Refused):
        folder.write(name, b"x")
    with pytest.raises(Refused):
        folder.own(name, make=True)


def test_no_more_is_read_than_is_wanted(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(101))
    assert len(folder.read("large", 101)) == 101
    with pytest.raises(Refused, match="more than 100 bytes"):
        folder.read("large", 100)


def test_what_is_written_takes_the_place_of_a_link(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "name").symlink_to("theirs")
    folder.write("name", b"ours", sync=True)
    assert (tmp_path / "name").read_text() == "ours" and not (tmp_path / "name").is_symlink()
    assert (tmp_path / "name").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert sorted(folder.names()) == ["name", "theirs"]


def test_what_cannot_be_written_leaves_nothing(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        folder.write("folder", b"x")
    with pytest.raises(ZeroDivisionError), folder.writing("name") as file:
        file.write(bytes(1 // 0))
    assert folder.names() == ["folder"]


@needs_root
def test_a_second_name_of_anothers_file_is_refused(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", STRANGER, STRANGER)
    os.link(tmp_path / "secret", tmp_path / "theirs" / "mine")
    with folder.below("theirs") as theirs:
        with pytest.raises(Refused, match="belongs to user 0"):
            theirs.read("mine")
        with pytest.raises(Refused):
            theirs.open("mine", owners=(STRANGER,))
        assert theirs.read("mine", owners=(0,)) == b"secret"
        (tmp_path / "secret").chmod(0o604)  # everybody may read it
        assert theirs.read("mine") == b"secret"
        theirs.write("given", b"x", give=True)
        assert theirs.stat("given").st_uid == STRANGER
        assert not theirs.is_of(0) and theirs.is_of(STRANGER)


@needs_root
def test_a_file_of_our_own_is_kept_and_anothers_taken_away(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")

    def anothers() -> None:
        (tmp_path / "lock").touch()
        os.chown(tmp_path / "lock", STRANGER, -1)

    ways: tuple[Callable[[], None], ...] = (
        lambda: (tmp_path / "lock").symlink_to("precious"),
        lambda: os.link(tmp_path / "precious", tmp_path / "lock"),
        lambda: os.mkfifo(tmp_path / "lock"),
        anothers,
    )
    for lay in ways:
        lay()
        fd = folder.keep("lock")
        os.write(fd, b"ours")
        os.close(fd)
        again = folder.keep("lock")
        assert os.read(again, 10) == b"ours"
        os.close(again)
        folder.remove("lock")
    assert (tmp_path / "precious").read_text() == "precious"


@needs_root
def test_a_link_leads_on_if_it_is_our_own(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "journals").symlink_to("elsewhere")
    with shelf(tmp_path, "journals") as found:
        assert os.path.samestat(os.fstat(found.fd), (tmp_path / "elsewhere").stat())
    (tmp_path / "elsewhere" / "j").mkdir()
    with journal_folder(tmp_path / "journals" / "j") as found:
        assert found.names() == []
    os.chown(tmp_path / "journals", STRANGER, STRANGER, follow_symlinks=False)
    for make in (False, True):
        with pytest.raises(Refused, match="another user"):
            shelf(tmp_path, "journals", make=make)


def test_what_links_in_a_folder_lead_to_stays(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    (tmp_path / "tree" / "in").mkdir(parents=True)
    (tmp_path / "tree" / "in" / "link").symlink_to(tmp_path / "kept")
    folder.remove_tree("tree")
    assert folder.names() == ["kept"] and (tmp_path / "kept" / "file").exists()


def test_folders_are_made_for_nobody_else(folder: Folder, tmp_path: Path) -> None:
    os.close(folder.below("a", "b", make=True).fd)
    private(tmp_path / "c" / "d")
    for name in ("a", "a/b", "c", "c/d"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("text", ["gpu-1", "node_3.cluster", "a" * 100])
def test_a_plain_name_stays_as_it_is(text: str) -> None:
    assert safe_name(text) == text


def test_names_that_lead_out_become_plain_and_stay_different() -> None:
    hosts = ["../../x", "..", "a/b", "a-b", "a\0b", "", ".hidden", "ä", "ö", "a" * 300, "a" * 301]
    safe = [safe_name(host) for host in hosts]
    assert len(set(safe)) == len(hosts)
    for name in safe:
        assert "/" not in name and "\0" not in name and not name.startswith(".")
        assert 0 < len(name) < 120 and name.isascii()
