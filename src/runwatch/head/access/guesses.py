"""A brake on guessing tokens, by address."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from runwatch.clock import Clock, system_clock

BURST: Final = 10
"""How many wrong tokens in a row an address may show."""
EVERY_SECONDS: Final = 3.0
"""How long until the address may show one more."""
MOST_ADDRESSES: Final = 10_000


class Guesses:
    """How many wrong tokens each address may still show."""

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._spent: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Address → how many wrong tokens it spent, and when that was counted; newest last."""

    def wait_seconds(self, address: str) -> int:
        """How long the address must wait; 0: it may try now."""
        over = self._now(_block(address)) - (BURST - 1)
        return max(0, int(over * EVERY_SECONDS) + 1) if over > 0 else 0

    def wrong(self, address: str) -> None:
        block = _block(address)
        self._spent[block] = self._now(block) + 1, self._clock.mono_ns()
        self._spent.move_to_end(block)
        if len(self._spent) > MOST_ADDRESSES:
            self._spent.popitem(last=False)

    def _now(self, block: str) -> float:
        spent, since_ns = self._spent.get(block, (0.0, 0))
        back = (self._clock.mono_ns() - since_ns) / 1e9 / EVERY_SECONDS
        return max(0.0, spent - back)


def _block(address: str) -> str:
    """An IPv6 address counts as its /64 network: a caller with one has all 2⁶⁴ of them."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
