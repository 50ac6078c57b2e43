"""An agent beside heads of either version of the wire, over real gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from runwatch.journal.liveness import this_host
from runwatch.journal.reader import JournalReader
from runwatch.journal.writer import JournalWriter
from runwatch.ship.client import Address, Shipper, ShipSettings
from runwatch.testing import until
from runwatch.wire import spine_pb2 as pb
from tests.unit.journal.journal_help import origin

NO_PID = 5_000_000
"""Linux gives none so large."""
NAMES = ["6553f100-node-7-a1", "6553f100-node-8-a2", "6553f100-node-9-a3"]


class Head:
    """Answers as one of that version does; keeps no more than how far it is with each journal."""

    def __init__(self, version: int, refusals: int = 0) -> None:
        """The first so many batches are refused."""
        self.version = version
        self._refusals = refusals
        self.messages: list[list[tuple[str, int]]] = []
        """Of each message with batches whose they are and where they begin."""
        self.reached = dict.fromkeys(NAMES, 0)
        self.opened: list[str] = []
        self.may_refuse: Callable[[], bool] = lambda: True
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
                    yield from self._say([pb.Cursor(journal=name) for name in self.opened])
            elif kind in ("batch", "batches"):
                batches = [up.batch] if kind == "batch" else list(up.batches.batches)
                self.messages.append([(batch.origin.journal, batch.start) for batch in batches])
                yield from self._say([self._take(batch) for batch in batches])

    def _take(self, batch: pb.Batch) -> pb.Cursor:
        journal = batch.origin.journal
        refused = batch.start != self.reached[journal]
        if self._refusals:
            self._refusals -= 1
            until(self.may_refuse, 30, "the writers to be known as dead")
            refused = True
        if not refused:
            self.reached[journal] = batch.end
        return pb.Cursor(journal=journal, position=self.reached[journal], refused=refused)

    def _say(self, cursors: list[pb.Cursor]) -> Iterator[pb.Down]:
        if self.version > 1:
            yield pb.Down(cursors=pb.Cursors(cursors=cursors))
        else:
            yield from (pb.Down(cursor=cursor) for cursor in cursors)


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
    head = Head(version)
    ship(tmp_path, head, settings, host="node")
    assert sorted(head.opened) == NAMES
    sent = [each for message in head.messages for each in message]
    assert len(set(sent)) == len(sent)  # none twice
    most = max(map(len, head.messages))
    assert most == together or together == 3 and most == 2  # a cursor may come in mid-round


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_refused_is_sent_again_though_its_writer_is_dead(
    tmp_path: Path, version: int
) -> None:
    head = Head(version, refusals=4)
    ship(tmp_path, head, ShipSettings(poll_seconds=0.01), host=this_host())
    sent = [each for message in head.messages for each in message]
    assert {(name, 0) for name in NAMES} <= set(sent) and len(sent) >= 4 + len(NAMES)


def ship(root: Path, head: Head, settings: ShipSettings, *, host: str) -> None:
    """Three journals, until the head has all of them; `host` is where they are from."""
    ends = {}
    for name in NAMES:
        writer = JournalWriter(root, origin(name, host=host, pid=NO_PID))
        writer.point(writer.series("loss"), 0.5)
        writer.close()
        reader = JournalReader(writer.directory)
        while reader.read() is not None:
            pass
        reader.close()
        ends[name] = reader.position
    address = Address(f"127.0.0.1:{head.port}")
    shipper = Shipper(root, address, all_hosts=True, settings=settings)
    head.may_refuse = lambda: all(f.done for f in shipper._tail.journals.values())
    thread = threading.Thread(target=shipper.run)
    thread.start()
    try:
        until(lambda: head.reached == ends, 30, "the head to have all")
        until(lambda: shipper.acknowledged == ends, 30, "the agent to know")
        assert shipper.all_acknowledged()
    finally:
        shipper.stop()
        thread.join(100)
        head.close()
    assert not thread.is_alive()
