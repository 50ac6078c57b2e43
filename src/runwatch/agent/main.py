"""The agent's loop: look for processes, sample, record how they ended, ship, tidy up.

One of the two places in Runwatch that catch everything: one failing collector leaves the others
running, and says so once in the journal.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from runwatch._version import __version__
from runwatch.agent.collectors import COLLECTORS, Collector, Sample
from runwatch.agent.lock import AgentLock
from runwatch.agent.settings import AgentSettings
from runwatch.agent.watch import Exit, ProcessWatch
from runwatch.clock import Clock, every, system_clock
from runwatch.journal.liveness import boot_id, start_ticks, this_host
from runwatch.journal.reader import JournalReader
from runwatch.journal.retention import enforce
from runwatch.journal.segment import new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin, RunScope
from runwatch.ship.client import Address, Shipper
from runwatch.ship.tail import Tail

TIDY_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.25
SHIP_ON_EXIT_SECONDS: Final = 5.0
ENDED: Final = "ended.json"
logger = logging.getLogger("runwatch.agent")


class Agent:
    """Everything one node does.  `run` returns when stopped, or idle for long enough."""

    def __init__(self, settings: AgentSettings, *, clock: Clock = system_clock) -> None:
        self.settings = settings
        self.host = settings.host or this_host()
        self._clock = clock
        self._stop = threading.Event()
        of_host = None if settings.all_hosts else self.host
        self._tail = Tail(settings.root, of_host=of_host, clock=clock)
        self._watch = ProcessWatch()
        self._scopes: dict[JournalId, int] = {}
        self._ranks: dict[JournalId, RunScope] = {}
        self._writer = JournalWriter(settings.root, self._origin(), clock=clock)
        self._series: dict[tuple[str, int, str, str], int] = {}
        self._collectors = [make(settings.root, self._targets) for make in COLLECTORS]
        self._due: dict[str, int] = {}
        self._failed: set[str] = set()
        self._busy_ns = clock.mono_ns()
        self._tidied_ns = 0
        self._shipper = self._make_shipper()

    def _origin(self) -> Origin:
        now, pid = self._clock.wall_ns(), os.getpid()
        journal = new_journal_id(self.host, pid, now, os.urandom(4).hex())
        ticks = start_ticks(pid) or 0
        return Origin(journal, self.host, pid, now, boot_id(), ticks, "agent", __version__)

    def _make_shipper(self) -> Shipper | None:
        settings = self.settings
        if not settings.head:
            return None
        ca = settings.ca.read_bytes() if settings.ca else None
        return Shipper(
            settings.root,
            Address.parse(settings.head),
            token=settings.token,
            ca=ca,
            host=self.host,
            all_hosts=settings.all_hosts,
            clock=self._clock,
        )

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        self._writer.event("agent_start", {"pid": os.getpid(), "version": __version__})
        shipping = None
        if self._shipper is not None:
            shipping = threading.Thread(target=self._shipper.run, name="runwatch-ship", daemon=True)
            shipping.start()
        try:
            for tick in every(self.settings.period_seconds, until=self._wait, clock=self._clock):
                self._look()
                self._collect(tick.late_seconds)
                self._tidy()
                if self._is_idle():
                    break
        finally:
            self._writer.event("agent_end", {"pid": os.getpid()})
            self._end(shipping)

    def _wait(self, seconds: float) -> bool:
        """Until the next tick or the stop; who ends meanwhile is recorded at once, since the
        order in which ranks went down tells which one took the others along."""
        deadline = self._clock.mono_ns() + int(seconds * 1e9)
        while not self._stop.is_set():
            left = (deadline - self._clock.mono_ns()) / 1e9
            for gone in self._watch.poll(min(max(left, 0.0), POLL_SECONDS)):
                self._record_exit(gone)
            if left <= 0:
                return False
        return True

    def _end(self, shipping: threading.Thread | None) -> None:
        self._writer.close()
        if self._shipper is not None and shipping is not None:
            deadline = self._clock.mono_ns() + SHIP_ON_EXIT_SECONDS * 1e9
            pause = threading.Event()
            while self._clock.mono_ns() < deadline and not self._has_shipped():
                pause.wait(0.05)
            self._shipper.stop()
            shipping.join(timeout=SHIP_ON_EXIT_SECONDS)
        self._tail.close()
        self._watch.close()

    def _has_shipped(self) -> bool:
        shipper = self._shipper
        if shipper is None or not shipper.connected:
            return True  # nobody to wait for: the journals stay, the next agent goes on
        return shipper.all_acknowledged()

    # ── processes ─────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        """Take new processes under watch."""
        for followed in self._tail.discover():
            origin = followed.origin
            if origin.role != "agent" and not self._ended_path(origin).exists():
                self._watch.add(origin)
        self._tail.forget_missing()

    def _record_exit(self, gone: Exit) -> None:
        journal = gone.origin.journal
        body = {
            "journal": journal,
            "pid": gone.origin.pid,
            "code": gone.code,
            "signal": gone.signal,
            "core_dumped": gone.core_dumped,
            "oom": gone.oom,
        }
        self._writer.event("process_exit", body, scope=self._scope(gone.origin) or 0)
        self._scopes.pop(journal, None)
        try:
            # For an agent that comes after us: this end has been recorded.
            self._ended_path(gone.origin).write_text(json.dumps(body))
        except OSError as error:
            logger.warning("cannot note the end of %s: %s", journal, error)

    def _ended_path(self, origin: Origin) -> Path:
        return self.settings.root / "journals" / origin.journal / ENDED

    def _scope(self, origin: Origin) -> int | None:
        """The run a process belongs to, as a scope in our own journal; None until it says."""
        known = self._scopes.get(origin.journal)
        if known is not None:
            return known
        reader = JournalReader(self.settings.root / "journals" / origin.journal, clock=self._clock)
        batch = reader.read()
        reader.close()
        runs = [d for d in batch.definitions if isinstance(d, RunScope)] if batch else []
        if not runs:
            return None
        self._ranks[origin.journal] = runs[-1]
        self._scopes[origin.journal] = self._writer.scope(runs[-1])
        return self._scopes[origin.journal]

    def _targets(self) -> Iterator[tuple[int, int, Mapping[str, str]]]:
        """(pid, scope, labels) of every live process of a run, for the process collector."""
        for origin in self._watch.watched():
            scope = self._scope(origin)
            if scope is not None:
                rank = self._ranks[origin.journal].rank
                yield origin.pid, scope, {"rank": str(rank), "pid": str(origin.pid)}

    # ── numbers ───────────────────────────────────────────────────────────────────────────────

    def _collect(self, late_seconds: float) -> None:
        now = self._clock.mono_ns()
        series: list[int] = []
        values: list[float] = []
        for collector in self._collectors:
            if now >= self._due.get(collector.name, 0):
                self._due[collector.name] = now + int((collector.period_seconds - 0.05) * 1e9)
                for sample in self._samples(collector):
                    series.append(self._series_of(sample))
                    values.append(sample.value)
        series.append(self._series_of(Sample("agent_late_seconds", late_seconds, "s")))
        values.append(late_seconds)
        self._writer.points(series, values)

    def _samples(self, collector: Collector) -> list[Sample]:
        try:
            return list(collector.collect())
        except Exception as error:  # one of the two edges: see the module's docstring
            if collector.name not in self._failed:
                self._failed.add(collector.name)
                logger.exception("collector %s failed", collector.name)
                body = {"collector": collector.name, "error": f"{type(error).__name__}: {error}"}
                self._writer.event("collector_failed", body)
            return []

    def _series_of(self, sample: Sample) -> int:
        key = (sample.metric, sample.scope, sample.device, sample.labels.get("pid", ""))
        known = self._series.get(key)
        if known is None:
            known = self._series[key] = self._writer.series(
                sample.metric,
                scope=sample.scope,
                unit=sample.unit,
                device=sample.device,
                labels=sample.labels,
            )
        return known

    # ── housekeeping ──────────────────────────────────────────────────────────────────────────

    def _tidy(self) -> None:
        now = self._clock.mono_ns()
        if now - self._tidied_ns < TIDY_SECONDS * 1e9:
            return
        self._tidied_ns = now
        report = enforce(
            self.settings.root,
            acknowledged=dict(self._shipper.acknowledged) if self._shipper else {},
            live={origin.journal for origin in self._tail.live()},
            budget_bytes=self.settings.budget_bytes,
            keep_acknowledged_seconds=self.settings.keep_acknowledged_seconds,
            clock=self._clock,
        )
        if report.records_dropped:
            self._writer.event("journal_loss", {"dropped_records": report.records_dropped})

    def _is_idle(self) -> bool:
        """No process of a run for a while, and nothing left to ship to a head that we have."""
        now = self._clock.mono_ns()
        if any(True for _ in self._watch.watched()):
            self._busy_ns = now
        if self.settings.idle_seconds <= 0:
            return False
        quiet = now - self._busy_ns > self.settings.idle_seconds * 1e9
        return quiet and (self._shipper is None or self._shipper.all_acknowledged())


def run_agent(settings: AgentSettings) -> bool:
    """Run until stopped or idle; False when another agent of this node and user is at it."""
    lock = AgentLock(settings.root, settings.host or this_host())
    if not lock.acquire():
        return False
    agent = Agent(settings)
    _stop_on_signals(agent)
    try:
        agent.run()
    finally:
        lock.release()
    return True


def _stop_on_signals(agent: Agent) -> None:
    import signal

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
