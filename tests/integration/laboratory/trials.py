"""Watches cases of the laboratory, a few at a time, and keeps what was said of each."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.main import LocalHead, LocalSettings
from runwatch.head.settings import HangSettings, ServingSettings
from runwatch.record import RunId
from runwatch.record.stacks import SEVERITIES, Incident, Severity
from runwatch.testing import until
from runwatch.views.incidents import incident_of
from runwatch.views.pace import Limits
from tests.integration.laboratory.case import Case
from tests.integration.laboratory.cases import CASES
from tests.integration.processes import Cluster, end, free_port

STALL_SECONDS: Final = 1.5
SCALE: Final = STALL_SECONDS / Limits().floor_seconds
LIMITS: Final = Limits(
    floor_seconds=STALL_SECONDS,
    doubt_seconds=SCALE * Limits().doubt_seconds,
    patience_seconds=SCALE * Limits().patience_seconds,
)
"""As a head has them, in a seventh of the time."""
LOOK_ALIKE_SECONDS: Final = 14.0
"""Longer than what is in doubt is left in doubt."""
HANG_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    told: tuple[Incident, ...]
    """Every word on its incidents, in the order in which they were recorded."""

    @property
    def loudest(self) -> Severity | None:
        return max((i.severity for i in self.told), key=SEVERITIES.index, default=None)

    @property
    def alarm(self) -> Incident | None:
        return next((incident for incident in self.told if incident.is_alarm), None)

    @property
    def shown(self) -> Incident | None:
        """What a person sees: the alarm, else the last note."""
        return self.alarm or next(reversed(self.told), None)

    @property
    def seconds(self) -> float:
        """Beyond the threshold, until it was an alarm."""
        alarm = self.alarm
        return 0.0 if alarm is None else (alarm.named_ns - alarm.since_ns) / 1e9 - STALL_SECONDS

    @property
    def wrong(self) -> str:
        """What is not as it should be; "" if all is well."""
        case, alarm = self.case, self.alarm
        if not case.hangs:
            return "" if alarm is None else f"{case.name}: {alarm.severity}: {alarm.text}"
        if alarm is None:
            said = "; ".join(incident.text for incident in self.told[-1:])
            return f"{case.name}: no alarm ({said})"
        if alarm.ranks != (case.culprit,):
            return f"{case.name}: ranks {alarm.ranks}: {alarm.text}"
        if case.marks and not any(case.place in i.text for i in self.told if i.is_alarm):
            return f"{case.name}: not {case.place}: {alarm.text}"
        return ""


class Laboratory:
    """A directory, its agent, and a head with a hang watch."""

    def __init__(self, root: Path) -> None:
        self.cluster = Cluster(root)
        self.cluster.start_agent(head="127.0.0.1:9")  # nobody there
        self.head = LocalHead(
            self.cluster.node_root,
            settings=LocalSettings(serving=ServingSettings(hangs=HangSettings(limits=LIMITS))),
        )
        self.head.tail.start()
        self.head.feature(StacksApi).watch()
        until(self.head.tail.agents, 60, "the agent")

    def close(self) -> None:
        self.head.close()
        self.cluster.close()

    def outcomes(self, names: Sequence[str], at_once: int = 2, seed: int = 1) -> Iterator[Outcome]:
        with ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(lambda name: self.watch(CASES[name], seed), names)

    def watch(self, case: Case, seed: int = 1) -> Outcome:
        folder = self.cluster.root / case.name
        folder.mkdir()
        program = self.cluster._python(
            "-m", "tests.integration.laboratory.program",
            case.name, str(folder), str(LOOK_ALIKE_SECONDS), str(seed), str(free_port()),
            environment={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )  # fmt: skip
        try:
            self._wait(case, program)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            end(program, signal.SIGKILL)
        return Outcome(case, self.told(case))

    def _wait(self, case: Case, program: subprocess.Popen[bytes]) -> None:
        """Until the alarm names its line, or the program ends."""
        deadline = time.monotonic() + HANG_SECONDS + (0 if case.hangs else LOOK_ALIKE_SECONDS)
        while program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            if case.hangs and not Outcome(case, self.told(case)).wrong:
                return
        if not case.hangs:
            assert program.poll() == 0, self.cluster.words()

    def told(self, case: Case) -> tuple[Incident, ...]:
        rows = self.head.store.events(RunId(f"lab-{case.name}"), kinds=[Incident.KIND])
        found = (incident_of(row) for row in sorted(rows, key=lambda row: row.time_ns))
        return tuple(incident for incident in found if incident is not None)
