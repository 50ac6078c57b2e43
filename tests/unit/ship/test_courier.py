"""Whether a courier knows that nothing is left to bring.  No head is needed for that."""

from __future__ import annotations

import os
from pathlib import Path

import grpc

from runwatch.errors import HeadUnreachable
from runwatch.ship.courier import Courier
from runwatch.testing import EPOCH, FakeClock


def nobody() -> grpc.Channel:
    raise HeadUnreachable("nobody is there")


def test_where_nothing_was_left_all_is_brought(tmp_path: Path) -> None:
    clock = FakeClock(EPOCH)
    assert Courier(tmp_path, nobody, host="node", clock=clock).has_brought_all(clock.mono_ns())


def test_a_file_too_young_to_be_brought_is_not_forgotten(tmp_path: Path) -> None:
    clock = FakeClock(EPOCH)
    folder = tmp_path / "profiles/run-1/plugins/profile/session-1"
    folder.mkdir(parents=True)
    young = folder / "host.xplane.pb"
    young.write_bytes(b"profile")
    os.utime(young, ns=(EPOCH, EPOCH))
    courier, since_ns = Courier(tmp_path, nobody, host="node", clock=clock), clock.mono_ns()
    assert courier.round() and courier.settled
    assert not courier.has_brought_all(since_ns)
    clock.advance(1)
    assert not courier.round()  # nobody takes it
    assert not courier.has_brought_all(since_ns)
    young.unlink()
    assert courier.round() and courier.has_brought_all(since_ns)
