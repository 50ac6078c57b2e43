"""Traffic of disks, and free space on the file systems of the root and the journals."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from runwatch.agent.collectors.base import Rates, Sample
from runwatch.clock import Clock, system_clock
from runwatch.journal.liveness import PROC
from runwatch.settings import runwatch_dir

# Whole disks only: their traffic includes that of partitions and mapped devices.
_DISK: Final = re.compile(r"(sd|vd|xvd|hd)[a-z]+|nvme\d+n\d+|mmcblk\d+|pmem\d+")
_SECTOR_BYTES: Final = 512


class DiskCollector:
    name = "disk"

    def __init__(
        self,
        places: Sequence[Path] | None = None,
        *,
        proc: Path = PROC,
        clock: Clock = system_clock,
    ) -> None:
        """`places`: paths whose file systems are measured."""
        self._places = (Path("/"), runwatch_dir()) if places is None else tuple(places)
        self._proc = proc
        self._rates = Rates(clock)

    def collect(self) -> Iterator[Sample]:
        yield from self._traffic()
        yield from self._space()

    def _traffic(self) -> Iterator[Sample]:
        self._rates.begin()
        try:
            lines = (self._proc / "diskstats").read_text().splitlines()
        except OSError:
            return
        for line in lines:
            fields = line.split()
            if not _DISK.fullmatch(fields[2]):
                continue
            for metric, column in (("read", 5), ("written", 9)):
                sectors = int(fields[column])
                rate = self._rates.per_second((fields[2], metric), sectors * _SECTOR_BYTES)
                if rate is not None:
                    yield Sample(f"host_disk_{metric}_bytes_per_second", rate, "B/s", fields[2])

    def _space(self) -> Iterator[Sample]:
        seen = set()
        for place in self._places:
            try:
                file_system, room = os.stat(place).st_dev, os.statvfs(place)
            except OSError:
                continue
            if file_system not in seen:
                seen.add(file_system)
                free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
                yield Sample("host_disk_free_bytes", free, "B", str(place))
                yield Sample("host_disk_size_bytes", size, "B", str(place))
