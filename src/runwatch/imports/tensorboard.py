"""TensorBoard's event files: one run for each directory that has some.

A file is a sequence of frames: length u64, checksum of it u32, an event, checksum of the event u32;
all little-endian, the checksums are masked CRC-32C.  A program that was killed, or that still
writes, leaves an unfinished frame at the end: the next import goes on there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from runwatch.imports.growing import Growing, identity, opened, size
from runwatch.imports.items import (
    Begun,
    Item,
    LeftOut,
    Mark,
    Point,
    Reached,
    Settings,
    Source,
    Text,
    nanoseconds,
    utf8,
)
from runwatch.wire import tfevents_pb2 as pb
from runwatch.wire.masked_crc import checksum

FILE: Final = "tfevents"
"""Every event file has this in its name; TensorBoard looks for it, too."""
_VERSION: Final = b"brain.Event:"
_HEAD: Final = struct.Struct("<QI")
_TAIL: Final = struct.Struct("<I")
_DAMAGED: Final = -1

_TEXT: Final = "text"
_SCALARS: Final = "scalars"
_HPARAMS: Final = "hparams"
_STRING: Final = 7
_BFLOAT16: Final = 14
_CONTENT: Final[Mapping[int, str]] = {
    1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", 19: "e", 22: "I",
    23: "Q",
}  # fmt: skip
"""How each type of number lies in `tensor_content`."""
_FIELD: Final[Mapping[int, str]] = {
    1: "float_val", 2: "double_val", 3: "int_val", 4: "int_val", 5: "int_val", 6: "int_val",
    9: "int64_val", 10: "bool_val", 17: "int_val", 22: "uint32_val", 23: "uint64_val",
}  # fmt: skip
_OLD_FORMS: Final[Mapping[str, str]] = {
    "image": "images",
    "histo": "histograms",
    "obsolete_old_style_histogram": "histograms",
    "audio": "audio",
}


def sources(files: Iterable[Path], root: Path) -> Iterator[Source]:
    """The runs that these files are of, named as TensorBoard names them below `root`."""
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    for folder in sorted(folders):
        events = sorted(file for file in folders[folder] if first_event(file) is not None)
        if events:
            empty = sorted(set(folders[folder]) - set(events))
            yield _source(folder, events, root, tuple(f"{file} holds no events" for file in empty))


def _source(folder: Path, files: list[Path], root: Path, notes: tuple[str, ...]) -> Source:
    name = folder.relative_to(root).as_posix() if folder != root else "."
    return Source(
        "tensorboard",
        folder,
        name if name != "." else folder.resolve().name or "run",
        identity("tensorboard", files[0].name, first_event(files[0]) or b""),
        lambda marks: _read(files, marks),
        bytes=sum(map(size, files)),
        notes=notes,
    )


def first_event(path: Path) -> bytes | None:
    """The first frame, which says that the file holds events; None if it does not."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size or not _is_head(head):
                return None
            length: int = _HEAD.unpack(head)[0]
            if length > 4096:
                return None
            data = file.read(length + _TAIL.size)
    except OSError:
        return None
    whole = len(data) == length + _TAIL.size and checksum(data[:length]) == _tail(data, length)
    return data[:length] if whole and _VERSION in data else None


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def _read(files: list[Path], marks: Mapping[str, Mark]) -> Iterator[Item]:
    for path in files:
        mark = marks.get(path.name)
        with opened(path, mark) as file:
            yield from _EventFile(path.name, file, mark or {}).items()


class _EventFile:
    def __init__(self, stream: str, file: Growing, mark: Mark) -> None:
        self._stream = stream
        self._file = file
        self._plugins: dict[str, str] = dict(mark.get("plugins", {}))
        """Which plugin a tag belongs to, if it is no scalar: only its first event need say so."""

    def items(self) -> Iterator[Item]:
        for data in _frames(self._file):
            if isinstance(data, LeftOut):
                yield data
                continue
            try:
                event = pb.Event.FromString(data)
            except DecodeError:
                yield LeftOut("damaged events")
                continue
            yield from self._event(event)
            if self._file.is_due:
                yield self._reached()
        yield self._reached()

    def _reached(self) -> Reached:
        return Reached(self._stream, *self._file.mark(plugins=dict(self._plugins)))

    def _event(self, event: Any) -> Iterator[Item]:
        time_ns = nanoseconds(event.wall_time)
        if time_ns is None:
            yield LeftOut("events without a valid time", max(len(event.summary.value), 1))
            return
        if event.file_version:
            yield Begun(time_ns)
        elif event.graph_def or event.meta_graph_def:
            yield LeftOut("graphs")
        step = event.step
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                yield Point(utf8(value.tag), step, time_ns, value.simple_value)
            else:
                yield self._other(value, step, time_ns)

    def _other(self, value: Any, step: int, time_ns: int) -> Item:
        tag, form = utf8(value.tag), value.WhichOneof("value")
        plugin = self._plugin(tag, value)
        if plugin == _HPARAMS:
            return _hparams(value, time_ns)
        if form != "tensor":
            return LeftOut(_OLD_FORMS.get(form or "", "summaries of an unknown form"))
        tensor = value.tensor
        if plugin == _TEXT or not plugin and tensor.dtype == _STRING:
            return Text(tag, "\n".join(map(utf8, tensor.string_val)), time_ns, step)
        if plugin not in ("", _SCALARS):
            return LeftOut(plugin)
        number = _number(tensor)
        if number is None:
            return LeftOut("tensors")
        return Point(tag, step, time_ns, number)

    def _plugin(self, tag: str, value: Any) -> str:
        said = utf8(value.metadata.plugin_data.plugin_name)
        if said and said != _SCALARS:
            self._plugins.setdefault(tag, said)
        return self._plugins.get(tag, said)


def _hparams(value: Any, time_ns: int) -> Item:
    try:
        said = pb.HParams.FromString(value.metadata.plugin_data.content)
    except DecodeError:
        return LeftOut(_HPARAMS)
    values = {name: _plain(each) for name, each in said.session_start_info.hparams.items()}
    return Settings("user", values, time_ns) if values else LeftOut("descriptions of hparams")


def _plain(value: Any) -> Any:
    form = value.WhichOneof("kind")
    if form == "string_value":
        return utf8(value.string_value)
    return None if form is None else getattr(value, form)


def _number(tensor: Any) -> float | None:
    """The value of a tensor that holds just one number."""
    kind, content = tensor.dtype, tensor.tensor_content
    if any(dim.size != 1 for dim in tensor.tensor_shape.dim):
        return None
    if kind == _BFLOAT16 or kind == 19 and not content:
        bits = content or b"".join(x.to_bytes(2, "little") for x in tensor.half_val)
        if len(bits) != 2:
            return None
        number = struct.unpack("<f", b"\0\0" + bits) if kind == _BFLOAT16 else _unpack("e", bits)
    elif content:
        number = _unpack(_CONTENT.get(kind, ""), content)
    else:
        number = tuple(getattr(tensor, _FIELD[kind])) if kind in _FIELD else ()
    return float(number[0]) if len(number) == 1 else None


def _unpack(form: str, data: bytes) -> tuple[Any, ...]:
    return struct.unpack(f"<{form}", data) if form and struct.calcsize(form) == len(data) else ()


# ── frames ────────────────────────────────────────────────────────────────────────────────────


def _frames(file: Growing) -> Iterator[bytes | LeftOut]:
    """The events, up to the first that is not complete.  Behind a damaged length nothing can be
    found again; TensorBoard stops there, too."""
    data, at = b"", 0
    while True:
        length = _length(data, at)
        if length == _DAMAGED:
            if any(data[at:]):  # zeros are a file that was made longer before it is written
                yield LeftOut(f"damaged: nothing behind byte {file.offset:,} can be read")
            return
        if length is None or at + length + 16 > len(data):
            chunk = file.more()
            if not chunk:
                return
            data, at = data[at:] + chunk, 0
            continue
        end = at + length + 16
        event = data[at + 12 : end - 4]
        file.take(memoryview(data)[at:end])
        at = end
        yield event if checksum(event) == _tail(data, end - 4) else LeftOut("damaged events")


def _length(data: bytes, at: int) -> int | None:
    """None: there is not enough to say."""
    if len(data) - at < _HEAD.size:
        return None
    length: int = _HEAD.unpack_from(data, at)[0]
    return length if _is_head(data[at : at + _HEAD.size]) else _DAMAGED


def _is_head(head: bytes) -> bool:
    length, crc = _HEAD.unpack(head)
    return bool(_head_checksum(length) == crc)


def _tail(data: bytes, at: int) -> int:
    crc: int = _TAIL.unpack_from(data, at)[0]
    return crc


@cache
def _head_checksum(length: int) -> int:
    return checksum(length.to_bytes(8, "little"))
