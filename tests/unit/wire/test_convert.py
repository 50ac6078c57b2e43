from __future__ import annotations

import os
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.errors import WireError
from runwatch.record import (
    NO_STEP,
    Batch,
    Event,
    JournalId,
    Origin,
    Points,
    Position,
    Role,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.wire import profiler_pb2, tfevents_pb2, wandb_pb2
from runwatch.wire import spine_pb2 as pb
from runwatch.wire.convert import (
    agree_on_version,
    batch_from_message,
    batch_to_message,
    check_journal_id,
)

SOURCE = Path(__file__).parents[3] / "src"
int64 = st.integers(-(2**63), 2**63 - 1)
uint32 = st.integers(0, 2**32 - 1)
time_ns = st.integers(0, 2**62)
rows = st.tuples(uint32, int64, int64, st.floats(allow_nan=False))
text = st.text(st.characters(codec="utf-8"), max_size=20)


def a_batch() -> Batch:
    origin = Origin(JournalId("j-1"), "gpu-1", 42, 7, "boot", 9, "process", "0.1")
    batch = Batch(origin, Position(0), Position(128))
    batch.definitions = [
        RunScope(1, RunId("r"), "run", 3, 8, "key", "group"),
        Series(2, "loss", 1, "1", "0", {"a": "b"}),
        SpanName(3, "step", 1),
    ]
    batch.points = Points(array("I", [2]), array("q", [5]), array("q", [NO_STEP]), array("d", [1]))
    batch.spans.append(3, 1, 0, 6, 7)
    batch.events = [Event(8, "log", {"x": [1, None]}, 9, 1)]
    batch.skipped_records = 4
    return batch


def columns(points: Points) -> tuple[list[int], list[int], list[int], list[float]]:
    return list(points.series), list(points.time_ns), list(points.step), list(points.value)


@pytest.mark.parametrize("role", get_args(Role))
def test_every_role_survives_the_wire(role: Role) -> None:
    sent = a_batch()
    sent.origin = replace(sent.origin, role=role)
    message = pb.Batch.FromString(batch_to_message(sent).SerializeToString())
    assert batch_from_message(message).origin.role == role


def test_a_batch_survives_the_wire() -> None:
    sent = a_batch()
    message = pb.Batch.FromString(batch_to_message(sent).SerializeToString())
    got = batch_from_message(message)
    assert got.origin == sent.origin
    assert (got.start, got.end, got.skipped_records) == (0, 128, 4)
    assert got.definitions == sent.definitions
    assert columns(got.points) == columns(sent.points)
    assert list(got.spans.time_ns) == [6]
    assert got.events == sent.events


@given(st.lists(rows, max_size=50), st.lists(st.tuples(time_ns, text, int64, uint32), max_size=5))
def test_any_points_and_events_survive_the_wire(
    points: list[tuple[int, int, int, float]], events: list[tuple[int, str, int, int]]
) -> None:
    batch = Batch(Origin(JournalId("j"), "h", 1, 0), Position(1), Position(2))
    for row in points:
        batch.points.append(*row)
    batch.events = [Event(t, kind, {"text": kind}, step, scope) for t, kind, step, scope in events]
    got = batch_from_message(pb.Batch.FromString(batch_to_message(batch).SerializeToString()))
    assert columns(got.points) == columns(batch.points)
    assert got.events == batch.events


def spoiled(spoil: object) -> pb.Batch:
    message = batch_to_message(a_batch())
    assert callable(spoil)
    spoil(message)
    return message


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda m: setattr(m, "end", 0), "not a stretch of a journal"),
        (lambda m: setattr(m, "end", 2**63), "not a stretch of a journal"),
        (lambda m: setattr(m.origin, "journal", "../x"), "not a journal id"),
    ],
)
def test_what_is_of_no_journal_is_refused_with_a_reason(spoil: object, words: str) -> None:
    with pytest.raises(WireError, match=words):
        batch_from_message(spoiled(spoil))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda m: setattr(m.points, "series", b"123"), "points.series has 3 bytes"),
        (lambda m: setattr(m.points, "series", b""), "different lengths"),
        (lambda m: setattr(m.spans, "edge", b""), "different lengths"),
        (lambda m: setattr(m.origin, "host", "../../x"), "its host is no name"),
        (lambda m: setattr(m.origin, "pid", 1 << 40), "its pid is not"),
    ],
)
def test_a_batch_that_makes_no_sense_is_a_gap_of_its_length(spoil: object, words: str) -> None:
    got = batch_from_message(spoiled(spoil), host="node-1", now_ns=5)
    assert (got.start, got.end) == (a_batch().start, a_batch().end)
    assert got.origin.journal == a_batch().origin.journal
    assert got.skipped_records == a_batch().skipped_records + 1
    assert not len(got.points) and not len(got.spans) and not got.definitions
    ((time_ns, kind, body, _, _),) = got.events
    assert (time_ns, kind, body["records"]) == (5, "journal_gap", 1)
    assert words in body["reason"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda m: setattr(m.events[0], "body_json", "{"), "not JSON"),
        (lambda m: setattr(m.events[0], "body_json", "[" * 9999 + "]" * 9999), "not JSON"),
        (lambda m: setattr(m.events[0], "body_json", "[]"), "not an object"),
        (lambda m: setattr(m.events[0], "body_json", '"' + "x" * 7_000_000 + '"'), "longer than"),
        (lambda m: setattr(m.events[0], "time_ns", -1), "its time is not"),
        (lambda m: setattr(m.spans, "edge", m.spans.edge[:-1] + b"\2"), "neither a begin nor"),
        (lambda m: m.definitions.append(pb.Definition()), "does not know"),
        (
            lambda m: m.definitions.append(pb.Definition(run=pb.RunScope(id=9, world_size=2**31))),
            "its world_size is not",
        ),
    ],
)
def test_a_record_that_makes_no_sense_takes_no_other_along(spoil: object, words: str) -> None:
    whole, got = a_batch(), batch_from_message(spoiled(spoil))
    assert columns(got.points) == columns(whole.points)
    assert got.definitions == whole.definitions
    assert [e for e in got.events if e in whole.events] == got.events[:-1]
    assert len(got.events) >= len(whole.events)
    assert words in got.events[-1].body["reason"]
    assert got.skipped_records == whole.skipped_records + 1


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\0b", "x" * 201, "a b"])
def test_a_journal_id_is_never_a_path(name: str) -> None:
    with pytest.raises(WireError):
        check_journal_id(name)


def test_versions() -> None:
    assert agree_on_version(1, 1) == 1
    assert [agree_on_version(1, newest) for newest in (2, 9)] == [2, 2]
    with pytest.raises(WireError, match="upgrade the head"):
        agree_on_version(3, 4)
    with pytest.raises(WireError, match="upgrade the agent"):
        agree_on_version(0, 0)


@pytest.mark.parametrize(
    ("proto", "stub"),
    [("spine", pb), ("profiler", profiler_pb2), ("tfevents", tfevents_pb2), ("wandb", wandb_pb2)],
)
def test_the_stubs_are_made_from_the_proto(proto: str, stub: ModuleType, tmp_path: Path) -> None:
    made = tmp_path / "made.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCE)]
    command += [f"--descriptor_set_out={made}", f"runwatch/wire/{proto}.proto"]
    subprocess.run(command, check=True)
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    fresh = FileDescriptorSet.FromString(made.read_bytes()).file[0]
    for message in fresh.message_type:  # the stubs leave out what follows from the field's name
        for field in (*message.field, *(f for n in message.nested_type for f in n.field)):
            field.ClearField("json_name")
    committed = FileDescriptorProto.FromString(stub.DESCRIPTOR.serialized_pb)
    assert committed == fresh, "run `make proto`"


@pytest.mark.parametrize(
    "stub", ["spine_pb2.py", "gswarm_pb2.py", "profiler_pb2.py", "tfevents_pb2.py", "wandb_pb2.py"]
)
def test_the_stubs_ask_for_no_new_protobuf(stub: str) -> None:
    """Those that a new compiler makes do, and an agent runs beside frameworks that pin theirs."""
    text = (SOURCE / "runwatch" / "wire" / stub).read_text()
    assert "runtime_version" not in text, "made by hand? run `make proto`"


@pytest.mark.soak
@pytest.mark.parametrize("version", ["4.25.8", "5.29.5", "6.33.2"])
def test_messages_with_an_old_protobuf(version: str, tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, f"protobuf=={version}"], check=True)
    program = """
import google.protobuf, runwatch.head.features.gswarm.grpc, runwatch.ship.client
from runwatch.wire import spine_pb2 as pb
said = pb.Up(batches=pb.Batches(batches=[pb.Batch(start=1, end=2)]))
assert pb.Up.FromString(said.SerializeToString()) == said
print(google.protobuf.__version__)
"""
    paths = os.pathsep.join((str(tmp_path), str(SOURCE)))
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )
    assert told.stdout.strip() == version


def test_an_old_message_is_still_read() -> None:
    """Bytes of wire version 1 as they were on the day it landed."""
    fixture = Path(__file__).parents[2] / "fixtures" / "wire" / "batch-v1.bin"
    got = batch_from_message(pb.Batch.FromString(fixture.read_bytes()))
    assert got.definitions == a_batch().definitions
    assert columns(got.points) == columns(a_batch().points)
    assert got.events == a_batch().events
