"""Remote write's bytes, read back by protobuf from the protocol's own description."""

from __future__ import annotations

import math
import struct
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from runwatch.exports.gauges import Gauge, series_labels
from runwatch.exports.remote_write import labels_of, snappy, write_request
from runwatch.record import JournalId, RunId
from runwatch.rows import SeriesRow

STRING, DOUBLE, INT64, MESSAGE = 9, 1, 3, 11


def _message(name: str, *fields: tuple[str, int, int, str]) -> descriptor_pb2.DescriptorProto:
    made = descriptor_pb2.DescriptorProto(name=name)
    for number, (field, kind, label, of) in enumerate(fields, 1):
        made.field.add(
            name=field, number=number, type=kind, label=label,
            type_name=f".prometheus.{of}" if of else None,
        )  # fmt: skip
    return made


def _write_request() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="prometheus", syntax="proto3")
    file.message_type.extend(
        [
            _message("Label", ("name", STRING, 1, ""), ("value", STRING, 1, "")),
            _message("Sample", ("value", DOUBLE, 1, ""), ("timestamp", INT64, 1, "")),
            _message(
                "TimeSeries", ("labels", MESSAGE, 3, "Label"), ("samples", MESSAGE, 3, "Sample")
            ),
            _message("WriteRequest", ("timeseries", MESSAGE, 3, "TimeSeries")),
        ]
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("prometheus.WriteRequest"))


def unpacked(block: bytes) -> bytes:
    """A snappy block of literals."""
    length = shift = at = 0
    while True:
        length |= (block[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if block[at - 1] < 0x80:
            break
    data = b""
    while at < len(block):
        assert block[at] == 61 << 2
        (count,) = struct.unpack_from("<H", block, at + 1)
        data += block[at + 3 : at + 4 + count]
        at += 4 + count
    assert len(data) == length
    return data


def series(*gauges: Gauge) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
    request = _write_request().FromString(unpacked(write_request(gauges)))
    found = []
    for each in request.timeseries:
        names = [label.name for label in each.labels]
        assert names == sorted(names)
        labels = {label.name: label.value for label in each.labels}
        found.append((labels, [(sample.timestamp, sample.value) for sample in each.samples]))
    return found


def test_a_request_is_read_back_as_it_was_meant() -> None:
    times = [10**15, 10**15 + 5 * 10**6]
    gauge = Gauge("train/loss", {"run": "r", "rank": "0", "device": ""}, times, [0.1, math.inf])
    [(labels, samples)] = series(gauge)
    assert labels == {
        "__name__": "runwatch_train_loss", "metric": "train/loss", "rank": "0", "run": "r"
    }  # fmt: skip
    assert samples == [(10**9, 0.1), (10**9 + 5, math.inf)]


def test_series_of_one_name_are_one_and_a_millisecond_has_one_value() -> None:
    first = Gauge("loss", {"rank": "0"}, [3_000_000, 3_000_001], [1.0, 2.0])
    again = Gauge("loss", {"rank": "0"}, [1_000_000, 3_500_000], [0.5, 3.0])
    other = Gauge("loss", {"rank": "1"}, [3_000_000], [9.0])
    assert [samples for _, samples in series(first, again, other)] == [
        [(1, 0.5), (3, 3.0)],
        [(3, 9.0)],
    ]


def test_the_end_of_a_series_is_the_staleness_marker_and_nan_is_not() -> None:
    def bits(*, ends: bool) -> int:
        [(_, [(_, value)])] = series(Gauge("loss", {}, [0], [math.nan], ends=ends))
        return int.from_bytes(struct.pack(">d", value))

    assert bits(ends=True) == 0x7FF0000000000002
    assert bits(ends=False) == 0x7FF8000000000000


def test_names_and_labels_are_as_prometheus_wants_them() -> None:
    assert labels_of("größe 1", {"__a": "x", "9": "y", "k-b": "ä", "__name__": "mine"}) == (
        ("__name__", "runwatch_gr__e_1"),
        ("a", "x"),
        ("k_b", "ä"),
        ("label_9", "y"),
        ("metric", "größe 1"),
        ("name__", "mine"),
    )


def test_a_programs_labels_do_not_take_the_place_of_ours() -> None:
    row = SeriesRow(
        1, JournalId("j"), RunId("r"), "h", 2, "", "m", "", {"run": "x", "journal": "j"}
    )
    assert series_labels(row, "name", of_host=False) == {
        "label_run": "x", "run": "r", "run_name": "name", "rank": "2", "host": "h"
    }  # fmt: skip
    assert "rank" not in series_labels(row, "name", of_host=True)


def test_a_block_of_any_length_is_whole() -> None:
    for length in (0, 1, 65_535, 65_536, 65_537, 200_000):
        data = bytes(n % 251 for n in range(length))
        assert unpacked(snappy(data)) == data
