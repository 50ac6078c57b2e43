"""Who changed what: kept in lines, bounded, and harmless to look at."""

from __future__ import annotations

import json
import os
from pathlib import Path

from runwatch.head.access.audit import FILE, LONGEST, OLDER, Audit


def test_lines_are_kept_and_read_back_newest_first(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.note("alice", "POST /api/v1/shares", "200", role="admin", uid=7, about={"run": "r"})
    audit.note("main token", "DELETE /api/v1/shares/{id}", "404", path="/api/v1/shares/x")
    newest, oldest = Audit(tmp_path).newest(10)
    assert (newest.who, newest.outcome, newest.path) == ("main token", "404", "/api/v1/shares/x")
    assert (oldest.who, oldest.role, oldest.uid, oldest.about) == (
        "alice",
        "admin",
        7,
        {"run": "r"},
    )
    assert [each.who for each in audit.newest(1)] == ["main token"]
    assert audit.newest(10, before_ns=newest.time_ns)[0].who == "alice"
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_what_a_terminal_obeys_and_what_is_long_does_not_get_in(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.note("a\x1b[2J\n\u202eb", "POST /x", "200", path="/" + "x" * 10_000)
    (line,) = (tmp_path / FILE).read_bytes().splitlines()
    assert all(0x20 <= byte < 0x7F for byte in line)
    assert len(json.loads(line)["path"]) == LONGEST


def test_it_has_bounds_on_disk_and_the_newest_stay(tmp_path: Path) -> None:
    audit = Audit(tmp_path, most=2000)
    for number in range(100):
        audit.note(f"n{number}", "POST /x", "200")
        sizes = [file.stat().st_size for file in tmp_path.iterdir()]
        assert max(sizes) <= 2000 and len(sizes) <= 2
    assert {file.name for file in tmp_path.iterdir()} == {FILE, OLDER}
    names = [done.who for done in audit.newest(1000)]
    assert names == [f"n{number}" for number in range(99, 99 - len(names), -1)] and len(names) > 10


def test_a_link_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / FILE).symlink_to(victim)
    Audit(tmp_path).note("alice", "POST /x", "200")
    assert victim.read_text() == "mine" and not os.path.islink(tmp_path / FILE)


def test_lines_that_are_none_of_ours_are_left_out(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.note("alice", "POST /x", "200")
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"time_ns": "x"}\n[1]\n\xff\xfe\n{"half": ')
    assert [done.who for done in audit.newest(10)] == ["alice"]
    Audit().note("nobody", "POST /x", "200")
    assert Audit().newest(10) == []
