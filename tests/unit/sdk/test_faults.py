from __future__ import annotations

from pathlib import Path

from runwatch.sdk.faults import _hosts_java


def test_a_java_machine_is_seen_in_the_maps(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 0 fe:00 1 /usr/lib/jvm/lib/server/libjvm.so\n")
    assert _hosts_java(maps)
    maps.write_text("7f00-7f01 r-xp 0 fe:00 1 /usr/lib/libc.so.6\n")
    assert not _hosts_java(maps)
    assert not _hosts_java(tmp_path / "missing")
