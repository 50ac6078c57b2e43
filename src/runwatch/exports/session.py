"""A session as one JSON document, written in chunks, or as a Parquet file.

The document has session_name, start_time, end_time, frames, summary_by_device and
summary_by_client.  In a frame, arrays of devices have the order of `gpu_id`, and arrays of hosts
the order of `hostname`.  Utilisation and memory are percent, bandwidths are GB/s (10⁹ bytes), power
is in watts; a value that was not read is null.  `dram_bandwidth` is the traffic between host memory
and the GPU; `memory_bandwidth` is the GPU's traffic with its own memory.

`complete` says whether all that clients recorded in the session is in the document.  If not,
`missing_clients` names those of whom more may come, and `last_sample` up to when theirs is there;
frames after that name them among `unhealthy_clients`.  `completed_later` is in a file that was
written again when more had come.

With `compat`, numbers are text, shares are 0 to 1, bandwidths are KiB/s and times are local, as
gswarm-profiler 0.2.1 wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from runwatch.exports.fleet import DEVICE_METRICS, Fleet
from runwatch.exports.frames import WINDOW_POINTS, Floats, Frames, Part
from runwatch.store.duck.parquet import ColumnKind, ParquetWriter
from runwatch.store.store import Store
from runwatch.views.sessions import Session

_GIGA: Final = 1e9
_KIBI: Final = 1024.0
_encode: Final = msgspec.json.Encoder().encode


class Absent(NamedTuple):
    """A client of which records of the session may still come."""

    id: str
    host: str
    labels: Collection[str]
    """Its senders' names among all."""
    known_ns: int
    """Up to when all of it is here."""


class SessionExport:
    """Use it once: either `json()` or `parquet()`."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        session: Session,
        *,
        now_ns: int,
        compat: bool = False,
        window_points: int = WINDOW_POINTS,
        missing: Sequence[Absent] = (),
        later: bool = False,
    ) -> None:
        """`missing`: whose records are not all there.  `later`: it was written before, without
        some."""
        self.session = session
        behind = {label: absent.known_ns for absent in missing for label in absent.labels}
        self.frames = Frames(
            store, fleet, session, now_ns=now_ns, window_points=window_points, behind=behind
        )
        self.missing = missing
        self._later = later
        self.count = 0
        """Frames written so far."""
        self._now_ns = now_ns
        self._compat = compat
        self._write: Callable[[Part, int], dict[str, Any]] = (
            _Old(self) if compat else _Plain(self)
        ).frame
        self._totals = _Totals(len(self.frames.devices), len(self.frames.hosts))

    # ── JSON ──────────────────────────────────────────────────────────────────────────────────

    def json(self) -> Iterator[bytes]:
        """The text in chunks.  A document without its end means that the export failed."""
        session = self.session
        end_ns = self._now_ns if session.end_ns is None else session.end_ns
        head: dict[str, Any] = {
            "session_name": session.name,
            "session_id": session.id,
            "start_time": self.time(session.start_ns),
            "end_time": self.time(end_ns),
            "is_active": session.is_active,
            "complete": not session.is_active and not self.missing,
            "missing_clients": [self._absent(absent) for absent in self.missing],
        }
        if self._later:
            head["completed_later"] = self.time(self._now_ns)
        yield _encode(head)[:-1] + b',"frames":['
        separator = b"\n"
        for part in self.frames:
            self._totals.add(part)
            yield separator + b",\n".join(self._lines(part))
            separator = b",\n"
        yield b"\n]," + _encode(self._summaries())[1:] + b"\n"

    def _absent(self, absent: Absent) -> dict[str, str]:
        last = self.time(absent.known_ns)
        return {"client_id": absent.id, "hostname": absent.host, "last_sample": last}

    def _lines(self, part: Part) -> Iterator[bytes]:
        for number in range(len(part)):
            self.count += 1
            frame = {"frame_id": self.count, "time": self.time(int(part.time_ns[number]))}
            yield _encode(frame | self._write(part, number))

    def time(self, time_ns: int) -> str:
        moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
        moment = moment.replace(microsecond=time_ns // 1000 % 1_000_000)
        if self._compat:
            return moment.astimezone().replace(tzinfo=None).isoformat()
        return moment.isoformat(timespec="microseconds")

    def _summaries(self) -> dict[str, Any]:
        totals, share = self._totals, _old_share if self._compat else _rounded
        devices = {
            self.frames.devices[number].id: {
                "avg_gpu_util": share(_mean(totals.util[number])),
                "avg_gpu_memory": share(_mean(totals.memory[number])),
                **({} if self._compat else totals.more(number)),
            }
            for number in np.flatnonzero(totals.samples).tolist()
        }
        percent = _old_percent if self._compat else _rounded
        clients = {
            self.frames.hosts[number].label: {
                "avg_dram_util": percent(_mean(totals.dram[number])),
                "avg_disk_util": percent(_mean(totals.disk[number])),
            }
            for number in np.flatnonzero(totals.dram[:, 1] + totals.disk[:, 1]).tolist()
        }
        return {"summary_by_device": devices, "summary_by_client": clients}

    # ── Parquet ───────────────────────────────────────────────────────────────────────────────

    def parquet(self, path: Path) -> int:
        """Write one row per frame and device; returns the number of frames."""
        ids = np.array([device.id for device in self.frames.devices], object)
        with ParquetWriter(path, {**_KEYS, **dict.fromkeys(self._numbers(), "number")}) as writer:
            for part in self.frames:
                counts = np.diff(part.first)
                numbers = np.arange(self.count + 1, self.count + len(part) + 1)
                self.count += len(part)
                columns: dict[str, Any] = {
                    "frame_id": np.repeat(numbers, counts).tolist(),
                    "time": np.repeat(part.time_ns, counts).tolist(),
                    "gpu_id": ids[part.device].tolist() if len(ids) else [],
                    **self.values(part),
                }
                if len(part.device):
                    writer.append(columns)
        return self.count

    def _numbers(self) -> list[str]:
        return list(self.values(_NOTHING))

    # ── samples ───────────────────────────────────────────────────────────────────────────────

    def values(self, part: Part) -> dict[str, Floats]:
        """The session's columns in the document's units, one value per sample."""
        columns = part.columns
        shown = {"gpu_util": columns["util"], "gpu_memory": memory_percent(columns)}
        if self.session.bandwidth:
            shown["dram_bandwidth"] = (columns["pcie_rx"] + columns["pcie_tx"]) / _GIGA
            shown["dram_bandwidth_rx"] = columns["pcie_rx"] / _GIGA
            shown["dram_bandwidth_tx"] = columns["pcie_tx"] / _GIGA
            shown["memory_bandwidth"] = columns["dram"] / _GIGA
        if self.session.nvlink:
            shown["gpu_bandwidth"] = _sum(columns["nvlink_rx"], columns["nvlink_tx"]) / _GIGA
        shown["gpu_power"] = columns["power"]
        return shown


_KEYS: Final[dict[str, ColumnKind]] = {"frame_id": "integer", "time": "time", "gpu_id": "text"}


def memory_percent(columns: Mapping[str, Floats]) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 100 * columns["memory_used"] / columns["memory_total"]
    return np.where(np.isnan(columns["memory_percent"]), share, columns["memory_percent"])


def _sum(one: Floats, other: Floats) -> Floats:
    """The sum; if only one of the two was read, that one."""
    both = np.nan_to_num(one) + np.nan_to_num(other)
    return np.where(np.isnan(one) & np.isnan(other), np.nan, both)


class _Names:
    """The ids of a frame's devices as JSON, cached: most frames have the devices of the last."""

    def __init__(self, export: SessionExport) -> None:
        self._ids = [device.id for device in export.frames.devices]
        self._last: tuple[bytes, msgspec.Raw] = (b"", msgspec.Raw(b"[]"))

    def of(self, devices: npt.NDArray[np.int64]) -> msgspec.Raw:
        key = devices.tobytes()
        if key != self._last[0]:
            self._last = (key, msgspec.Raw(_encode([self._ids[n] for n in devices.tolist()])))
        return self._last[1]


class _Plain:
    """Frames as the module's docstring describes them."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._names = _Names(export)
        self._hosts = [host.label for host in export.frames.hosts]
        self._part: Part | None = None
        self._values: dict[str, Floats] = {}

    def frame(self, part: Part, number: int) -> dict[str, Any]:
        if part is not self._part:
            exact = self._export.values(part)
            self._part = part
            self._values = {name: np.round(values, _DIGITS[name]) for name, values in exact.items()}
        rows = slice(int(part.first[number]), int(part.first[number + 1]))
        dram, disk = part.dram_util[number], part.disk_util[number]
        known = np.flatnonzero(~(np.isnan(dram) & np.isnan(disk)))
        senders = self._export.frames.senders
        return {
            "gpu_id": self._names.of(part.device[rows]),
            **{name: values[rows].tolist() for name, values in self._values.items()},
            "hostname": [self._hosts[n] for n in known.tolist()],
            "dram_util": np.round(dram[known], 2).tolist(),
            "disk_util": np.round(disk[known], 2).tolist(),
            "unhealthy_clients": [senders[n] for n in np.flatnonzero(part.silent[number]).tolist()],
        }


_DIGITS: Final = {
    "gpu_util": 2,
    "gpu_memory": 2,
    "dram_bandwidth": 6,
    "dram_bandwidth_rx": 6,
    "dram_bandwidth_tx": 6,
    "memory_bandwidth": 6,
    "gpu_bandwidth": 6,
    "gpu_power": 2,
}


class _Old:
    """Frames as gswarm-profiler 0.2.1 wrote them."""

    def __init__(self, export: SessionExport) -> None:
        self._names = _Names(export)
        self._bandwidth = export.session.bandwidth

    def frame(self, part: Part, number: int) -> dict[str, Any]:
        rows = slice(int(part.first[number]), int(part.first[number + 1]))
        columns = {name: values[rows] for name, values in part.columns.items()}
        frame: dict[str, Any] = {
            "gpu_id": self._names.of(part.device[rows]),
            "gpu_util": [_old_share(value) for value in columns["util"].tolist()],
            "gpu_memory": [_old_share(value) for value in memory_percent(columns).tolist()],
            "dram_util": _old_known(part.dram_util[number]),
            "disk_util": _old_known(part.disk_util[number]),
        }
        if self._bandwidth:
            rx = np.nan_to_num(columns["pcie_rx"]) / _KIBI
            tx = np.nan_to_num(columns["pcie_tx"]) / _KIBI
            frame["dram_bandwidth"] = [str(round(value, 2)) for value in (rx + tx).tolist()]
            frame["dram_bandwidth_rx"] = [f"{value:.2f}" for value in rx.tolist()]
            frame["dram_bandwidth_tx"] = [f"{value:.2f}" for value in tx.tolist()]
            frame["gpu_bandwidth"] = []
        return frame


def _old_share(percent: float | None) -> str:
    return "0.00" if percent is None or percent != percent else f"{percent / 100:.2f}"


def _old_percent(percent: float | None) -> str:
    return "0.00" if percent is None or percent != percent else f"{percent:.2f}"


def _old_known(values: Floats) -> list[str]:
    return [f"{value:.2f}" for value in values.tolist() if value == value]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


# ── summaries ──────────────────────────────────────────────────────────────────────────────────


class _Totals:
    """Sum, count and maximum of each device's and host's values."""

    def __init__(self, devices: int, hosts: int) -> None:
        self.samples = np.zeros(devices, np.int64)
        self.util, self.memory, self.power = (np.zeros((devices, 3)) for _ in range(3))
        self.dram, self.disk = np.zeros((hosts, 3)), np.zeros((hosts, 3))

    def add(self, part: Part) -> None:
        device = part.device
        self.samples += np.bincount(device, minlength=len(self.samples))
        for into, values in (
            (self.util, part.columns["util"]),
            (self.memory, memory_percent(part.columns)),
            (self.power, part.columns["power"]),
        ):
            known = ~np.isnan(values)
            whose, values = device[known], values[known]
            into[:, 0] += np.bincount(whose, values, minlength=len(into))
            into[:, 1] += np.bincount(whose, minlength=len(into))
            np.maximum.at(into[:, 2], whose, values)
        for into, table in ((self.dram, part.dram_util), (self.disk, part.disk_util)):
            into[:, 0] += np.nansum(table, axis=0)
            into[:, 1] += (~np.isnan(table)).sum(axis=0)

    def more(self, device: int) -> dict[str, Any]:
        util, memory, power = self.util[device], self.memory[device], self.power[device]
        return {
            "max_gpu_util": _rounded(float(util[2])) if util[1] else None,
            "max_gpu_memory": _rounded(float(memory[2])) if memory[1] else None,
            "avg_gpu_power": _rounded(_mean(power)),
            "samples": int(self.samples[device]),
        }


def _mean(total: Floats) -> float | None:
    return float(total[0] / total[1]) if total[1] else None


_NOTHING: Final = Part(
    np.zeros(0, np.int64),
    np.zeros(1, np.int64),
    np.zeros(0, np.int64),
    dict.fromkeys(DEVICE_METRICS, np.zeros(0)),
    np.zeros((0, 0)),
    np.zeros((0, 0)),
    np.zeros((0, 0), bool),
)
