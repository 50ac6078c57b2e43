"""A shipper that waits comes when its head is back, and not when somebody else only listens."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runwatch.ship.client import Address, Shipper, ShipSettings
from runwatch.testing import until
from tests.integration.processes import free_port

SLOW = ShipSettings(
    first_delay_seconds=600.0, longest_delay_seconds=600.0, probe_seconds=0.02, answer_seconds=5.0
)


@contextmanager
def shipping(root: Path, port: int) -> Iterator[Shipper]:
    shipper = Shipper(root, Address(f"127.0.0.1:{port}"), settings=SLOW, draw=lambda: 0.5)
    thread = threading.Thread(target=shipper.run)
    thread.start()
    try:
        yield shipper
    finally:
        shipper.stop()
        thread.join()


class Door:
    """Takes connections and hangs up.  Counts those that came to talk: they bring bytes."""

    def __init__(self, port: int) -> None:
        self.looks = self.talks = 0
        self._listening = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while True:
            try:
                taken, _ = self._listening.accept()
            except OSError:
                return
            with taken:
                if taken.recv(3):
                    self.talks += 1
                else:
                    self.looks += 1

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


def test_a_head_that_comes_back_is_found_at_once(tmp_path: Path) -> None:
    port = free_port()
    with shipping(tmp_path, port) as shipper:
        until(lambda: shipper.problem.startswith("unavailable"), what="the first try to fail")
        door = Door(port)
        try:
            until(lambda: door.talks, what="the shipper, ten minutes early")
        finally:
            door.close()


def test_who_only_listens_is_tried_once_and_then_as_ever(tmp_path: Path) -> None:
    port = free_port()
    with shipping(tmp_path, port) as shipper:
        until(lambda: shipper.problem.startswith("unavailable"), what="the first try to fail")
        door = Door(port)
        try:
            until(lambda: door.talks, what="the shipper")
            seen = door.looks
            until(lambda: door.looks > seen + 20, what="looks, without a try")
            assert door.talks == 1
        finally:
            door.close()
        until(lambda: shipper._was_away, what="a look that finds nobody")
        door = Door(port)
        try:
            until(lambda: door.talks, what="the shipper, a second time")
        finally:
            door.close()
