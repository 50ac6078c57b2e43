"""Turns samples that clients of gswarm left on disk into journals.

A journal is named after its content, so the same samples make the same journal, and a store takes
them only once.  Each journal also holds a session of just its samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median_low
from typing import Any, Final

from runwatch.clock import StillClock
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin, Position
from runwatch.record.node import AgentEnd
from runwatch.record.sessions import SessionStart, SessionStop
from runwatch.wire.gswarm_readings import (
    IMPORTED,
    device_name,
    readings,
    sampled_ns,
    says_percent,
)

BUDGET_BYTES: Final = 1 << 40
"""So large that no imported sample is dropped."""
LONGEST_TEXT: Final = 200
PERIOD_NS: Final = 10**9

Sample = tuple[int, Any]
"""The time in nanoseconds, and the message."""


@dataclass(frozen=True, slots=True)
class Written:
    """One host's samples, in a journal."""

    host: str
    journal: JournalId
    end: Position
    """The position after its last record."""
    session: str
    """The id of the session that holds the samples …"""
    name: str
    """… and its name."""
    samples: int
    devices: int
    start_ns: int
    end_ns: int


def write(root: Path, updates: Iterable[Any]) -> list[Written]:
    """Write a journal for each host under `root`.  Messages without a time are left out."""
    by_host: dict[str, dict[int, Any]] = {}
    for update in updates:
        time_ns = sampled_ns(update.timestamp)
        if time_ns is not None:
            host = update.hostname[:LONGEST_TEXT] or "unknown"
            by_host.setdefault(host, {}).setdefault(time_ns, update)
    return [_write(root, host, sorted(by_host[host].items())) for host in sorted(by_host)]


def _write(root: Path, host: str, samples: Sequence[Sample]) -> Written:
    start_ns, end_ns = samples[0][0], samples[-1][0] + 1
    digest = _digest(host, samples)
    journal = new_journal_id(host, 0, start_ns, digest[:16])
    origin = Origin(journal, host, 0, start_ns, IMPORTED + digest, 0, "agent", "gswarm")
    writer = JournalWriter(root, origin, budget_bytes=BUDGET_BYTES, clock=StillClock(start_ns))
    name = session_name(host, start_ns)
    try:
        id = digest[:16]
        writer.tell(SessionStart(id, name, _period_ns(samples)), mono_ns=start_ns)
        devices = _write_samples(writer, samples)
        writer.tell(AgentEnd(why="imported"), mono_ns=end_ns)
        writer.tell(SessionStop(id, name, "imported"), mono_ns=end_ns)
    finally:
        writer.close()
    end = _end(writer.directory)
    return Written(host, journal, end, digest[:16], name, len(samples), devices, start_ns, end_ns)


def session_name(host: str, start_ns: int) -> str:
    """A name that is safe for a file, whatever the host is called."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in host)
    when = datetime.fromtimestamp(start_ns // 10**9, UTC)
    return f"imported_{safe[:64]}_{when:%Y%m%d_%H%M%S}"


def _digest(host: str, samples: Sequence[Sample]) -> str:
    digest = hashlib.sha256(host.encode("utf-8", "replace"))
    for _, update in samples:
        digest.update(hashlib.sha256(update.SerializeToString(deterministic=True)).digest())
    return digest.hexdigest()


def _period_ns(samples: Sequence[Sample]) -> int:
    times = [time_ns for time_ns, _ in samples]
    apart = [after - before for before, after in zip(times, times[1:], strict=False)]
    return median_low(apart) if apart else PERIOD_NS


def _write_samples(writer: JournalWriter, samples: Sequence[Sample]) -> int:
    """Returns how many devices the samples are of."""
    updates = [update for _, update in samples]
    percent = any(map(says_percent, updates))
    # All zeros mean that nothing was measured: absent is not zero.
    bandwidth = _any(updates, lambda gpu: gpu.dram_bw_gbps_rx or gpu.dram_bw_gbps_tx)
    nvlink = _any(updates, lambda gpu: gpu.nvlink_bw_gbps_tx)
    devices = set()
    for time_ns, update in samples:
        series, values = [], []
        for metric, index, name, unit, value in readings(
            update, percent=percent, bandwidth=bandwidth, nvlink=nvlink
        ):
            series.append(_series(writer, metric, index, name, unit))
            values.append(value)
            devices.add(index)
        writer.points(series, values, mono_ns=time_ns)
    return len(devices - {-1})


def _any(updates: Iterable[Any], is_there: Callable[[Any], Any]) -> bool:
    return any(is_there(gpu) for update in updates for gpu in update.gpus_metrics)


def _series(writer: JournalWriter, metric: str, index: int, name: str, unit: str) -> int:
    labels = {"client": "1"}  # as for a client that streams, so that the devices are the same
    if index >= 0:
        labels |= {"index": str(index), "name": name[:LONGEST_TEXT]}
    return writer.series(metric[:LONGEST_TEXT], unit=unit, device=device_name(index), labels=labels)


def _end(directory: Path) -> Position:
    reader = JournalReader(directory)
    try:
        while reader.read() is not None:
            pass
        return reader.position
    finally:
        reader.close()
