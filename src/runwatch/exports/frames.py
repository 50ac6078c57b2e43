"""A session's samples as frames: the values of every device at one moment.

The store returns one series after the other, but a frame cuts across all series.  So time is read
in windows that fit into memory.  From one window to the next only the last values of slow columns
are kept.

A moment is a time at which a device's utilisation or memory was read.  Moments of different devices
in the same period are one frame.  A device's second moment in a period goes to a second frame, so
that each sample is in exactly one frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from runwatch.exports.fleet import DEVICE_METRICS, HOST_METRICS, UNHEALTHY_SECONDS, Fleet
from runwatch.store.store import PointColumns, Store
from runwatch.views.sessions import Session

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Known = tuple[Integers, Integers, Floats]
"""Device, time and value, sorted by device and time."""

WINDOW_POINTS: Final = 400_000
LONGEST_WINDOW_NS: Final = 3600 * 10**9
MOMENTS: Final = ("util", "memory_used", "memory_percent")
_HOST_MOMENTS: Final = ("host.memory_used", "host.memory_percent")
_HELD_NS: Final = 15 * 10**9
_HOST_HELD_NS: Final = 30 * 10**9
_FOR_EVER: Final = 1 << 62


@dataclass(slots=True)
class Part:
    """Some frames of a session.  Row i of the columns is a sample; samples are in frame order."""

    time_ns: Integers
    """Per frame: its earliest moment."""
    first: Integers
    """Per frame: the index of its first sample; one more at the end."""
    device: Integers
    """Per sample: the device's index in the fleet."""
    columns: Mapping[str, Floats]
    """Per sample; NaN if it was not read."""
    dram_util: Floats
    disk_util: Floats
    """Per frame and host."""
    silent: npt.NDArray[np.bool_]
    """Per frame and sender: it was in the session, and has been silent for long; or records of it
    are still to come."""

    def __len__(self) -> int:
        return len(self.time_ns)


class Frames:
    """Iterate to read the session from its start.  `senders` names the columns of `silent`."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        session: Session,
        *,
        now_ns: int,
        window_points: int = WINDOW_POINTS,
        columns: Sequence[str] = tuple(DEVICE_METRICS),
        sparse_windows: int | None = None,
        behind: Mapping[str, int] | None = None,
    ) -> None:
        """`sparse_windows`: stop after this many windows with almost no data; None: never.
        `behind`: senders of which records are still to come, and up to when all are there."""
        self._store = store
        self._session = session
        self._now_ns = now_ns
        self._most = window_points
        self.devices = fleet.devices
        self.hosts = fleet.hosts
        labels = [*(device.label for device in self.devices), *(host.label for host in self.hosts)]
        self.senders = sorted(set(labels))
        place = {label: number for number, label in enumerate(self.senders)}
        self._sender = np.array([place[label] for label in labels], np.int64)
        known = behind or {}
        self._known_ns = np.array([known.get(s, _FOR_EVER) for s in self.senders], np.int64)
        self._columns = tuple(columns)
        self._sparse = sparse_windows
        self._reader = _Reader(store, session.clocks)
        for column in self._columns:
            for number, device in enumerate(self.devices):
                for id in device.series.get(column, ()):
                    self._reader.add(id, column, number, device.host)
        for column in HOST_METRICS:
            for number, host in enumerate(self.hosts):
                for id in host.series.get(column, ()):
                    self._reader.add(id, f"host.{column}", len(self.devices) + number, host.name)
        self._reader.finish()

    def __iter__(self) -> Iterator[Part]:
        state = _State()
        state.seed("memory_total", self._totals())
        for stretch in self._session.stretches:
            end_ns = self._now_ns if stretch.end_ns is None else stretch.end_ns
            yield from self._windows(stretch.start_ns, end_ns, state)

    def _totals(self) -> dict[int, float]:
        """Each device's total memory: it is read rarely, and never changes."""
        whose = {
            id: number
            for number, device in enumerate(self.devices)
            for id in device.series.get("memory_total", ())
        }
        return {whose[point.series]: point.value for point in self._store.latest(list(whose))}

    def _windows(self, start_ns: int, end_ns: int, state: _State) -> Iterator[Part]:
        period = self._session.period_ns
        width = max(1, self._most // max(1, len(self._reader)))
        widest = max(1, LONGEST_WINDOW_NS // period)
        width, at = min(width, widest), start_ns
        while at < end_ns:
            until = min(at + width * period, end_ns)
            window = self._reader.read(at, until, 2 * self._most if width > 1 else None)
            if window is None:
                width = max(1, width // 4)
                continue
            if not window.rows:
                at = self._next_data(until, end_ns, widest * period)
                continue
            if self._sparse is not None and window.rows < self._most // 400:
                self._sparse -= 1
                if self._sparse < 0:
                    return
            part = self._part(window, start_ns, state)
            state.keep(window)
            if len(part):
                yield part
            at = until
            if window.rows < self._most // 4:
                width = min(2 * width, widest)
            elif window.rows > self._most:
                width = max(1, width // 2)

    def _next_data(self, at: int, end_ns: int, stride: int) -> int:
        """A time before which there is no data.  A session may claim to start in 1970: that would
        be half a million empty windows, so the stride doubles."""
        while at < end_ns:
            until = min(at + stride, end_ns)
            if self._reader.read(at, until, 0) is None:
                return at
            at, stride = until, 2 * stride
        return at

    def _part(self, window: _Window, origin_ns: int, state: _State) -> Part:
        has_devices = bool(self.devices)
        who, time_ns = window.moments(MOMENTS if has_devices else _HOST_MOMENTS)
        period = (time_ns - origin_ns) // self._session.period_ns
        frame, first, order = _frames(who, period)
        who, time_ns, frame = who[order], time_ns[order], frame[order]
        at_ns = np.minimum.reduceat(time_ns, first[:-1]) if len(first) > 1 else time_ns[:0]
        columns = {column: state.asof(window, column, who, time_ns) for column in self._columns}
        silent = state.silence(self._sender, window, at_ns, len(self.senders))
        silent |= at_ns[:, np.newaxis] > self._known_ns
        dram, disk = self._hosts(window, state, at_ns)
        if not has_devices:
            first, who = np.zeros(len(at_ns) + 1, np.int64), who[:0]
            columns = {column: values[:0] for column, values in columns.items()}
        return Part(at_ns, first, who, columns, dram, disk, silent)

    def _hosts(self, window: _Window, state: _State, at_ns: Integers) -> tuple[Floats, Floats]:
        """Memory and disk in use, in percent, of each frame and host."""
        count = len(self.hosts)
        who = np.tile(np.arange(count, dtype=np.int64) + len(self.devices), len(at_ns))
        time_ns = np.repeat(at_ns, count)

        def column(name: str) -> Floats:
            return state.asof(window, f"host.{name}", who, time_ns).reshape(len(at_ns), count)

        with np.errstate(invalid="ignore", divide="ignore"):
            dram = 100 * column("memory_used") / column("memory_limit")
            disk = 100 * (1 - column("disk_free") / column("disk_size"))
        read_dram, read_disk = column("memory_percent"), column("disk_percent")
        return (
            np.where(np.isnan(read_dram), dram, read_dram),
            np.where(np.isnan(read_disk), disk, read_disk),
        )


def _frames(who: Integers, period: Integers) -> tuple[Integers, Integers, Integers]:
    """For moments in (device, time) order: the frame of each, the first sample of each frame (in
    frame order, one more at the end), and the order that sorts the moments by frame."""
    count = len(who)
    if not count:
        nothing = np.zeros(0, np.int64)
        return nothing, np.zeros(1, np.int64), nothing
    new = np.empty(count, bool)
    new[0] = True
    new[1:] = (who[1:] != who[:-1]) | (period[1:] != period[:-1])
    starts = np.flatnonzero(new)
    place = np.arange(count) - np.repeat(starts, np.diff(starts, append=count))
    order = np.lexsort((who, place, period))
    begins = np.empty(count, bool)
    begins[0] = True
    sorted_period, sorted_place = period[order], place[order]
    begins[1:] = (sorted_period[1:] != sorted_period[:-1]) | (sorted_place[1:] != sorted_place[:-1])
    frame = np.empty(count, np.int64)
    frame[order] = np.cumsum(begins) - 1
    return frame, np.append(np.flatnonzero(begins), count), order


# ── reading ────────────────────────────────────────────────────────────────────────────────────


class _Window:
    """One window's points by column: device, time and value."""

    def __init__(self, columns: Mapping[str, Known], rows: int) -> None:
        self.columns = columns
        self.rows = rows

    def moments(self, names: Sequence[str]) -> tuple[Integers, Integers]:
        parts = [self.columns[name] for name in names if name in self.columns]
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        who = np.concatenate([part[0] for part in parts])
        time_ns = np.concatenate([part[1] for part in parts])
        order = np.lexsort((time_ns, who))
        who, time_ns = who[order], time_ns[order]
        new = np.ones(len(who), bool)
        new[1:] = (who[1:] != who[:-1]) | (time_ns[1:] != time_ns[:-1])
        return who[new], time_ns[new]


class _Reader:
    """Reads series, returns columns.  Corrects the times of hosts whose clocks are wrong."""

    def __init__(self, store: Store, clocks: Mapping[str, int]) -> None:
        self._store = store
        self._clocks = clocks
        self._names: list[str] = []
        self._added: list[tuple[int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._added)

    def add(self, series: int, column: str, who: int, host: str) -> None:
        if column not in self._names:
            self._names.append(column)
        self._added.append((series, self._names.index(column), who, self._clocks.get(host, 0)))

    def finish(self) -> None:
        table = np.array(sorted(self._added) or np.zeros((0, 4)), np.int64).reshape(-1, 4)
        self._series, self._column, self._who, self._ahead = table.T

    def read(self, start_ns: int, end_ns: int, most: int | None) -> _Window | None:
        """All points in the window; None if there are more than `most`."""
        parts: list[Known] = []
        rows = 0
        for ahead in np.unique(self._ahead).tolist():
            series = self._series[self._ahead == ahead].tolist()
            pages = self._store.points(series, start_ns=start_ns + ahead, end_ns=end_ns + ahead)
            for points in pages:
                rows += len(points)
                if most is not None and rows > most:
                    return None
                parts.append(self._placed(points, ahead))
        return self._sorted(parts, rows)

    def _placed(self, points: PointColumns, ahead: int) -> Known:
        return np.searchsorted(self._series, points.series), points.time_ns - ahead, points.value

    def _sorted(self, parts: Sequence[Known], rows: int) -> _Window:
        if not parts:
            return _Window({}, 0)
        place = np.concatenate([part[0] for part in parts])
        time_ns = np.concatenate([part[1] for part in parts])
        value = np.concatenate([part[2] for part in parts])
        column, who = self._column[place], self._who[place]
        order = np.lexsort((time_ns, who, column))
        column, who, time_ns, value = column[order], who[order], time_ns[order], value[order]
        edges = np.searchsorted(column, np.arange(len(self._names) + 1))
        return _Window(
            {
                name: (who[low:high], time_ns[low:high], value[low:high])
                for name, low, high in zip(self._names, edges[:-1], edges[1:], strict=True)
                if high > low
            },
            rows,
        )


class _State:
    """The last value of each column before the current window, and when each sender was heard."""

    def __init__(self) -> None:
        self._last: dict[str, dict[int, tuple[int, float]]] = {}

    def seed(self, column: str, values: Mapping[int, float]) -> None:
        self._last[column] = {who: (0, value) for who, value in values.items()}

    def keep(self, window: _Window) -> None:
        for name, (who, time_ns, value) in window.columns.items():
            if name in MOMENTS or not len(who):
                continue
            ends = np.append(np.flatnonzero(who[1:] != who[:-1]), len(who) - 1)
            last = zip(time_ns[ends].tolist(), value[ends].tolist(), strict=True)
            self._last.setdefault(name, {}).update(zip(who[ends].tolist(), last, strict=True))

    def asof(self, window: _Window, column: str, who: Integers, time_ns: Integers) -> Floats:
        """The value of each device at its time; NaN if the last reading is too old."""
        known = self._with_last(window, column)
        return (
            np.full(len(who), np.nan)
            if known is None
            else _asof(known, who, time_ns, _held_ns(column))
        )

    def _with_last(self, window: _Window, column: str) -> Known | None:
        now, last = window.columns.get(column), self._last.get(column)
        if not last:
            return now
        old = (
            np.fromiter(last, np.int64, len(last)),
            np.array([time_ns for time_ns, _ in last.values()], np.int64),
            np.array([value for _, value in last.values()], np.float64),
        )
        return _in_order(old) if now is None else _joined(old, now)

    def silence(
        self, sender: Integers, window: _Window, at_ns: Integers, count: int
    ) -> npt.NDArray[np.bool_]:
        """Per frame and sender: heard in this session, but not lately."""
        places, time_ns = window.moments((*MOMENTS, *_HOST_MOMENTS))
        who = sender[places]
        heard = _in_order((who, time_ns, time_ns.astype(np.float64)))
        known = self._with_last(_Window({"heard": heard}, 0), "heard")
        self.keep(_Window({"heard": heard}, 0))
        frames = np.repeat(at_ns, count)
        everyone = np.tile(np.arange(count, dtype=np.int64), len(at_ns))
        assert known is not None
        ago = frames - _asof(known, everyone, frames, _FOR_EVER)
        with np.errstate(invalid="ignore"):
            return (ago > UNHEALTHY_SECONDS * 1e9).reshape(len(at_ns), count)


def _asof(known: Known, who: Integers, time_ns: Integers, held_ns: int) -> Floats:
    """The value of each device at its time; NaN if it is older than `held_ns`."""
    if not len(who) or not len(known[0]):
        return np.full(len(who), np.nan)
    earliest, latest = int(time_ns.min()), int(time_ns.max())
    known_ns = known[1]
    if held_ns == _FOR_EVER:
        known_ns, floor = np.maximum(known_ns, earliest - 1), earliest - 1
    else:
        floor = earliest - held_ns
    near = (known_ns >= floor) & (known_ns <= latest)
    known_who, known_ns, values = known[0][near], known_ns[near], known[2][near]
    if not len(values):
        return np.full(len(who), np.nan)
    # One key that sorts by device, then time.  It fits an int64: far times are left out.
    span = latest - floor + 1
    keys = known_who * span + (known_ns - floor)
    at = np.searchsorted(keys, who * span + (time_ns - floor), side="right") - 1
    last = np.maximum(at, 0)
    fits = (at >= 0) & (known_who[last] == who) & (time_ns - known_ns[last] <= held_ns)
    return np.where(fits, values[last], np.nan)


def _joined(one: Known, other: Known) -> Known:
    return _in_order(
        (
            np.concatenate([one[0], other[0]]),
            np.concatenate([one[1], other[1]]),
            np.concatenate([one[2], other[2]]),
        )
    )


def _in_order(known: Known) -> Known:
    who, time_ns, value = known
    order = np.lexsort((time_ns, who))
    return who[order], time_ns[order], value[order]


def _held_ns(column: str) -> int:
    if column in MOMENTS:
        return 0
    if column == "memory_total":
        return _FOR_EVER
    return _HOST_HELD_NS if column.startswith("host.") else _HELD_NS
