"""An agent beside heads of either version of the wire, over real gRPC."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId
from runwatch.ship.client import Address, Shipper, ShipSettings
from runwatch.wire import spine_pb2 as pb
from tests.integration.processes import until
from tests.unit.journal.journal_help import origin

NAMES = ["6553f100-node-7-a1", "6553f100-node-8-a2", "6553f100-node-9-a3"]


class Head:
    """Answers as one of that version does; stores nothing, and notes what it was sent."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.batches: list[list[str]] = []
        """The journals in each message that held batches."""
        self.opened: list[str] = []
        handler = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=pb.Up.FromString,
            response_serializer=pb.Down.SerializeToString,
        )
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("runwatch.v1.Spine", {"Stream": handler}),)
        )
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()

    def _stream(self, requests: Iterator[pb.Up], _: grpc.ServicerContext) -> Iterator[pb.Down]:
        for up in requests:
            kind = up.WhichOneof("message")
            if kind == "hello":
                assert up.hello.oldest_wire_version == 1
                yield pb.Down(welcome=pb.Welcome(wire_version=self.version))
            elif kind == "open":
                self.opened.append(up.open.journal)
                if len(self.opened) == len(NAMES):
                    yield from self._cursors((journal, 0) for journal in self.opened)
            elif kind in ("batch", "batches"):
                batches = [up.batch] if kind == "batch" else list(up.batches.batches)
                self.batches.append([batch.origin.journal for batch in batches])
                yield from self._cursors((batch.origin.journal, batch.end) for batch in batches)

    def _cursors(self, told: Iterator[tuple[str, int]]) -> Iterator[pb.Down]:
        cursors = [pb.Cursor(journal=journal, position=place) for journal, place in told]
        if self.version > 1:
            yield pb.Down(cursors=pb.Cursors(cursors=cursors))
        else:
            for cursor in cursors:
                yield pb.Down(cursor=cursor)


@pytest.mark.parametrize(
    ("version", "settings", "together"),
    [
        (1, ShipSettings(poll_seconds=0.01), 1),
        (2, ShipSettings(poll_seconds=0.01), 3),
        (2, ShipSettings(poll_seconds=0.01, message_bytes=1), 1),
        (2, ShipSettings(poll_seconds=0.01, unacknowledged_bytes=1), 3),
        (2, ShipSettings(poll_seconds=0.01, message_bytes=1, unacknowledged_bytes=1), 1),
    ],
)
def test_what_is_new_travels_in_as_few_messages_as_a_head_understands(
    tmp_path: Path, version: int, settings: ShipSettings, together: int
) -> None:
    for name in NAMES:
        writer = JournalWriter(tmp_path, origin(name))
        writer.point(writer.series("loss"), 0.5)
        writer.close()
    head = Head(version)
    address = Address(f"127.0.0.1:{head.port}")
    shipper = Shipper(tmp_path, address, all_hosts=True, settings=settings)
    thread = threading.Thread(target=shipper.run)
    thread.start()
    try:
        names = set(map(JournalId, NAMES))
        until(lambda: {n for n, at in shipper.acknowledged.items() if at} == names, 30, "all")
        until(shipper.all_acknowledged, 30, "it knows")
    finally:
        shipper.stop()
        thread.join(30)
        head.close()
    assert not thread.is_alive()
    assert sorted(head.opened) == NAMES
    assert sorted(name for message in head.batches for name in message) == NAMES
    assert max(map(len, head.batches)) == together or together == 3 and len(head.batches) < 3
