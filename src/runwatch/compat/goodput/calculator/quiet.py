"""Windows about which the original's rules say nothing, because too little was recorded in them.

A job that hangs records nothing, and so does one whose steps are longer than the window.  The
strict account can tell the two apart.  Here its classes become the original's kinds, so that every
window has a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from runwatch.compat.goodput.goodput_utils import BadputType, UnproductiveTimeDict, each_amount
from runwatch.exports.cloud_monitoring import SOURCES
from runwatch.views.goodput.account import Account

_KINDS: Final = {name: BadputType[source] for name, source in SOURCES.items()}
"""All other classes, a hang among them, are OTHER."""

CUSTOM: Final = "custom:"
NOT_BADPUT: Final = frozenset(("productive", "excluded"))


@dataclass(frozen=True, slots=True)
class Quiet:
    """Seconds of a window in which the job ran."""

    productive: float
    badput: UnproductiveTimeDict
    total: float

    @property
    def goodput_percent(self) -> float:
        return self.productive / self.total * 100

    @property
    def badput_percent(self) -> UnproductiveTimeDict:
        """A kind that fills the window is 100 %; the original shows it as 0."""
        return each_amount(self.badput, lambda seconds: seconds / self.total * 100)


def in_kinds(account: Account, kinds: Iterable[BadputType], *, may_be_productive: bool) -> Quiet:
    """A window's account in the original's kinds.  Each of `kinds` is listed, even at 0.

    ValueError if no time passed.
    """
    if not account.counted_ns:
        raise ValueError("the job did not run in this window")
    plain = dict.fromkeys((*kinds, BadputType.OTHER), 0.0)
    plain.pop(BadputType.CUSTOM_BADPUT_EVENTS, None)
    custom: dict[str, float] = {}
    for name, ns in account.spent_ns.items():
        if name.startswith(CUSTOM):
            custom[name.removeprefix(CUSTOM).upper()] = ns / 1e9
        elif name not in NOT_BADPUT and ns:
            kind = _KINDS.get(name, BadputType.OTHER)
            plain[kind] = plain.get(kind, 0.0) + ns / 1e9
    productive = account.spent_ns["productive"] / 1e9
    if not may_be_productive:
        plain[BadputType.OTHER] += productive
        productive = 0.0
    badput: UnproductiveTimeDict = {**plain, BadputType.CUSTOM_BADPUT_EVENTS: custom}
    return Quiet(productive, badput, account.counted_ns / 1e9)
