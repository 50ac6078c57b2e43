"""CPU, load and memory of the host.  In a container with a memory limit, its own memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from runwatch.agent.cgroup import CGROUPS, memory_cgroup
from runwatch.agent.collectors.base import Sample
from runwatch.journal.liveness import PROC


class HostCollector:
    name = "host"

    def __init__(self, *, proc: Path = PROC, cgroups: Path = CGROUPS) -> None:
        self._proc = proc
        self._cgroup = memory_cgroup(proc=proc, cgroups=cgroups)
        self._ticks: list[int] | None = None

    def collect(self) -> Iterator[Sample]:
        yield from self._cpu()
        yield from self._load()
        yield from self._memory()
        yield from self._oom_kills()

    def _cpu(self) -> Iterator[Sample]:
        try:
            with open(f"{self._proc}/stat", "rb") as file:
                first = file.readline().split()
        except OSError:
            return
        # user nice system idle iowait irq softirq steal; user includes guest time
        ticks = [int(field) for field in first[1:9]]
        before, self._ticks = self._ticks, ticks
        if before is None:
            return
        spent = [now - then for now, then in zip(ticks, before, strict=True)]
        total = sum(spent)
        if total > 0:
            idle, waiting = max(0, spent[3]), max(0, spent[4])
            yield Sample("host_cpu_utilization_percent", 100 * (1 - (idle + waiting) / total), "%")
            yield Sample("host_cpu_iowait_percent", 100 * waiting / total, "%")

    def _load(self) -> Iterator[Sample]:
        try:
            fields = (self._proc / "loadavg").read_text().split()
        except OSError:
            return
        for minutes, text in zip((1, 5, 15), fields, strict=False):
            yield Sample(f"host_load_average_{minutes}m", float(text), "")

    def _memory(self) -> Iterator[Sample]:
        kilobytes = self._meminfo()
        total, available = kilobytes.get("MemTotal"), kilobytes.get("MemAvailable")
        if total is None or available is None:
            return
        used, limit = (total - available) * 1024, total * 1024
        # Only a group with a limit counts: without one our group may be any small part of the host.
        group_limit = self._cgroup.limit_bytes() if self._cgroup else None
        if self._cgroup is not None and group_limit is not None and group_limit < limit:
            limit = group_limit
            group_used = self._cgroup.used_bytes()
            used = used if group_used is None else min(used, group_used)
        yield Sample("host_memory_used_bytes", used, "B")
        yield Sample("host_memory_limit_bytes", limit, "B")
        swap, free = kilobytes.get("SwapTotal"), kilobytes.get("SwapFree")
        if swap is not None and free is not None:
            yield Sample("host_swap_used_bytes", (swap - free) * 1024, "B")

    def _meminfo(self) -> dict[str, int]:
        try:
            with open(f"{self._proc}/meminfo") as file:
                lines = file.readlines()
        except OSError:
            return {}
        return {line[: line.index(":")]: int(line.split()[1]) for line in lines if ":" in line}

    def _oom_kills(self) -> Iterator[Sample]:
        kills = self._cgroup.oom_kills() if self._cgroup else None
        if kills is not None:
            yield Sample("host_oom_kills_total", kills, "")
