from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from runwatch.errors import UsageError
from runwatch.head.features.profiles.mirror import Mirror
from runwatch.testing import until


def put(path: str, text: str) -> None:
    with fsspec.open(f"memory://{path}", "w") as file:
        file.write(text)


def test_what_is_there_and_what_comes(tmp_path: Path) -> None:
    put("/bucket/p/run/plugins/profile/s1/a.json", "{}")
    put("/bucket/p/run/plugins/profile/s1/notes.txt", "no trace")
    put("/bucket/p/run/.hidden/b.json", "{}")
    with Mirror("memory://bucket/p", tmp_path / "copy", round_seconds=0.01) as mirror:
        found = [path for path in mirror.folder.rglob("*") if path.is_file()]
        assert found == [mirror.folder / "run/plugins/profile/s1/a.json"]
        put("/bucket/p/run/plugins/profile/s2/c.json", "[]")
        put("/bucket/p/run/plugins/profile/s1/a.json", '{"traceEvents": []}')
        until(lambda: (mirror.folder / "run/plugins/profile/s2/c.json").exists())
        until(lambda: found[0].read_text() != "{}")
    assert found[0].read_text() == '{"traceEvents": []}'


@pytest.mark.parametrize("url", ["nosuchscheme://x", "memory://not/there/at/all"])
def test_what_cannot_be_reached(url: str, tmp_path: Path) -> None:
    if url.startswith("memory"):
        with Mirror(url, tmp_path / "copy") as mirror:
            assert list(mirror.folder.rglob("*")) == []
    else:
        with pytest.raises(UsageError, match="nosuchscheme"):
            Mirror(url, tmp_path / "copy")
