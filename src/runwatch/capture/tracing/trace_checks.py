"""What is wrong with a trace file, found without the framework that wrote it.

An xplane file is one XSpace message: planes (1), errors (2), warnings (3).  A plane has a name (2)
and lines (3); a line has events (4).  Only lengths are read and skipped, so that the size of a
file hardly matters.
"""

from __future__ import annotations

import gzip
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

GPU_BUSY: Final = "no events of the GPU"
MAX_SAID: Final = 5
_CHUNK: Final = 1 << 20
_OVERLAP: Final = 64
_LAST: Final = 64 << 10
_DEVICE_EVENT: Final = re.compile(
    rb'"cat":\s*"(?:kernel|gpu_memcpy|gpu_memset|gpu_op|privateuse1_\w+)"'
)
_ANY_EVENT: Final = re.compile(rb'"ph":\s*"X"')
_LOGGED: Final = re.compile(rb'"(?:ERROR|WARNING)":\s*\[(.*?)\]', re.DOTALL)
_STRING: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_WINDOW: Final = (b"profile_start_time", b"profile_stop_time")

Field = tuple[int, int, int]
"""Number, and where its bytes begin and end (a number's own value for a varint)."""


def xplane_problems(file: Path, device: str) -> list[str]:
    if file.stat().st_size == 0:
        return ["the trace is empty"]
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _space_problems(data, device)
        except (IndexError, ValueError):
            return ["the trace is damaged: it is not an xplane file to its end"]


def _space_problems(data: mmap.mmap, device: str) -> list[str]:
    problems: list[str] = []
    filled: set[str] = set()
    for number, begin, end in fields(data, 0, len(data)):
        if number == 1:
            name, has_events = _plane(data, begin, end)
            if has_events:
                filled.add(name)
        elif number in (2, 3) and len(problems) < MAX_SAID:
            problems.append(f"the profiler says: {data[begin:end].decode(errors='replace')[:500]}")
    on_device = any(name.startswith("/device:") for name in filled)
    if not filled:
        problems.append("the trace is empty: nothing ran while it was recorded")
    elif device and not on_device:
        problems.append(_absent(device))
    return problems


def _plane(data: mmap.mmap, begin: int, end: int) -> tuple[str, bool]:
    name = ""
    has_events = False
    for number, start, stop in fields(data, begin, end):
        if number == 2:
            name = data[start:stop].decode(errors="replace")
        elif number == 3 and not has_events:
            has_events = any(field == 4 for field, _, _ in fields(data, start, stop))
    return name, has_events


def xplane_window(file: Path) -> tuple[int, int] | None:
    """From when to when its profiler recorded, by its own clock (ns); None where it does not say.

    The plane "Task Environment" has that among its stats (6): 1 the id of a name, 3 a number.  The
    names (5) are entries of a map: 1 the id, 2 the name's own message, of which 2 is the text.
    """
    if file.stat().st_size == 0:
        return None
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            for number, begin, end in fields(data, 0, len(data)):
                if number == 1 and _plane(data, begin, end)[0] == "Task Environment":
                    return _window(data, begin, end)
        except (IndexError, KeyError, ValueError):
            pass  # `xplane_problems` tells of it
    return None


def _window(data: mmap.mmap, begin: int, end: int) -> tuple[int, int] | None:
    names: dict[bytes, int] = {}
    values: dict[int, int] = {}
    for number, start, stop in fields(data, begin, end):
        if number == 5:
            entry = {field: (a, b) for field, a, b in fields(data, start, stop)}
            texts = [data[a:b] for field, a, b in fields(data, *entry[2]) if field == 2]
            names |= dict.fromkeys(texts, entry[1][0])
        elif number == 6:
            stat = {field: a for field, a, _ in fields(data, start, stop)}
            values[stat[1]] = stat.get(3, 0)
    first, last = (values.get(names.get(name, 0), 0) for name in _WINDOW)
    return (first, last) if 0 < first < last else None


def fields(data: mmap.mmap | bytes, begin: int, end: int) -> Iterator[Field]:
    """The fields of a protobuf message.  ValueError or IndexError if it is none.

    By hand: protobuf would read all of a trace, hundreds of megabytes, into the traced program.
    """
    at = begin
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if number == 0 or at + length > end:
            raise ValueError(f"field {number} ends after its message")
        yield number, at, at + length
        at += length


def _varint(data: mmap.mmap | bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number that does not end")


def kineto_problems(file: Path, device: str) -> list[str]:
    has_events = has_device_events = False
    tail = b""
    try:
        with gzip.open(file) as stream:
            while chunk := stream.read(_CHUNK):
                seen = tail[-_OVERLAP:] + chunk
                has_events = has_events or _ANY_EVENT.search(seen) is not None
                if device and not has_device_events:
                    has_device_events = _DEVICE_EVENT.search(seen) is not None
                tail = (tail + chunk)[-_LAST:]
    except (EOFError, OSError) as error:
        return [f"the trace is damaged: {error}"]
    problems = _logged(tail)
    if not tail.rstrip().endswith(b"}"):
        problems.append("the trace is cut off")
    if not has_events:
        problems.append("the trace is empty: nothing ran while it was recorded")
    elif device and not has_device_events:
        problems.append(_absent(device))
    return problems


def _logged(tail: bytes) -> list[str]:
    """Kineto keeps its errors and warnings behind the events."""
    warnings = [
        text.decode(errors="replace")[:500]
        for block in _LOGGED.findall(tail)
        for text in _STRING.findall(block)
    ]
    return [f"the profiler says: {text}" for text in warnings[:MAX_SAID]]


def _absent(device: str) -> str:
    return f"no events of the {device.upper()} although the program uses one"
