"""Each reader alone: from any place on, and with anything behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.imports import wandb
from runwatch.imports.finding import find
from runwatch.imports.items import Item, LeftOut, NotALog, Point, Reached, SourceChanged, Text
from runwatch.imports.mlflow_files import flat_yaml
from runwatch.imports.tables import parsed_time
from runwatch.record import NO_STEP
from runwatch.wire import tfevents_pb2 as pb
from runwatch.wire.masked_crc import checksum
from tests.unit.imports.reading import FIXTURES

EVENTS = next((FIXTURES / "tensorboard" / "fast" / "train").glob("*tfevents*"))
WANDB = next((FIXTURES / "wandb").rglob("*.wandb"))
Marks = dict[str, Any]


def read(path: Path, marks: Marks | None = None) -> tuple[list[Item], Marks]:
    """What is new, and how far it was read."""
    items: list[Item] = []
    reached = dict(marks or {})
    for item in find(path).sources[0].read(reached.copy()):
        if isinstance(item, Reached):
            reached[item.stream] = item.mark
        else:
            items.append(item)
    return items, reached


def known(items: list[Item]) -> list[str]:
    """Comparable, NaN too."""
    return [repr(item) for item in items]


@pytest.mark.parametrize(
    ("original", "every"),
    [pytest.param(EVENTS, 11, id="tensorboard"), pytest.param(WANDB, 691, id="wandb")],
)
def test_a_log_that_is_cut_off_anywhere_goes_on_there(
    original: Path, every: int, tmp_path: Path
) -> None:
    data = original.read_bytes()
    path = tmp_path / original.name
    whole = known(read(original)[0])
    first = 1600 if original == WANDB else 100  # the run must be known by then
    for cut in (*range(first, len(data), every), len(data)):
        path.write_bytes(data[:cut])
        before, marks = read(path)
        assert not any(isinstance(item, LeftOut) and "damage" in item.what for item in before)
        path.write_bytes(data)
        after, _ = read(path, marks)
        assert known(before) + known(after) == whole, cut


@pytest.mark.parametrize("original", [EVENTS, WANDB], ids=["tensorboard", "wandb"])
def test_another_log_under_the_same_name_is_not_taken_for_the_old_one(
    original: Path, tmp_path: Path
) -> None:
    path = tmp_path / original.name
    data = original.read_bytes()
    path.write_bytes(data)
    marks = read(path)[1]
    path.write_bytes(data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    with pytest.raises(SourceChanged, match="--run NAME"):
        read(path, marks)


def test_a_damaged_event_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / EVENTS.name
    data = bytearray(EVENTS.read_bytes())
    at = data.index(b"loss")
    data[at] ^= 1
    path.write_bytes(data)
    items = read(path)[0]
    assert items.count(LeftOut("damaged events")) == 1
    assert sum(isinstance(item, Point) for item in items) == 7


def test_nothing_is_read_behind_a_damaged_length(tmp_path: Path) -> None:
    path = tmp_path / EVENTS.name
    data = bytearray(EVENTS.read_bytes())
    at = 0
    for _ in range(4):
        at += int.from_bytes(data[at : at + 8], "little") + 16
    data[at] ^= 1
    path.write_bytes(data)
    *_, left = (item for item in read(path)[0] if isinstance(item, LeftOut))
    assert left.what.startswith("damaged: nothing behind byte")


def test_a_damaged_block_of_wandb_costs_no_other_block(tmp_path: Path) -> None:
    data = bytearray(WANDB.read_bytes())
    padding = bytes(32 * 1024 - len(data) % (32 * 1024))
    long = tmp_path / WANDB.name
    long.write_bytes(data + padding + data[7:])  # the same records again, in a second block
    twice = read(long)[0]
    points = sum(isinstance(item, Point) for item in twice)
    assert points == 2 * sum(isinstance(item, Point) for item in read(WANDB)[0]) > 0
    data[len(data) // 2] ^= 1
    long.write_bytes(data + padding + WANDB.read_bytes()[7:])
    items = read(long)[0]
    assert items.count(LeftOut("damaged blocks")) >= 1
    assert points > sum(isinstance(item, Point) for item in items) > points // 2


# ── numbers of TensorFlow ──────────────────────────────────────────────────────────────────────


def frame(event: Any) -> bytes:
    data = event.SerializeToString()
    head = len(data).to_bytes(8, "little")
    return b"".join(part + checksum(part).to_bytes(4, "little") for part in (head, data))


def events(path: Path, *values: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    opening = pb.Event(wall_time=1.7e9, file_version=b"brain.Event:2")
    each = [
        pb.Event(wall_time=1.7e9 + n, step=n, summary=pb.Summary(value=[pb.Summary.Value(**v)]))
        for n, v in enumerate(values)
    ]
    path.write_bytes(b"".join(map(frame, (opening, *each))))
    return path


def scalars() -> Iterator[tuple[dict[str, Any], float | None]]:
    yield {"dtype": 1, "tensor_content": b"\x00\x00\x80\x3f"}, 1.0
    yield {"dtype": 1, "float_val": [0.5]}, 0.5
    yield {"dtype": 2, "double_val": [0.1]}, 0.1
    yield {"dtype": 3, "int_val": [-7]}, -7.0
    yield {"dtype": 9, "tensor_content": (2**40).to_bytes(8, "little")}, 2.0**40
    yield {"dtype": 10, "bool_val": [True]}, 1.0
    yield {"dtype": 14, "half_val": [0x3F80]}, 1.0  # bfloat16
    yield {"dtype": 19, "half_val": [0x3C00]}, 1.0  # half
    yield {"dtype": 1, "float_val": [1.0, 2.0]}, None
    yield {"dtype": 1, "tensor_content": b"\x00\x00"}, None
    yield {"dtype": 99}, None
    two = pb.Shape(dim=[pb.Shape.Dim(size=2)])
    yield {"dtype": 1, "tensor_shape": two, "tensor_content": bytes(8)}, None


def test_scalars_as_tensorflow_2_writes_them(tmp_path: Path) -> None:
    tensors = list(scalars())
    path = events(
        tmp_path / "events.out.tfevents.1.a",
        *({"tag": b"x", "tensor": pb.Tensor(**tensor)} for tensor, _ in tensors),
    )
    items = read(path)[0]
    got = {item.step: item.value for item in items if isinstance(item, Point)}
    assert got == {n: value for n, (_, value) in enumerate(tensors) if value is not None}
    assert items.count(LeftOut("tensors")) == sum(value is None for _, value in tensors)


def test_only_the_first_event_of_a_tag_need_say_what_it_is(tmp_path: Path) -> None:
    image = pb.SummaryMetadata(plugin_data=pb.SummaryMetadata.PluginData(plugin_name=b"images"))
    png = pb.Tensor(dtype=7, string_val=[b"1", b"1", b"\x89PNG"])
    path = events(
        tmp_path / "events.out.tfevents.1.a",
        {"tag": b"photo", "tensor": png, "metadata": image},
        {"tag": b"photo", "tensor": png},
        {"tag": b"words", "tensor": pb.Tensor(dtype=7, string_val=["grün".encode()])},
    )
    assert [i for i in read(path)[0] if isinstance(i, LeftOut)] == [LeftOut("images")] * 2
    (text,) = (i for i in read(path)[0] if isinstance(i, Text))
    assert text[:2] == ("words", "grün")
    # … also if the first was read by an earlier import
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"photo") - 1])
    marks = read(path)[1]
    path.write_bytes(data)
    assert LeftOut("images") in read(path, marks)[0]


# ── small parts ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1700000000", 1_700_000_000_000_000_000),
        ("1700000000.25", 1_700_000_000_250_000_000),
        ("1700000000123", 1_700_000_000_123_000_000),
        ("1700000000123456", 1_700_000_000_123_456_000),
        ("1700000000123456789", 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000_000),
        ("2023-11-14 22:13:20.5", 1_700_000_000_500_000_000),
        ("2023-11-14T23:13:20.000000001+01:00", 1_700_000_000_000_000_001),
        ("yesterday", None),
        ("nan", None),
        ("", None),
        ("-5", None),
    ],
)
def test_times(text: str, time_ns: int | None) -> None:
    assert parsed_time(text) == time_ns


def test_flat_yaml(tmp_path: Path) -> None:
    path = tmp_path / "meta.yaml"
    path.write_text(
        "name: a: b\nquoted: 'it''s'\ndouble: \"tab\\there\"\nempty: ''\nnone: null\n"
        "long: 'one\n  two'\ntags: []\n"
    )
    assert flat_yaml(path) == {
        "name": "a: b", "quoted": "it's", "double": "tab\there", "empty": "", "long": "one two",
        "tags": "[]",
    }  # fmt: skip


def test_a_wandb_file_without_a_run_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(WANDB.read_bytes()[:40])
    with pytest.raises(NotALog, match="cut off at its start"):
        list(wandb.sources([path]))


def test_points_of_wandb_have_steps_and_times() -> None:
    points = [item for item in read(WANDB)[0] if isinstance(item, Point)]
    loss = [point for point in points if point.metric == "loss"]
    assert [point.step for point in loss] == [0, 10, 20, 30, 40]
    assert all(a.time_ns < b.time_ns for a, b in zip(loss, loss[1:], strict=False))
    assert {p.step for p in points if p.metric.startswith("system/")} == {NO_STEP}
