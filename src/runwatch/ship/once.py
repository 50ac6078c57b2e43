"""Sends complete journals to a head and waits until the head has stored them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import HeadUnreachable
from runwatch.record import JournalId, Position
from runwatch.ship.client import Address, Shipper, ShipSettings

PATIENCE_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.02
_REFUSED: Final = ("unauthenticated", "permission denied", "unimplemented")
_SOON: Final = ShipSettings(poll_seconds=LOOK_SECONDS, longest_delay_seconds=2.0)


def ship_once(
    root: Path,
    address: Address,
    ends: Mapping[JournalId, Position],
    *,
    token: str = "",
    ca: bytes | None = None,
    seconds: float = PATIENCE_SECONDS,
    clock: Clock = system_clock,
) -> None:
    """Returns when the head has stored the journals under `root` up to `ends`.  Raises if the head
    refuses, or if nothing is stored for `seconds`; otherwise it may take as long as it needs."""
    shipper = Shipper(root, address, token=token, ca=ca, all_hosts=True, settings=_SOON)
    thread = threading.Thread(target=shipper.run, name="runwatch-ship-once", daemon=True)
    thread.start()
    pause = threading.Event()
    reached, deadline_ns = -1, 0
    try:
        while any(shipper.acknowledged.get(name, -1) < end for name, end in ends.items()):
            now_ns, stored = clock.mono_ns(), sum(shipper.acknowledged.values())
            if stored != reached:
                reached, deadline_ns = stored, now_ns + int(seconds * 1e9)
            if now_ns > deadline_ns or shipper.problem.startswith(_REFUSED):
                raise HeadUnreachable(f"the head at {address.target}: {shipper.problem}")
            pause.wait(LOOK_SECONDS)
    finally:
        shipper.stop()
        thread.join()
