"""CPU, memory, threads and open files of the processes of runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from runwatch.agent.collectors.base import Rates, Sample, Targets
from runwatch.capture.process import as_its_user
from runwatch.clock import Clock, system_clock
from runwatch.journal.liveness import PROC, ProcessStat, read_stat

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessCollector:
    name = "processes"

    def __init__(self, targets: Targets, *, proc: Path = PROC, clock: Clock = system_clock) -> None:
        self._targets = targets
        self._proc = proc
        self._rates = Rates(clock)

    def collect(self) -> Iterator[Sample]:
        self._rates.begin()
        for target in self._targets():
            stat = read_stat(target.pid, proc=self._proc)
            if stat is not None and not stat.dead:
                yield from self._process(target.pid, stat, target.scope, target.labels)

    def _process(
        self, pid: int, stat: ProcessStat, scope: int, labels: Mapping[str, str]
    ) -> Iterator[Sample]:
        ticks = stat.user_ticks + stat.system_ticks
        rate = self._rates.per_second((pid, stat.start_ticks), ticks)
        if rate is not None:  # 100 is one core
            percent = 100 * rate / _TICKS_PER_SECOND
            yield Sample("process_cpu_percent", percent, "%", "", labels, scope)
        resident = stat.resident_pages * _PAGE_BYTES
        yield Sample("process_resident_bytes", resident, "B", "", labels, scope)
        yield Sample("process_threads", stat.threads, "", "", labels, scope)
        try:
            with as_its_user(pid, proc=self._proc):
                files = len(os.listdir(f"{self._proc}/{pid}/fd"))
        except OSError:
            return  # another user's process
        yield Sample("process_open_files", files, "", "", labels, scope)
