"""What devices did over a period of time, as columns; from a session's export or from curves.

A session's export is a JSON document with `frames`; the arrays of a frame have the order of its
`gpu_id`.  Devices come and go between frames, so columns are found by id, never by index.  Three
formats are read: ours (numbers; utilisation and memory in percent, bandwidths in GB/s), and those
of gswarm-profiler 0.2.1 and gswarm 0.4.3 (numbers as text; shares from 0 to 1, bus bandwidths in
KiB/s).  A truncated document is read as far as it goes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from runwatch.errors import UsageError
from runwatch.views.devices import natural

Floats = npt.NDArray[np.float32]
Seconds = npt.NDArray[np.float64]

_KIB_PER_S: Final = 1024 / 1e9
_FIRST_READ: Final = 1 << 20
PAUSE_PERIODS: Final = 3.0


class Quantity(NamedTuple):
    name: str
    title: str
    unit: str
    top: float | None = None
    """The fixed end of an axis, if there is one."""
    factor: float = 1.0
    """Converts the recorded unit to `unit`."""


UTILISATION: Final = Quantity("gpu_util", "Utilisation", "%", 100)
TENSOR: Final = Quantity("tensor", "Tensor-core activity", "%", 100)
MEMORY: Final = Quantity("gpu_memory", "Memory in use", "%", 100)
BANDWIDTH: Final = Quantity("memory_bandwidth", "Memory bandwidth", "GB/s")
BUS: Final = Quantity("dram_bandwidth", "Traffic between host and GPU", "GB/s")
NVLINK: Final = Quantity("gpu_bandwidth", "NVLink traffic", "GB/s")
POWER: Final = Quantity("gpu_power", "Power", "W")
IN_FRAMES: Final = (UTILISATION, MEMORY, BANDWIDTH, BUS, NVLINK, POWER)

_METRICS: Final = {
    "gpu_utilization_percent": UTILISATION,
    "tpu_duty_cycle_percent": UTILISATION,
    "gpu_tensor_activity_percent": TENSOR,
    "tpu_tensorcore_utilization_percent": TENSOR,
    "gpu_memory_used_bytes": Quantity("gpu_memory", "Memory in use", "GB", None, 1e-9),
    "tpu_hbm_used_bytes": Quantity("gpu_memory", "Memory in use", "GB", None, 1e-9),
    "gpu_dram_bytes_per_second": BANDWIDTH._replace(factor=1e-9),
    "gpu_power_watts": POWER,
}


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """`values[quantity][device, moment]`; NaN where nothing was read."""

    name: str
    seconds: Seconds
    """Since the epoch, ascending."""
    devices: Sequence[str]
    """By host and index."""
    values: Mapping[Quantity, Floats]
    notes: Sequence[str] = ()

    @property
    def hosts(self) -> list[str]:
        return [host_of(device) for device in self.devices]

    @property
    def period_seconds(self) -> float:
        """The median time between moments."""
        return float(np.median(np.diff(self.seconds))) if len(self.seconds) > 1 else 1.0

    def pauses(self) -> list[tuple[float, float]]:
        """The pauses in which nothing was recorded: (from, to)."""
        steps = np.diff(self.seconds)
        long = np.flatnonzero(steps > PAUSE_PERIODS * self.period_seconds)
        return [(float(self.seconds[i]), float(self.seconds[i + 1])) for i in long]

    def present(self) -> npt.NDArray[np.bool_]:
        there = np.zeros((len(self.devices), len(self.seconds)), bool)
        for values in self.values.values():
            there |= np.isfinite(values)
        return there


def host_of(device: str) -> str:
    """The host in a device's id, host:index:name; the host may contain colons."""
    return device.rsplit(":", 2)[0] if device.count(":") >= 2 else device


def load(source: str | Path | Mapping[str, Any] | Recorded) -> Recorded:
    """From a file, from a parsed document, or from an answer of `/runs/{run}/curves`."""
    if isinstance(source, Recorded):
        return source
    if isinstance(source, Mapping):
        if "curves" in source:
            return from_curves(source["curves"], name=str(source.get("run", "")))
        return _recorded(_Document(_items(source)), str(source.get("session_name") or ""))
    path = Path(source)
    try:
        with path.open(encoding="utf-8") as file:
            return _recorded(_Document(_scanned(file)), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    except _NotThis as error:
        raise UsageError(f"{path} is not a session's export: {error}") from error


# ── the document, a piece at a time ────────────────────────────────────────────────────────────


class _NotThis(ValueError):
    pass


_Piece = tuple[str, Any]
"""A key of the document and its value; each frame comes alone, as ("frame", …)."""


def _items(document: Mapping[str, Any]) -> Iterator[_Piece]:
    for key, value in document.items():
        if key == "frames" and isinstance(value, list):
            yield from (("frame", frame) for frame in value)
        else:
            yield key, value


def _scanned(file: TextIO) -> Iterator[_Piece]:
    """Parses piece by piece: hours of a large cluster are gigabytes."""
    scan = _Scan(file)
    try:
        scan.after("{")
        while (sign := scan.next()) != "}":
            key = scan.value() if sign == '"' else scan.after(",").value()
            scan.after(":")
            if key != "frames":
                yield str(key), scan.value()
                continue
            scan.after("[")
            while (sign := scan.next()) != "]":
                if sign == ",":
                    scan.after(",")
                yield "frame", scan.value()
            scan.after("]")
    except _CutOff:
        yield "cut off", True


class _CutOff(Exception):
    pass


class _Scan:
    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._size = _FIRST_READ
        self._decode = json.JSONDecoder().raw_decode

    def next(self) -> str:
        """The next character that is no space, without consuming it."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                raise _CutOff

    def after(self, sign: str) -> _Scan:
        if self.next() != sign:
            raise _NotThis(f"{sign!r} is missing before {self._text[self._at :][:20]!r}")
        self._at += 1
        return self

    def value(self) -> Any:
        self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._more():
                    raise _CutOff from error
                continue
            if end == len(self._text) and self._more():
                continue  # a number may continue in the next chunk
            self._at = end
            return value

    def _more(self) -> bool:
        read = self._file.read(self._size)
        if self._at:
            self._text, self._at = self._text[self._at :], 0
        else:
            self._size *= 2  # one value is longer than a chunk
        self._text += read
        return bool(read)


# ── frames to columns ──────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Column:
    devices: list[npt.NDArray[np.int32]] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)


class _Document:
    """Collects what we need from the pieces of a document."""

    def __init__(self, pieces: Iterator[_Piece]) -> None:
        self.facts: dict[str, Any] = {}
        self.seconds: list[float] = []
        self.numbers: dict[str, int] = {}
        self.columns = {quantity: _Column() for quantity in IN_FRAMES}
        self.is_text = False
        self.is_cut_off = False
        for key, value in pieces:
            if key == "frame":
                self._frame(value)
            elif key == "cut off":
                self.is_cut_off = True
            elif key in ("session_name", "start_time", "end_time"):
                self.facts[key] = value

    def _frame(self, frame: Any) -> None:
        ids = frame.get("gpu_id") if isinstance(frame, Mapping) else None
        if not isinstance(ids, list):
            return
        at = len(self.seconds)
        self.seconds.append(_seconds(frame.get("time"), otherwise=float(at)))
        devices = np.array([self._number(id) for id in _distinct(ids)], np.int32)
        for quantity, column in self.columns.items():
            cells = frame.get(quantity.name)
            if isinstance(cells, list) and cells:
                values = self._floats(cells[: len(devices)])
                column.devices.append(devices[: len(values)])
                column.values.append(values)
                column.frames.append(at)

    def _number(self, id: str) -> int:
        return self.numbers.setdefault(id, len(self.numbers))

    def _floats(self, cells: list[Any]) -> Floats:
        if any(isinstance(cell, str) for cell in cells):
            self.is_text = True
        return np.array([_float(cell) for cell in cells], np.float32)

    def matrix(self, quantity: Quantity) -> Floats | None:
        column = self.columns[quantity]
        if not column.frames:
            return None
        matrix = np.full((len(self.numbers), len(self.seconds)), np.nan, np.float32)
        for frame, devices, values in zip(
            column.frames, column.devices, column.values, strict=True
        ):
            matrix[devices, frame] = values
        return matrix if np.isfinite(matrix).any() else None


def _distinct(ids: list[Any]) -> list[str]:
    """A frame may name a device twice (two containers with one hostname): number them."""
    names = [str(id) for id in ids]
    if len(set(names)) == len(names):
        return names
    seen: Counter[str] = Counter()
    for place, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[place] = f"{name}#{seen[name]}"
    return names


def _float(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return float(value) if isinstance(value, str) else np.nan
    except ValueError:
        return np.nan


def _seconds(text: Any, *, otherwise: float) -> float:
    """A time without an offset is local: gswarm wrote it so."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return otherwise


def _recorded(document: _Document, name: str) -> Recorded:
    if not document.seconds:
        raise UsageError(f"{name or 'the document'} has no frames: it recorded nothing")
    values = {
        quantity: matrix
        for quantity in IN_FRAMES
        if (matrix := document.matrix(quantity)) is not None
    }
    if document.is_text:
        values = dict(_rescaled(values))
    ids = sorted(document.numbers, key=natural)
    rows = np.array([document.numbers[id] for id in ids], np.int64)
    seconds = np.array(document.seconds)
    order = np.argsort(seconds, kind="stable")
    notes = ["the document is truncated: its end is missing"] if document.is_cut_off else []
    return Recorded(
        str(document.facts.get("session_name") or name),
        seconds[order],
        ids,
        {quantity: matrix[np.ix_(rows, order)] for quantity, matrix in values.items()},
        notes,
    )


def _rescaled(values: Mapping[Quantity, Floats]) -> Iterator[tuple[Quantity, Floats]]:
    """Convert gswarm's units, unless the values already look like percent."""
    shares = [float(np.nanmax(values[q])) for q in (UTILISATION, MEMORY) if q in values]
    if max(shares, default=0.0) > 1.5:
        yield from values.items()
        return
    for quantity, matrix in values.items():
        if quantity in (UTILISATION, MEMORY):
            yield quantity, matrix * np.float32(100)
        elif quantity is BUS:
            yield quantity, matrix * np.float32(_KIB_PER_S)
        else:
            yield quantity, matrix


# ── curves to columns ──────────────────────────────────────────────────────────────────────────


def from_curves(curves: Sequence[Mapping[str, Any]], *, name: str = "") -> Recorded:
    """From an answer of `/runs/{run}/curves` along time; the value of a bucket is its mean."""
    if not any(curve["position"] for curve in curves):
        raise UsageError("the curves are empty: there is nothing to draw")
    places = np.unique(np.concatenate([np.asarray(c["position"], np.int64) for c in curves]))
    labels = {_label(curve): None for curve in curves}
    ids = sorted(labels, key=natural)
    rows = {id: row for row, id in enumerate(ids)}
    values: dict[Quantity, Floats] = {}
    for curve in curves:
        metric, unit = curve["metric"], curve["unit"]
        quantity = _METRICS.get(metric) or Quantity(metric, metric, "" if unit == "1" else unit)
        if quantity not in values:
            values[quantity] = np.full((len(ids), len(places)), np.nan, np.float32)
        columns = np.searchsorted(places, np.asarray(curve["position"], np.int64))
        means = [_float(value) * quantity.factor for value in curve["mean"]]
        values[quantity][rows[_label(curve)], columns] = means
    return Recorded(name, places / 1e9, ids, values)


def _label(curve: Mapping[str, Any]) -> str:
    if curve["device"]:
        return f"{curve['host']}:{curve['device'].removeprefix('gpu')}:"
    return f"{curve['host']}:rank {curve['rank']}:"


# ── the table ──────────────────────────────────────────────────────────────────────────────────


def summary(source: str | Path | Mapping[str, Any] | Recorded) -> str:
    """A table with a line per device; quantities that were not recorded have no column."""
    recorded = load(source)
    there = recorded.present()
    heads, columns = ["device"], [list(recorded.devices)]
    for quantity, matrix in recorded.values.items():
        heads.append(f"{quantity.title.lower()}, mean")
        columns.append([_with_unit(mean, quantity) for mean in _means(matrix)])
        if quantity is UTILISATION:
            heads.append("max")
            columns.append([_with_unit(most, quantity) for most in _most(matrix)])
    heads += ["samples", "gaps"]
    columns += [[f"{count:,}" for count in there.sum(axis=1)]]
    columns += [[str(count) if count else "–" for count in _gaps(there)]]
    lines = [*_heading(recorded), *_table(heads, columns)]
    lines += [f"  nothing was recorded for {b - a:.0f} s from {_time(a)}" for a, b in
              recorded.pauses()]  # fmt: skip
    return "\n".join([*lines, *(f"  {note}" for note in recorded.notes)])


def figures(recorded: Recorded) -> dict[str, Any]:
    """The numbers of `summary`, for programs, with their units."""
    samples = recorded.present().sum(axis=1).tolist()
    devices: list[dict[str, Any]] = [
        {"device": device, "samples": count}
        for device, count in zip(recorded.devices, samples, strict=True)
    ]
    for quantity, matrix in recorded.values.items():
        for device, mean, most in zip(devices, _means(matrix), _most(matrix), strict=True):
            if np.isfinite(mean):
                device[quantity.name] = {"mean": mean, "max": float(most), "unit": quantity.unit}
    return {"session_name": recorded.name, "frames": len(recorded.seconds), "devices": devices}


def about(recorded: Recorded) -> str:
    """One line: when, how long, how many devices and frames."""
    first, last = recorded.seconds[0], recorded.seconds[-1]
    hosts = len(set(recorded.hosts))
    facts = [
        f"{_time(first)} – {_time(last, with_date=_date(first) != _date(last))} UTC",
        _length(last - first),
        f"{len(recorded.devices):,} device{'s' * (len(recorded.devices) != 1)}"
        f" on {hosts:,} host{'s' * (hosts != 1)}",
        f"{len(recorded.seconds):,} frame{'s' * (len(recorded.seconds) != 1)}",
    ]
    models = {model for d in recorded.devices if (model := d.rsplit(":", 1)[-1]) and ":" in d}
    facts += [next(iter(models))] if len(models) == 1 else []
    return " · ".join(facts)


def _heading(recorded: Recorded) -> list[str]:
    return [recorded.name or "session", about(recorded), ""]


def _means(matrix: Floats) -> list[float]:
    there = np.isfinite(matrix)
    sums = np.where(there, matrix, 0).sum(axis=1, dtype=np.float64).tolist()
    counts = there.sum(axis=1).tolist()
    return [s / n if n else np.nan for s, n in zip(sums, counts, strict=True)]


def _most(matrix: Floats) -> list[float]:
    filled = np.where(np.isfinite(matrix), matrix, -np.inf).max(axis=1)
    return [float(value) if np.isfinite(value) else np.nan for value in filled]


def _gaps(there: npt.NDArray[np.bool_]) -> list[int]:
    """How many gaps each device has, including those at the session's start and end."""
    missing = np.pad(~there, ((0, 0), (1, 0)))
    begins = missing[:, 1:] & ~missing[:, :-1]
    return [int(count) for count in begins.sum(axis=1)]


def _with_unit(value: float, quantity: Quantity) -> str:
    if not np.isfinite(value):
        return "–"
    digits = 0 if abs(value) >= 100 or quantity.unit in ("W", "MHz") else 1
    return f"{value:,.{digits}f} {quantity.unit}".rstrip()


def _table(heads: list[str], columns: list[list[str]]) -> Iterator[str]:
    """Headings with a comma are split over several lines."""
    words = [head.split(", ") for head in heads]
    deep = max(map(len, words))
    stacked = [[""] * (deep - len(parts)) + parts for parts in words]
    widths = [max(map(len, [*tops, *cells])) for tops, cells in zip(stacked, columns, strict=True)]
    for row in [*zip(*stacked, strict=True), *zip(*columns, strict=True)]:
        first, *rest = (
            f"{cell:<{width}}" if place == 0 else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *rest]).rstrip()


def _time(seconds: float, *, with_date: bool = True) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S")


def _date(seconds: float) -> str:
    return _time(seconds)[:10]


def _length(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
