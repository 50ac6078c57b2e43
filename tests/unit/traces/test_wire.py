"""Runs of messages: found by chunks at once, they are those that a walk from the first finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.traces import wire

TAG = 0x22
QUICKLY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Bodies that look like messages themselves, with the same tag: stats in events are so.
BODIES = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 70).map(lambda count: b"\x22\x04abcd" * count),
    st.integers(0, 300).map(lambda size: b"\x22" * size),
)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def written(bodies: list[bytes]) -> bytes:
    return b"".join(bytes([TAG]) + varint(len(body)) + body for body in bodies)


def walked(data: bytes) -> tuple[list[tuple[int, int]], int]:
    found, position = [], 0
    while position < len(data) and data[position] == TAG:
        length, begin = wire._length(data, position + 1)
        if begin < 0 or begin + length > len(data):
            break
        found.append((begin, begin + length))
        position = begin + length
    return found, position


def at_once(data: bytes) -> tuple[list[tuple[int, int]], int]:
    begin, end, after = wire._walk(data, TAG)
    return list(zip(begin.tolist(), end.tolist(), strict=True)), after


@pytest.fixture(autouse=True, scope="module", params=[16, 256])
def small_chunks(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_CHUNK", request.param)
        yield


@QUICKLY
@given(st.lists(BODIES, max_size=60), st.integers(0, 300), st.sampled_from([b"", b"\x08\x01"]))
def test_messages_that_follow_one_another(bodies: list[bytes], cut: int, rest: bytes) -> None:
    data = written(bodies)
    for text in (data + rest, data[: max(0, len(data) - cut)]):
        assert at_once(text) == walked(text)


@QUICKLY
@given(st.binary(max_size=400).map(lambda data: data.replace(b"\x00", b"\x22")))
def test_anything_else(data: bytes) -> None:
    assert at_once(data) == walked(data)


def test_fields_of_a_damaged_message() -> None:
    assert wire.plain(b"\x08\x96\x01\x12\x02hi") == [(1, 0, 150, b""), (2, 2, 2, b"hi")]
    assert wire.plain(b"") == []
    for damaged in (b"\x08", b"\x12\x05hi", b"\x0b", b"\x00\x01", b"\x09\x01", b"\xff" * 11):
        assert wire.plain(damaged) is None
