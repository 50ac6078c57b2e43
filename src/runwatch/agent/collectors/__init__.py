"""One source of numbers per file, all of the same shape.

A collector reads and yields `Sample`s; it knows nothing of journals, heads or other collectors.
What cannot be read yields no sample: absent is not zero.  Rates need two readings, so the first
gives none.  A new source is one new file here and one line in `COLLECTORS`.  The loop that calls
them, and what happens when one fails, is next door in `agent/main.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runwatch.agent.collectors.base import Collector, Sample, Targets
from runwatch.agent.collectors.disk import DiskCollector
from runwatch.agent.collectors.host import HostCollector
from runwatch.agent.collectors.network import NetworkCollector
from runwatch.agent.collectors.processes import ProcessCollector

__all__ = ["COLLECTORS", "Collector", "Sample", "Targets"]

COLLECTORS: tuple[Callable[[Path, Targets], Collector], ...] = (
    lambda root, targets: HostCollector(),
    lambda root, targets: DiskCollector(places=(Path("/"), root)),
    lambda root, targets: NetworkCollector(),
    lambda root, targets: ProcessCollector(targets),
)
