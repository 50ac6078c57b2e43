"""A directory of event files: where points go, how they are numbered, and how it goes on."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from runwatch.errors import StoreBusy, UsageError
from runwatch.exports.tensorboard import NOTE, EventDirectory

START = 1_700_000_000 * 10**9
Row = tuple[float, int | None, float | str]


def stretch(
    rows: Sequence[Row],
    metric: str = "loss",
    *,
    series: int = 1,
    rank: int = 0,
    attempt: int | None = 1,
    agent: bool = False,
    device: str = "",
    **labels: str,
) -> dict[str, Any]:
    """Rows are (seconds, step, value)."""
    return {
        "series": series, "metric": metric, "unit": "", "labels": labels, "rank": rank,
        "host": "gpu-17", "device": device, "attempt": attempt, "agent": agent,
        "time_ns": [START + round(seconds * 1e9) for seconds, _, _ in rows],
        "step": [step for _, step, _ in rows], "value": [value for _, _, value in rows],
    }  # fmt: skip


def ramp(first: int, end: int) -> list[Row]:
    return [(float(n), n, n / 7) for n in range(first, end)]


def directory(path: Path, run: str = "r", **options: Any) -> EventDirectory:
    return EventDirectory(path, run, START, **{"only": {}, **options})


def export(path: Path, *stretches: dict[str, Any], **options: Any) -> None:
    with directory(path, **options) as made:
        made.begin()
        for each in stretches:
            made.points(each)
        made.keep()


def events(path: Path) -> list[Event]:
    (file,) = path.glob("*tfevents*")
    return [Event.FromString(raw) for raw in RawEventFileLoader(str(file)).Load()]


def scalars(path: Path) -> list[tuple[str, float, int, float]]:
    return [
        (value.tag, event.wall_time, event.step, value.simple_value)
        for event in events(path)
        for value in event.summary.value
        if value.HasField("simple_value")
    ]


def runs(path: Path) -> set[str]:
    return {str(file.parent.relative_to(path)) for file in path.rglob("*tfevents*")}


def contents(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*tfevents*")}


def test_each_rank_attempt_and_host_is_a_run_of_its_own(tmp_path: Path) -> None:
    export(
        tmp_path / "out",
        stretch(ramp(0, 2)),
        stretch(ramp(0, 2), series=2, rank=12),
        stretch(ramp(0, 2), series=3, rank=12, attempt=3),
        stretch(ramp(0, 2), "power_watts", series=4, agent=True, attempt=None, device="gpu0"),
        stretch(ramp(0, 2), "rss_bytes", series=5, rank=12, agent=True, journal="j"),
        stretch(ramp(0, 2), "accuracy", series=6, split="eval", k="5"),
    )
    out = tmp_path / "out"
    assert runs(out) == {"rank-0", "rank-12", "rank-12/attempt-3", "host-gpu-17"}
    assert {tag for tag, *_ in scalars(out / "rank-0")} == {"loss", "accuracy/k=5,split=eval"}
    assert {tag for tag, *_ in scalars(out / "rank-12")} == {"loss", "rss_bytes"}
    assert {tag for tag, *_ in scalars(out / "host-gpu-17")} == {"power_watts/gpu0"}


def test_points_keep_their_times_and_steps_and_those_without_are_numbered(tmp_path: Path) -> None:
    odd: list[Row] = [
        (0, 5, 0.1), (0.5, 2**40, "NaN"), (1, -1, "-Infinity"), (2, 0, 1e300), (3, 7, 85899345921.0)
    ]  # fmt: skip
    export(
        tmp_path,
        stretch(odd),
        stretch([(9, None, 1.0), (9, None, 2.0), (10.25, None, 3.0)], "power", series=2),
        force=True,
    )
    found = scalars(tmp_path / "rank-0")
    assert [(tag, at - START / 1e9, step) for tag, at, step, _ in found] == [
        ("loss", 0.0, 5), ("loss", 0.5, 2**40), ("loss", 1.0, -1), ("loss", 2.0, 0),
        ("loss", 3.0, 7), ("power", 9.0, 0), ("power", 9.0, 1), ("power", 10.25, 2),
    ]  # fmt: skip
    values = [value for *_, value in found]
    assert values[0] == np.float32(0.1) and math.isnan(values[1])
    assert values[2:5] == [-math.inf, math.inf, np.float32(85899345921.0)]


def test_an_export_that_is_repeated_replaces_its_own_files(tmp_path: Path) -> None:
    export(tmp_path, stretch(ramp(0, 9)), stretch(ramp(0, 9), series=2, rank=1))
    before = contents(tmp_path)
    export(tmp_path, stretch(ramp(0, 9)), stretch(ramp(0, 9), series=2, rank=1))
    assert contents(tmp_path) == before
    export(tmp_path, stretch(ramp(0, 9)))
    assert runs(tmp_path) == {"rank-0"}


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "rank-0" / "events.out.tfevents.1.somebody"
    foreign.parent.mkdir()
    foreign.write_bytes(b"theirs")
    with pytest.raises(UsageError, match="--force"):
        export(tmp_path, stretch(ramp(0, 2)))
    export(tmp_path, stretch(ramp(0, 2)), force=True)
    export(tmp_path, stretch(ramp(0, 2)))  # now it is ours, too
    assert foreign.read_bytes() == b"theirs"
    with pytest.raises(UsageError, match="another run"):
        export(tmp_path, stretch(ramp(0, 2)), run="other")
    export(tmp_path, stretch(ramp(0, 2), rank=3), run="other", force=True)
    assert {path.name for path in (tmp_path / "rank-0").iterdir()} == {foreign.name}
    assert runs(tmp_path) == {"rank-0", "rank-3"}
    with pytest.raises(UsageError, match="not a directory"):
        export(foreign, stretch(ramp(0, 2)))


def test_two_exports_do_not_write_into_one_directory(tmp_path: Path) -> None:
    with (
        directory(tmp_path),
        pytest.raises(StoreBusy, match="another export"),
        directory(tmp_path),
    ):
        pass
    export(tmp_path, stretch(ramp(0, 2)))


def _nothing(path: Path) -> None:
    pass


def _torn(path: Path) -> None:
    with next(path.rglob("*tfevents*")).open("ab") as file:
        file.write(b"\x18\0\0")


@pytest.mark.parametrize("hurt", [_nothing, _torn])
def test_what_was_not_noted_is_written_again(tmp_path: Path, hurt: Callable[[Path], None]) -> None:
    """As if the process was killed after it wrote, and before it made its note."""
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    export(whole, stretch(ramp(0, 30)), stretch(ramp(0, 30), series=2, rank=1))
    with directory(grown) as made:
        made.begin()
        made.points(stretch(ramp(0, 10)))
        made.keep()
        made.points(stretch(ramp(0, 12)))
        made.points(stretch(ramp(0, 12), series=2, rank=1))
    hurt(grown)
    with directory(grown) as made:
        assert made.resume()
        assert runs(grown) == {"rank-0"}
        assert (made.since_ns(1), made.since_ns(2)) == (START + 9 * 10**9, None)
        made.points(stretch(ramp(9, 30)))
        made.points(stretch(ramp(0, 30), series=2, rank=1))
        made.keep()
        assert made.points(stretch(ramp(0, 30))) == 0
    assert contents(grown) == contents(whole)


def test_an_export_that_is_killed_while_it_names_its_files_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def die(path: Path, target: Path) -> None:
        if "rank-1" in str(target):
            raise Killed
        os.replace(path, target)

    two = stretch(ramp(0, 9)), stretch(ramp(0, 9), series=2, rank=1)
    export(tmp_path, *two)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Path, "replace", die)
        export(tmp_path, *two)
    with directory(tmp_path) as made:
        assert not made.resume()
    export(tmp_path, stretch(ramp(0, 9), rank=2))
    assert runs(tmp_path) == {"rank-2"}


def test_points_of_one_time_come_once_each(tmp_path: Path) -> None:
    twice: list[Row] = [(0, 0, 1.0), (1, 1, 2.0), (1, 2, 3.0), (1, 3, 4.0)]
    with directory(tmp_path) as made:
        made.begin()
        made.points(stretch(twice[:2]))
        made.points(stretch(twice[1:3]))
        made.points(stretch(twice[1:]))
        made.keep()
    assert [step for *_, step, _ in scalars(tmp_path / "rank-0")] == [0, 1, 2, 3]


def test_an_export_of_something_else_is_begun_anew(tmp_path: Path) -> None:
    export(tmp_path, stretch(ramp(0, 5)))
    with directory(tmp_path, only={"metric": ["loss"]}) as made:
        assert not made.resume()
    with directory(tmp_path) as made:
        assert made.resume()
    (file,) = tmp_path.rglob("*tfevents*")
    file.write_bytes(file.read_bytes()[:-5])  # a file system that lost what was noted
    with directory(tmp_path) as made:
        assert not made.resume()
    (tmp_path / NOTE).write_text("{}")
    with directory(tmp_path, force=True) as made:
        assert not made.resume()


def test_configuration_texts_and_goodput(tmp_path: Path) -> None:
    said = [
        {"time_ns": START + n, "rank": 0, "step": step, "body": {"name": "note", "value": value}}
        for n, step, value in [(0, 4, "hello"), (1, None, ["a", 1]), (1, None, "same time")]
    ]
    config = {"lr": 0.1, "model": {"layers": 3, "name": "a|b"}, "on": True, "none": None,
              "big": 2**70}  # fmt: skip
    with directory(tmp_path) as made:
        made.begin()
        made.configuration(START, config)
        made.configuration(START, config)
        made.texts(said[:2])
        made.texts(said[1:])
        made.goodput(START + 5, 0.5, {"productive": 1.0, "custom:eval": 1.0})
        made.goodput(START + 5, 0.5, {"productive": 1.0, "custom:eval": 1.0})
        made.goodput(START + 9, None, {"excluded": 2.0})
        made.keep()
    texts = [
        (value.tag, event.step, value.tensor.string_val[0].decode())
        for event in events(tmp_path / "run")
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "text"
    ]
    assert texts[0][:2] == ("config", 0) and "|model.name|a\\|b|\n" in texts[0][2]
    assert texts[1:] == [
        ("note/rank-0", 4, "hello"),
        ("note/rank-0", 1, '["a", 1]'),
        ("note/rank-0", 2, "same time"),
    ]
    assert [(tag, step, value) for tag, _, step, value in scalars(tmp_path / "run")] == [
        ("runwatch/goodput", 0, 50.0),
        ("runwatch/spent_seconds/productive", 0, 1.0),
        ("runwatch/spent_seconds/custom/eval", 0, 1.0),
        ("runwatch/spent_seconds/excluded", 1, 2.0),
    ]
    [about] = [
        value.metadata.plugin_data
        for event in events(tmp_path / "rank-0")
        for value in event.summary.value
    ]
    hyperparameters = HParamsPluginData.FromString(about.content).session_start_info
    known = {name: getattr(value, value.WhichOneof("kind"))
             for name, value in hyperparameters.hparams.items()}  # fmt: skip
    assert about.plugin_name == "hparams" and hyperparameters.start_time_secs == START / 1e9
    assert known == {
        "lr": 0.1, "model.layers": 3.0, "model.name": "a|b", "on": True, "none": "null",
        "big": str(2**70),
    }  # fmt: skip
