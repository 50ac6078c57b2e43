"""The head as gswarm-profiler's programs see it: one facade for its gRPC and its HTTP.

Answers have that tool's keys and types.  Shares are percent and bandwidths GB/s, as its document
says.  With `compat` they are what its version 0.2.1 really sent: 0 to 1, and KiB/s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from runwatch.errors import RunwatchError
from runwatch.exports.fleet import Device, Host
from runwatch.head.state.clients import Client, Pieces, Values
from runwatch.head.state.session_room import SessionRoom
from runwatch.views.sessions import Session
from runwatch.views.times import rfc3339

_encode: Final = msgspec.json.Encoder().encode
A_FEW: Final = 8


class Outcome(NamedTuple):
    success: bool
    message: str
    output_file: str | None = None
    missing_clients: Sequence[str] | None = None
    """Of a stop: the clients whose records are not all in the file yet."""

    def answer(self) -> dict[str, Any]:
        """gswarm's keys; of a stop also who is missing."""
        said = self._asdict()
        if self.missing_clients is None:
            del said["missing_clients"]
        return said


class Profiler:
    """Any thread may call.  Of a caller's mistakes, only a bad name raises."""

    def __init__(self, room: SessionRoom) -> None:
        self.room = room
        self.files = room.files
        self.sessions = room.sessions
        self._gpus = Pieces(_gpu_lists, lambda client: client.member)
        self._numbers = {compat: self._number_pieces(compat) for compat in (False, True)}

    @property
    def period_ms(self) -> int:
        return max(1, self.sessions.defaults.period_ns // 1_000_000)

    # ── sessions ──────────────────────────────────────────────────────────────────────────────

    def start(self, name: str | None, metrics: Iterable[str] = ()) -> Outcome:
        try:
            session = self.sessions.start(name, metrics)
        except RunwatchError as error:
            return Outcome(False, _sentence(error), "")
        return Outcome(True, "Profiling started.", session.file)

    async def stop(self, name: str | None) -> Outcome:
        """Answers when all that clients hold has come, or after a while without it."""
        stopped, refusal = await asyncio.to_thread(self._stop, name)
        if refusal is not None:
            return refusal
        missing = await self.room.gathered(stopped)
        names = sorted({name for some in missing.values() for name in some})
        words = f"Profiling stopped. {self._saved(stopped)}"
        if names:
            words = f"{words.rstrip('.')}. {_without(names, self.files is not None)}"
        return Outcome(True, words, missing_clients=names)

    def _stop(self, name: str | None) -> tuple[Sequence[Session], Outcome | None]:
        try:
            stopped = self.sessions.stop(name)
        except RunwatchError as error:
            return (), Outcome(False, _sentence(error))
        if stopped:
            return stopped, None
        if name is None or not self.sessions.active():
            return (), Outcome(False, "Profiling is not active.")
        return (), Outcome(False, f"No session named {name!r} is active.")

    def _saved(self, stopped: Sequence[Session]) -> str:
        files = self.files
        if files is None:
            names = ", ".join(session.name for session in stopped)
            return f"Get the data of {names} with `runwatch session export NAME`."
        where = ", ".join(session.file for session in stopped)
        done = all(files.is_written(session) for session in stopped)
        return f"Data saved to {where}" if done else f"Data is being saved to {where}"

    def listed(self) -> dict[str, Any]:
        found = self.sessions.all()
        return {
            "total_sessions": len(found),
            "active_sessions": sum(session.is_active for session in found),
            "sessions": [self._line(session) for session in reversed(found)],
        }

    def _line(self, session: Session) -> dict[str, Any]:
        frames = self.room.counts.of(session)
        return {
            "name": session.name,
            "session_id": session.id,
            "is_active": session.is_active,
            "active": session.is_active,
            "start_time": rfc3339(session.start_ns),
            "end_time": None if session.end_ns is None else rfc3339(session.end_ns),
            "frame_count": frames,
            "frames": frames,
            "output_file": session.file,
        }

    def active_lines(self) -> list[dict[str, Any]]:
        return [self._line(session) for session in self.sessions.active()]

    # ── status ────────────────────────────────────────────────────────────────────────────────

    def status(self) -> dict[str, Any]:
        clients, active = self.room.clients.all(), self.active_lines()
        newest = active[-1] if active else None
        return {
            "freq": self.period_ms,
            "enable_bandwidth_profiling": self.sessions.defaults.bandwidth,
            "enable_nvlink_profiling": self.sessions.defaults.nvlink,
            "is_profiling": bool(active),
            "output_filename": newest["output_file"] if newest else "",
            "frame_id_counter": newest["frame_count"] if newest else 0,
            "connected_clients": [client.id for client in clients],
            "total_gpus": sum({client.id: len(client.devices) for client in clients}.values()),
            "gpu_info": self._gpus.of(clients),
            "active_sessions": active,
            "dropped_records": {c.id: c.dropped_records for c in clients if c.dropped_records},
            "unhealthy_clients": [c.id for c in clients if not c.healthy and not c.ended],
            "awaited_clients": self.room.awaited(),
        }

    def clients(self) -> dict[str, Any]:
        found = self.room.clients.all()
        return {"total_clients": len(found), "clients": [_client(client) for client in found]}

    # ── numbers ───────────────────────────────────────────────────────────────────────────────

    def latest(self, *, compat: bool = False) -> dict[str, Any]:
        now = datetime.fromtimestamp(self.room.clock.wall_ns() / 1e9).astimezone()
        clients = self.room.clients.all()
        return {"timestamp": now.isoformat(), "client_data": self._numbers[compat].of(clients)}

    def _number_pieces(self, compat: bool) -> Pieces:
        def make(clients: Sequence[Client]) -> Iterator[msgspec.Raw]:
            # A few at a time: thousands of values at once would wake the garbage collector.
            for first in range(0, len(clients), A_FEW):
                some = clients[first : first + A_FEW]
                values = self.values(some, but=("dram", "power"))
                for client in some:
                    yield _numbers(client, values, compat)

        return Pieces(make, lambda client: (client.member, client.batches, client.healthy))

    def values(self, clients: Iterable[Client], but: Container[str] = ()) -> Values:
        """The newest values of all clients, without some columns."""
        things: list[Device | Host] = []
        for client in clients:
            things += client.devices
            things += client.hosts
        return Values(
            self.room.sessions.store.latest(
                [
                    id
                    for thing in things
                    for column, ids in thing.series.items()
                    if column not in but
                    for id in ids
                ]
            )
        )


def _without(names: Sequence[str], has_file: bool) -> str:
    who = ", ".join(names[:A_FEW]) + (f" and {len(names) - A_FEW} more" if names[A_FEW:] else "")
    later = "the file is written again when they have come" if has_file else "they may still come"
    return f"Records of {who} are missing; {later}."


def _sentence(error: RunwatchError) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + "."


def _gpu(device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "name": device.name,
        "physical_idx": device.index,
        "hostname": device.host,
    }


def _client(client: Client) -> dict[str, Any]:
    return {
        "client_id": client.id,
        "hostname": client.host,
        "gpu_count": len(client.devices),
        "gpus": [_gpu(device) for device in client.devices],
        "healthy": client.healthy,
        "ended": client.ended,
        "last_seen": rfc3339(client.heard_ns),
        "dropped_records": client.dropped_records,
    }


_RATES: Final = {
    "dram_bw_gbps_rx": "pcie_rx",
    "dram_bw_gbps_tx": "pcie_tx",
    "nvlink_bw_gbps_rx": "nvlink_rx",
    "nvlink_bw_gbps_tx": "nvlink_tx",
}


def _gpu_lists(clients: Sequence[Client]) -> Iterator[msgspec.Raw]:
    for client in clients:
        yield msgspec.Raw(_encode([_gpu(device) for device in client.devices]))


def _numbers(client: Client, values: Values, compat: bool) -> msgspec.Raw:
    shown = {
        "gpus_metrics": [_metrics(device, values, compat) for device in client.devices],
        "p2p_links": [],
        "system_metrics": _system(client.hosts, values, compat),
        "healthy": client.healthy,
    }
    return msgspec.Raw(_encode(shown))


def _metrics(device: Device, values: Values, compat: bool) -> dict[str, Any]:
    share, rate, absent = (0.01, 1 / 1024, 0.0) if compat else (1.0, 1e-9, None)
    series, of = device.series, values.of
    shown: dict[str, Any] = {"physical_idx": device.index, "name": device.name}
    util, memory = of(series, "util"), memory_percent(device, values)
    shown["gpu_util"] = absent if util is None else round(util * share, 4)
    shown["mem_util"] = absent if memory is None else round(memory * share, 4)
    for name, column in _RATES.items():
        value = of(series, column)
        shown[name] = absent if value is None else round(value * rate, 6)
    return shown


def memory_percent(device: Device, values: Values) -> float | None:
    series, of = device.series, values.of
    told = of(series, "memory_percent")
    if told is not None:
        return told
    used, total = of(series, "memory_used"), of(series, "memory_total")
    return 100 * used / total if used is not None and total else None


def _system(hosts: Sequence[Host], values: Values, compat: bool) -> dict[str, Any]:
    absent = 0.0 if compat else None
    if not hosts:
        return {"dram_util": absent, "disk_util": absent}
    series = hosts[0].series

    def of(column: str) -> float | None:
        return values.of(series, column)

    used, limit, free, size = map(of, ("memory_used", "memory_limit", "disk_free", "disk_size"))
    dram, disk = of("memory_percent"), of("disk_percent")
    if dram is None and used is not None and limit:
        dram = 100 * used / limit
    if disk is None and free is not None and size:
        disk = 100 * (1 - free / size)
    return {
        "dram_util": absent if dram is None else round(dram, 2),
        "disk_util": absent if disk is None else round(disk, 2),
    }
