from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from runwatch.errors import UsageError
from runwatch.settings import load, setting


@dataclass(frozen=True)
class Room:
    name: str = setting("x", env="ROOM_NAME")
    size: int = setting(1, env="ROOM_SIZE")
    share: float = setting(0.5)
    open: bool = setting(False, env="ROOM_OPEN")
    place: Path | None = setting(None)


def test_defaults_then_file_then_environment_then_flags(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[room]\nname = 'file'\nsize = '2MiB'\nshare = 0.25\nplace = '/there'\n")
    loaded = load(
        Room,
        section="room",
        environ={"ROOM_NAME": "environment", "ROOM_SIZE": "3k", "ROOM_OPEN": "yes"},
        flags={"name": "flag", "share": None},
        file=file,
    )
    assert loaded.values == Room("flag", 3000, 0.25, True, Path("/there"))
    assert loaded.sources == {
        "name": "flag",
        "size": "environment ROOM_SIZE",
        "share": f"file {file}",
        "open": "environment ROOM_OPEN",
        "place": f"file {file}",
    }


def test_no_file_is_no_trouble(tmp_path: Path) -> None:
    loaded = load(Room, section="room", environ={}, file=tmp_path / "none.toml")
    assert loaded.values == Room()
    assert set(loaded.sources.values()) == {"default"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1_000", 1000),
        ("2k", 2000),
        ("2kB", 2000),
        ("1.5MiB", 1572864),
        ("1Gi", 2**30),
        ("1TiB", 2**40),
    ],
)
def test_sizes(text: str, value: int, tmp_path: Path) -> None:
    loaded = load(Room, section="room", environ={"ROOM_SIZE": text}, file=tmp_path / "x")
    assert loaded.values.size == value


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"ROOM_SIZE": "big"}, "size .*ROOM_SIZE.* 'big'.*not a int"),
        ({"ROOM_OPEN": "perhaps"}, "open .*'perhaps'"),
    ],
)
def test_a_wrong_value_is_named_with_its_source(
    environ: dict[str, str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        load(Room, section="room", environ=environ, file=tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[room]\nnames = 1\n", "'names', which is not a setting"),
        ("room = 1\n", "not a table"),
        ("[room\n", "cannot read settings"),
    ],
)
def test_a_wrong_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        load(Room, section="room", environ={}, file=file)
