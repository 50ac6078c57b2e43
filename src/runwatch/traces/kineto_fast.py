"""Events of a Kineto trace by msgspec, which reads past everything that is not named here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from runwatch.traces.kineto import Event as PlainEvent
from runwatch.traces.kineto import Plain


class Args(msgspec.Struct, gc=False):
    name: Any = None
    step_num: Any = None
    hlo_op: Any = None
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")


class Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = math.nan
    dur: float = -1.0
    args: Args | None = None


class Fast:
    def __init__(self) -> None:
        self._many = msgspec.json.Decoder(list[Event])
        self._plain = Plain()

    def many(self, text: bytes) -> list[Any] | None:
        try:
            return self._many.decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None

    def one(self, event: Mapping[str, Any]) -> PlainEvent:
        return self._plain.one(event)
