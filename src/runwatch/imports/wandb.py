"""Runs that wandb wrote to its own files: `wandb/offline-run-…/run-ID.wandb`.

The file begins with seven bytes (":W&B", 0xBEE1, version 0).  Then come blocks of 32 KiB as in
LevelDB's log: fragments of a checksum u32 (CRC-32 of type and data), a length u16, a type u8 (1 a
whole record, 2 its first part, 3 a middle, 4 the last) and data.  A block's last bytes are zeros if
no fragment fits.  A record is a small protocol buffer.  Runs that were sent to a server have the
same file.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from google.protobuf.message import DecodeError

from runwatch.imports.growing import Growing, identity, opened, size
from runwatch.imports.items import (
    Begun,
    Ended,
    Item,
    LeftOut,
    Line,
    Mark,
    NotALog,
    Point,
    Reached,
    Settings,
    Source,
    Text,
    is_time,
    nanoseconds,
    utf8,
)
from runwatch.record import NO_STEP
from runwatch.wire import wandb_pb2 as pb

MAGIC: Final = b":W&B\xe1\xbe"
HEADER: Final = 7
STREAM: Final = "run"
SYSTEM: Final = "system/"
"""Before the names of what wandb measured of the machine, as its own charts have it."""
SUMMARY: Final = "summary"
_BLOCK: Final = 32 << 10
_HEAD: Final = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_LARGEST: Final = 64 << 20
_LONGEST_SUMMARY: Final = 32 << 10
_LONGEST_LINE: Final = 4 << 10


def sources(files: Iterable[Path]) -> Iterator[Source]:
    for path in files:
        run = _run_of(path)
        if run is None:
            raise NotALog(f"{path} is a wandb file without a run: it was cut off at its start")
        start = f"{run.start_time.seconds}.{run.start_time.nanos}"
        yield Source(
            "wandb",
            path,
            utf8(run.display_name or run.run_id),
            identity("wandb", run.run_id, start),
            _reader(path),
            utf8(run.run_group),
            size(path),
        )


def _reader(path: Path) -> Any:
    return lambda marks: _read(path, marks)


def is_wandb(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(HEADER).startswith(MAGIC)
    except OSError:
        return False


def _run_of(path: Path) -> Any:
    """The record that names the run; it is one of the first."""
    with opened(path, None) as file:
        for number, record in enumerate(_records(file)):
            if number > 100:
                return None
            if not isinstance(record, LeftOut) and record.WhichOneof("kind") == "run":
                return record.run
    return None


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def _read(path: Path, marks: Mapping[str, Mark]) -> Iterator[Item]:
    mark = marks.get(STREAM) or {}
    with opened(path, mark) as file:
        state = _State(mark)
        for record in _records(file):
            if isinstance(record, LeftOut):
                yield record
                continue
            yield from _Told(state, record).items()
            if file.is_due:
                yield Reached(STREAM, *file.mark(**state.plain()))
        yield Reached(STREAM, *file.mark(**state.plain()))


class _State:
    """What later records need to know of earlier ones."""

    def __init__(self, mark: Mark) -> None:
        self.start_ns = int(mark.get("start_ns", 0))
        self.last_ns = int(mark.get("last_ns", 0))
        self.summary: dict[str, Any] = dict(mark.get("summary", {}))
        self.unfinished: dict[str, str] = dict(mark.get("unfinished", {}))
        """What was written on each stream since its last line end."""

    def plain(self) -> dict[str, Any]:
        summary = self.summary
        if len(json.dumps(summary)) > _LONGEST_SUMMARY:
            summary = {}
        return {
            "start_ns": self.start_ns,
            "last_ns": self.last_ns,
            "summary": summary,
            "unfinished": self.unfinished,
        }

    def lines(self, stream: str, text: str) -> Iterator[str]:
        """The lines that this text completes.  Of a line that was written over, the last state."""
        *whole, rest = (self.unfinished.pop(stream, "") + text).split("\n")
        if rest:
            self.unfinished[stream] = rest[-_LONGEST_LINE:]
        for line in whole:
            if shown := line.rstrip("\r").rpartition("\r")[2].strip():
                yield shown


class _Told(NamedTuple):
    """One record, and what was said before it."""

    state: _State
    record: Any

    def items(self) -> Iterator[Item]:
        kind = self.record.WhichOneof("kind")
        told = getattr(self, f"_{kind}", None) if kind else None
        if told is not None:
            yield from told(getattr(self.record, kind))

    def _run(self, run: Any) -> Iterator[Item]:
        time_ns = _time_ns(run.start_time)
        if time_ns is not None:
            self.state.start_ns = self.state.last_ns = time_ns
            yield Begun(time_ns)
        yield from self._config(run.config)
        self._keep(run.summary)
        known = {
            "project": utf8(run.project),
            "entity": utf8(run.entity),
            "job_type": utf8(run.job_type),
            "notes": utf8(run.notes),
            "sweep_id": utf8(run.sweep_id),
            "run_id": utf8(run.run_id),
            "tags": [utf8(tag) for tag in run.tags],
        }
        yield Settings("user", {"wandb": {k: v for k, v in known.items() if v}}, self._now())

    def _config(self, config: Any) -> Iterator[Item]:
        values: dict[str, Any] = {}
        for item in config.update:
            keys, value = _keys(item), _value(item)
            if keys[0] != "_wandb":
                _put(values, keys, value)
        if values:
            yield Settings("user", values, self._now())

    def _environment(self, environment: Any) -> Iterator[Item]:
        system: dict[str, Any] = {
            "host": utf8(environment.host),
            "os": utf8(environment.os),
            "cpu_count": environment.cpu_count,
            "gpu_type": utf8(environment.gpu_type),
            "gpu_count": environment.gpu_count,
        }
        software = {"python": utf8(environment.python), "program": utf8(environment.program)}
        yield Settings("system", {k: v for k, v in system.items() if v}, self._now())
        yield Settings("software", {k: v for k, v in software.items() if v}, self._now())

    def _history(self, history: Any) -> Iterator[Item]:
        items = [(_keys(item), _value(item)) for item in history.item]
        own = {keys[0]: value for keys, value in items if len(keys) == 1 and keys[0][:1] == "_"}
        time_ns, step = self._moment(own), own.get("_step", NO_STEP)
        if history.HasField("step"):
            step = history.step.num
        step = step if isinstance(step, int) and not isinstance(step, bool) else NO_STEP
        media = {keys[:-1] for keys, _ in items if keys[-1] == "_type"}
        for prefix in media:
            yield LeftOut(_media_kind(items, prefix))
        for keys, value in items:
            if keys[0] in own or any(keys[: len(prefix)] == prefix for prefix in media):
                continue
            yield from _logged(".".join(keys), value, step, time_ns)

    def _moment(self, own: Mapping[str, Any]) -> int:
        seconds, runtime = own.get("_timestamp"), own.get("_runtime")
        if isinstance(seconds, int | float) and (time_ns := nanoseconds(seconds)) is not None:
            self.state.last_ns = time_ns
            return time_ns
        if isinstance(runtime, int | float) and math.isfinite(runtime) and self.state.start_ns:
            self.state.last_ns = self.state.start_ns + round(runtime * 1e9)
        return self._now()

    def _summary(self, summary: Any) -> Iterator[Item]:
        self._keep(summary)
        yield from ()

    def _keep(self, summary: Any) -> None:
        for item in summary.update:
            keys = _keys(item)
            if keys[0][:1] != "_":
                self.state.summary[".".join(keys)] = _value(item)
        for item in summary.remove:
            self.state.summary.pop(".".join(_keys(item)), None)

    def _stats(self, stats: Any) -> Iterator[Item]:
        time_ns = _time_ns(stats.timestamp) or self._now()
        for item in stats.item:
            value = _value(item)
            if isinstance(value, int | float):
                yield Point(SYSTEM + utf8(item.key), NO_STEP, time_ns, float(value))

    def _output(self, output: Any) -> Iterator[Item]:
        stream: Literal["out", "err"] = "err" if output.output_type == 0 else "out"
        time_ns = _time_ns(output.timestamp) or self._now()
        for line in self.state.lines(stream, utf8(output.line)):
            yield Line(line, time_ns, stream)

    def _output_raw(self, output: Any) -> Iterator[Item]:
        return self._output(output)

    def _alert(self, alert: Any) -> Iterator[Item]:
        yield Text("alert", f"{utf8(alert.title)}: {utf8(alert.text)}", self._now())

    def _exit(self, exit: Any) -> Iterator[Item]:
        start_ns, code = self.state.start_ns, exit.exit_code
        end_ns = max(self.state.last_ns, start_ns + exit.runtime * 10**9)
        if self.state.summary:
            yield Text(SUMMARY, dict(self.state.summary), end_ns)
        if code:
            yield Ended("failed", end_ns, code, f"exit code {code}, as wandb says")
        else:
            yield Ended("completed", end_ns, 0)

    def _files(self, files: bytes) -> Iterator[Item]:
        yield LeftOut("lists of files")

    def _artifact(self, artifact: bytes) -> Iterator[Item]:
        yield LeftOut("artifacts")

    def _use_artifact(self, artifact: bytes) -> Iterator[Item]:
        yield LeftOut("artifacts")

    def _tensorboard(self, synced: bytes) -> Iterator[Item]:
        yield LeftOut("references to TensorBoard logs (import those themselves)")

    def _now(self) -> int:
        return self.state.last_ns


def _logged(name: str, value: Any, step: int, time_ns: int) -> Iterator[Item]:
    if isinstance(value, bool | int | float):
        yield Point(name, step, time_ns, float(value))
    elif isinstance(value, dict):
        if "_type" in value:
            yield LeftOut(str(value["_type"]))
            return
        for key, inner in value.items():
            yield from _logged(f"{name}.{key}", inner, step, time_ns)
    elif value is not None:
        yield Text(name, value, time_ns, step)


def _media_kind(items: Iterable[tuple[tuple[str, ...], Any]], prefix: tuple[str, ...]) -> str:
    return str(next(value for keys, value in items if keys == (*prefix, "_type")))


def _keys(item: Any) -> tuple[str, ...]:
    return tuple(map(utf8, item.nested_key)) or (utf8(item.key),)


def _value(item: Any) -> Any:
    try:
        return json.loads(item.value_json)
    except ValueError:
        return utf8(item.value_json)


def _put(values: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        inner = values.setdefault(key, {})
        values = inner if isinstance(inner, dict) else {}
    values[keys[-1]] = value


def _time_ns(stamp: Any) -> int | None:
    time_ns = stamp.seconds * 10**9 + stamp.nanos
    return time_ns if time_ns > 0 and is_time(time_ns) else None


# ── records ───────────────────────────────────────────────────────────────────────────────────


def _records(file: Growing) -> Iterator[Any]:
    """The records, up to the first that is not complete."""
    data, at, base = b"", 0, file.offset
    """What is read, how much of it is taken, and where in the file it begins."""
    while True:
        found = _record(data, at, base)
        if found is None:
            chunk = file.more()
            if not chunk:
                return
            data, at, base = data[at:] + chunk, 0, base + at
            continue
        record, end = found
        file.take(memoryview(data)[at:end])
        at = end
        if isinstance(record, LeftOut):
            yield record
            continue
        try:
            yield pb.Record.FromString(record)
        except DecodeError:
            yield LeftOut("damaged records")


def _record(data: bytes, at: int, base: int) -> tuple[bytes | LeftOut, int] | None:
    """The next whole record of `data`, which begins at `base` in the file, and where it ends; None
    if it is not there yet."""
    at += HEADER if base + at == 0 else 0
    parts, begun = b"", False
    while True:
        room = _BLOCK - (base + at) % _BLOCK
        if room < _HEAD.size:
            at += room
            continue
        if len(data) < at + _HEAD.size:
            return None
        crc, length, kind = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        part = data[at + _HEAD.size : end]
        if not _WHOLE <= kind <= _LAST or _HEAD.size + length > room:
            return _skipped(data, at + room)
        if len(data) < end:
            return None
        if zlib.crc32(part, zlib.crc32(bytes((kind,)))) != crc:
            return _skipped(data, at + room)
        at = end
        begun, parts = (True, part) if kind in (_WHOLE, _FIRST) else (begun, parts + part)
        if kind in (_WHOLE, _LAST):
            return (parts if begun else LeftOut("damaged records")), at
        if len(parts) > _LARGEST:
            return LeftOut("records of more than 64 MiB"), at


def _skipped(data: bytes, end: int) -> tuple[LeftOut, int] | None:
    """Damage: what follows can be found again in the next block, once it is there."""
    return (LeftOut("damaged blocks"), end) if len(data) > end else None
