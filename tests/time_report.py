"""Reports where the time of a test run went, folder by folder, and in one line what was skipped.

The processor time of a test is that of the process that runs it and of the children it waited for;
what a fixture starts for several tests counts for the first.  The seconds of each test are in
`.pytest_cache/v/runwatch/cpu_seconds` afterwards.
"""

from __future__ import annotations

import resource
from collections import Counter, defaultdict
from collections.abc import Generator
from dataclasses import dataclass

import pytest

from tests import fork_server

CPU = "cpu_seconds"
CACHED = "runwatch/cpu_seconds"
LONGEST_TABLE = 10
_start = pytest.StashKey[float]()


def cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return own + fork_server.cpu_seconds()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_start] = cpu_seconds()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "teardown":  # the report has a copy of the properties
        item.user_properties.append((CPU, cpu_seconds() - item.stash[_start]))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(TimeReport(getattr(config, "cache", None)))


@dataclass
class Cost:
    cpu: float = 0.0
    wall: float = 0.0
    tests: int = 0

    def add(self, other: Cost) -> None:
        self.cpu, self.wall = self.cpu + other.cpu, self.wall + other.wall
        self.tests += other.tests


class TimeReport:
    def __init__(self, cache: pytest.Cache | None) -> None:
        self._cache = cache
        self._by_test: defaultdict[str, float] = defaultdict(float)
        self._costs: defaultdict[str, Cost] = defaultdict(Cost)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cpu = sum(float(str(value)) for name, value in report.user_properties if name == CPU)
        self._by_test[report.nodeid] += cpu
        folder = report.nodeid.partition("::")[0].rpartition("/")[0]
        self._costs[folder].add(Cost(cpu, report.duration, int(report.when == "teardown")))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self._costs) > 1:
            if self._cache is not None:
                by_cost = sorted(self._by_test.items(), key=lambda pair: -pair[1])
                self._cache.set(CACHED, dict(by_cost))
            terminalreporter.write_line("\n   CPU s   wall s   tests  folder")
            for folder, cost in self._table():
                line = f"{cost.cpu:8.1f} {cost.wall:8.1f} {cost.tests:7}  {folder}"
                terminalreporter.write_line(line)
        if skipped := terminalreporter.stats.get("skipped"):
            reasons = Counter(_reason(report) for report in skipped)
            told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
            terminalreporter.write_line(f"skipped {len(skipped)}: {told}")

    def _table(self) -> list[tuple[str, Cost]]:
        table = sorted(self._costs.items(), key=lambda pair: -pair[1].cpu)
        rest = Cost()
        for _, cost in table[LONGEST_TABLE:]:
            rest.add(cost)
        others = len(table) - LONGEST_TABLE
        return table[:LONGEST_TABLE] + [(f"{others} other folders", rest)] * (others > 0)


def _reason(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
