"""Reads Chrome and Kineto traces (JSON, plain or gzipped) into lanes of the account."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from runwatch.traces.account import HOST, Account, Lane, Reading, Step
from runwatch.traces.intervals import Ints
from runwatch.traces.json_stream import EventStream
from runwatch.traces.names import (
    Work,
    device_lines,
    device_work,
    host_work,
    is_collective,
    is_input,
    step_number,
)
from runwatch.traces.opening import Kind, Limits, text_stream
from runwatch.traces.own_threads import TorchThreads

_DEVICE: Final = frozenset(
    ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "concurrent_kernel")
)
_LEFT_OUT: Final = frozenset(
    ("gpu_user_annotation", "overhead", "Trace", "cuda_sync", "cuda_profiler_range")
)
_FRAMES: Final = frozenset(("python_function", "user_annotation"))
_FARTHEST_MICROSECONDS: Final = 4e15
_EPOCH_NANOSECONDS: Final = 10**18
"""A time above this one (of 2001) counts from 1970."""
_OTHER: Final = "(other names)"
_PLANE: Final = re.compile(r"^/device:(?:GPU|TPU):(\d{1,6})$")
_DEVICE_KINDS: Final = {0: "cpu", 1: "cuda", 12: "xpu", 20: "privateuse1"}


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that we use."""

    name: Any = None
    step_num: Any = None
    hlo_op: Any = None
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    python_id: Any = msgspec.field(default=None, name="Python id")
    python_parent: Any = msgspec.field(default=None, name="Python parent id")


class Event(msgspec.Struct, gc=False):
    """The fields of an event that we use; msgspec skips all others."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = math.nan
    dur: float = -1.0
    args: Args | None = None


_ARGUMENTS: Final = tuple(field.encode_name for field in msgspec.structs.fields(Args))


class EventDecoder:
    def __init__(self) -> None:
        self._many = msgspec.json.Decoder(list[Event])

    def many(self, text: bytes) -> list[Event] | None:
        try:
            return self._many.decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None

    def one(self, event: Mapping[str, Any]) -> Event:
        """The readable part of an event that does not fit the types."""
        return Event(
            str(event.get("ph", "")), str(event.get("name", "")), str(event.get("cat", "")),
            _word(event.get("pid", 0)), _word(event.get("tid", 0)),
            _number(event.get("ts"), math.nan), _number(event.get("dur"), -1.0),
            _arguments(event.get("args")),
        )  # fmt: skip


def _arguments(args: object) -> Args | None:
    # Not `msgspec.convert`: it fails on a key that is not UTF-8.
    return Args(*map(args.get, _ARGUMENTS)) if isinstance(args, dict) else None


def _word(value: object) -> int | str:
    return value if isinstance(value, int) else str(value)


def _number(value: object, otherwise: float) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else otherwise  # type: ignore[arg-type]


# ── from events to columns ────────────────────────────────────────────────────────────────────


class _Columns:
    """All events with a duration, in about 24 bytes each."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.lanes: dict[tuple[int | str, int | str, bool], int] = {}
        self.names: dict[tuple[str, str], int] = {}
        self.unreadable = 0
        self._parts: list[tuple[Any, Ints, Ints, Any]] = []

    def add(self, events: Sequence[Event]) -> None:
        if not events:
            return
        lanes, names = self.lanes, self.names
        if len(names) > self._limits.names:
            events = [e if (e.cat, e.name) in names else _renamed(e) for e in events]
        lane = [lanes.setdefault((e.pid, e.tid, e.cat in _DEVICE), len(lanes)) for e in events]
        name = [names.setdefault((e.cat, e.name), len(names)) for e in events]
        at = np.array([e.ts for e in events])
        lasted = np.array([e.dur for e in events])
        fine = (np.abs(at) < _FARTHEST_MICROSECONDS) & (lasted >= 0)
        fine &= lasted < _FARTHEST_MICROSECONDS
        self.unreadable += int(len(events) - fine.sum())
        start = np.rint(at[fine] * 1e3).astype(np.int64)
        end = start + np.rint(lasted[fine] * 1e3).astype(np.int64)
        columns = (np.array(lane, np.int32)[fine], np.array(name, np.int32)[fine])
        self._parts.append((columns[0], start, end, columns[1]))

    def by_lane(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        """(lane, names, start, end) of each lane."""
        if not self._parts:
            return
        lane, start, end, name = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        self._parts.clear()
        order = np.argsort(lane, kind="stable")
        edges = np.searchsorted(lane[order], np.arange(len(self.lanes) + 1))
        for number, (begin, finish) in enumerate(pairwise(edges.tolist())):
            if begin < finish:
                chosen = order[begin:finish]
                yield number, name[chosen], start[chosen], end[chosen]


def _renamed(event: Event) -> Event:
    return Event(event.ph, _OTHER, event.cat, event.pid, event.tid, event.ts, event.dur)


class _Reader:
    def __init__(self, limits: Limits) -> None:
        self.columns = _Columns(limits)
        self.account = Account(limits)
        self.processes: dict[int | str, str] = {}
        self.threads: dict[tuple[int | str, int | str], str] = {}
        self.memory: dict[str, int] = {}
        self.steps: list[Step] = []
        self.operations: set[tuple[str, str]] = set()
        self.hidden: set[str] = set()
        self.half_events = 0
        self._own = TorchThreads()

    def take(self, events: Sequence[Event]) -> None:
        lasting = [e for e in events if e.ph == "X" and e.cat not in _LEFT_OUT]
        self.account.count(len(lasting))
        self.account.check_held(self.account.events)
        self.columns.add(list(self._own.others(lasting)))
        for event in lasting:
            args = event.args
            if args is not None and (args.hlo_op is not None or args.step_num is not None):
                self._take_marked(event, args)
        if len(lasting) < len(events):
            for event in events:
                if event.ph != "X":
                    self._take_other(event)

    def _take_other(self, event: Event) -> None:
        if event.ph in ("B", "E"):
            self.half_events += 1
        elif event.args is None:
            return
        elif event.ph == "M" and event.name == "process_name":
            self.processes[event.pid] = str(event.args.name)
        elif event.ph == "M" and event.name == "thread_name":
            self.threads[event.pid, event.tid] = str(event.args.name)
        elif event.name == "[memory]":
            self._take_memory(event.args)

    def _take_memory(self, args: Args) -> None:
        numbers = (args.allocated, args.device_type, args.device_id)
        if all(isinstance(number, int) for number in numbers):
            device = _DEVICE_KINDS.get(args.device_type, f"device type {args.device_type}")
            device += f":{args.device_id}" if args.device_id >= 0 else ""
            self.memory[device] = max(args.allocated, self.memory.get(device, 0))

    def _take_marked(self, event: Event, args: Args) -> None:
        """An operation or a step of XLA."""
        if args.hlo_op is not None:
            self.operations.add((event.cat, event.name))
            return
        self.hidden.add(event.name)
        number = str(args.step_num)
        if number.isdecimal() and event.dur >= 0 and abs(event.ts) < _FARTHEST_MICROSECONDS:
            begin = round(event.ts * 1e3)
            end = begin + round(event.dur * 1e3)
            self.steps.append(Step(int(number), begin, end, event.name))

    # ── into the account ───────────────────────────────────────────────────────────────────────

    def fold(self) -> None:
        self.columns.add(list(self._own.rest()))
        keys, lanes = list(self.columns.names), list(self.columns.lanes)
        works = {True: _device_works(keys), False: self._host_works(keys)}
        marks = {
            i: number
            for i, (_, name) in enumerate(keys)
            if (number := step_number(name)) is not None
        }
        devices = _Devices(lanes, self.processes, self.threads)
        for lane, names, start, end in self.columns.by_lane():
            device = devices.of(lanes[lane])
            if device is None:
                continue
            if device == HOST:
                self._mark_steps(keys, marks, names, start, end)
            into = Lane(self.account, device)
            into.push(names, start, end)
            into.close(works[device != HOST])

    def _host_works(self, keys: Sequence[tuple[str, str]]) -> Ints:
        return np.array([self._host_work(*key) for key in keys])

    def _host_work(self, cat: str, name: str) -> Work:
        if (cat, name) in self.operations:
            return Work.COMMUNICATION if is_collective(name) else Work.COMPUTE
        return Work.NONE if name in self.hidden else _host_work(cat, name)

    def _mark_steps(
        self, keys: list[tuple[str, str]], marks: Any, names: Ints, start: Ints, end: Ints
    ) -> None:
        for at in np.flatnonzero(np.isin(names, list(marks))).tolist():
            word = keys[int(names[at])][1]
            number = marks[int(names[at])]
            self.steps.append(Step(number, int(start[at]), int(end[at]), word.partition("#")[0]))


class _Devices:
    """The device of each lane: by category in Kineto traces, else by the process's name."""

    def __init__(
        self,
        lanes: Sequence[tuple[int | str, int | str, bool]],
        processes: Mapping[int | str, str],
        threads: Mapping[tuple[int | str, int | str], str],
    ) -> None:
        self._threads = threads
        self._planes = {
            pid: int(m[1]) for pid, name in processes.items() if (m := _PLANE.match(name))
        }
        self._lines = {
            pid: device_lines(threads.get((p, t), "") for p, t, _ in lanes if p == pid)
            for pid in self._planes
        }
        words = sorted({str(pid) for pid, _, device in lanes if device and isinstance(pid, str)})
        self._words = {word: number for number, word in enumerate(words)}

    def of(self, lane: tuple[int | str, int | str, bool]) -> int | None:
        """None if its events are derived from others."""
        pid, tid, is_device = lane
        if is_device:
            return self._words[pid] if isinstance(pid, str) else max(pid, 0)
        if pid not in self._planes:
            return HOST
        is_work = self._threads.get((pid, tid), "") in self._lines[pid]
        return self._planes[pid] if is_work else None


def _device_works(keys: Sequence[tuple[str, str]]) -> Ints:
    return np.array([device_work(name, is_copy=cat == "gpu_memcpy") for cat, name in keys])


def _host_work(cat: str, name: str) -> Work:
    if step_number(name) is not None:
        return Work.NONE
    if cat in _FRAMES:
        if is_input(name):
            return Work.INPUT
        is_working = cat == "user_annotation" and is_collective(name)
        return Work.COMMUNICATION if is_working else Work.NONE
    if cat == "cpu_op":
        return Work.COMMUNICATION if is_collective(name) else Work.COMPUTE
    return host_work(name)


def read(path: Path, kind: Kind, limits: Limits) -> Reading:
    reader = _Reader(limits)
    with text_stream(path, kind, limits) as stream:
        events = EventStream(str(path), stream, EventDecoder(), limits)
        for some in events:
            reader.take(some)
    reader.fold()
    fields = events.fields
    distributed = fields.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    return Reading(
        kind="kineto" if "schemaVersion" in fields else "chrome",
        account=reader.account,
        names=[name for _, name in reader.columns.names],
        steps=reader.steps,
        memory=reader.memory,
        host=str(fields.get("host_name", "")),
        rank=rank if isinstance(rank, int) else None,
        wall_offset_ns=_wall_offset(fields, reader.account),
        hidden=frozenset(reader.hidden),
        problems=[*events.problems, *_problems(reader)],
    )


def _wall_offset(fields: Mapping[str, Any], account: Account) -> int | None:
    base = fields.get("baseTimeNanoseconds")
    if isinstance(base, int) and not isinstance(base, bool) and 0 < base < 1 << 62:
        return base
    is_epoch = account.begin_ns is not None and account.begin_ns > _EPOCH_NANOSECONDS
    return 0 if is_epoch else None


def _problems(reader: _Reader) -> list[str]:
    problems = []
    if reader.half_events:
        problems.append(f"{reader.half_events:,} begin and end events (ph B, E) are not counted")
    if reader.columns.unreadable:
        problems.append(f"{reader.columns.unreadable:,} events have no readable time; not counted")
    return problems
