"""The agent's loop: look for processes, sample, record how they ended, ship, tidy up.

The loop itself samples the host; threads sample the devices (`lanes.py`).  Both write to `book.py`.
`attribution.py` knows which run a device belongs to.

This is one of the two places in Runwatch that catch every exception: when one collector fails, the
others go on, and the journal says so once.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from runwatch._version import __version__
from runwatch.agent.attribution import Attribution
from runwatch.agent.book import Book
from runwatch.agent.collectors import (
    COLLECTORS,
    DEVICES,
    Collector,
    DeviceCollector,
    Devices,
    Notice,
    Reading,
    Sample,
    Target,
)
from runwatch.agent.collectors.base import Held, Owner
from runwatch.agent.collectors.replay import ReplayCollector
from runwatch.agent.collectors.replay import load as load_recording
from runwatch.agent.errands import dumps
from runwatch.agent.errands.commands import Context, Errand, Errands
from runwatch.agent.errands.kineto import KinetoDaemon
from runwatch.agent.errands.profile import ProfileErrand
from runwatch.agent.errands.table import ERRANDS
from runwatch.agent.lanes import Lanes, Source
from runwatch.agent.lock import AgentLock
from runwatch.agent.moved import Neighbour, here_or_elsewhere
from runwatch.agent.neighbours import seen_from_here, whose
from runwatch.agent.note import StatusNote
from runwatch.agent.own_log import shorten
from runwatch.agent.queues import SCHEDULERS
from runwatch.agent.queues.desk import QueueDesk, QueueEvent
from runwatch.agent.sender import Orders
from runwatch.agent.senders import Senders
from runwatch.agent.settings import AgentSettings
from runwatch.agent.stopping import listen
from runwatch.agent.syncing import DiskSync
from runwatch.agent.watch import Exit, ProcessWatch
from runwatch.capture.faulthandling import FATAL
from runwatch.clock import Clock, Tick, every, system_clock
from runwatch.errors import UsageError
from runwatch.files import Refused, journal_folder, shelf
from runwatch.journal.liveness import (
    ENDED,
    boot_id,
    has_ended,
    pid_namespace,
    start_ticks,
    this_host,
)
from runwatch.journal.reader import JournalReader
from runwatch.journal.retention import Memory, enforce
from runwatch.journal.segment import DEFAULT_SEGMENT_BYTES, new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import Batch, Command, JournalId, Origin, RunScope
from runwatch.record.captures import FAILED
from runwatch.record.commands import CommandResult, Holdings, HoldingsResult, ProfileCommand
from runwatch.record.life import JournalLoss
from runwatch.record.losses import JournalAside
from runwatch.record.node import AgentEnd, AgentStart, CollectorFailed, DeviceOwner, ProcessExit
from runwatch.ship.tail import FAILURES, Tail

TIDY_SECONDS: Final = 30.0
WARN_SECONDS: Final = 60.0
SEGMENTS: Final = 8
MOST_ASIDE: Final = 1_000
POLL_SECONDS: Final = 0.25
SHIP_ON_EXIT_SECONDS: Final = 5.0
logger = logging.getLogger("runwatch.agent")


class Agent:
    """Everything one node does.  `run` returns when stopped, or idle for long enough."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        clock: Clock = system_clock,
        sources: Sequence[Source] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """`sources`: the devices to look for, in place of those that the settings name.  `stop`:
        the caller sets it to end the agent."""
        self.settings = settings
        self.host = settings.host or this_host()
        self._clock = clock
        self._stop = stop or threading.Event()
        of_host = None if settings.all_hosts else self.host
        self._tail = Tail(settings.root, of_host=of_host, clock=clock)
        self._watch = ProcessWatch()
        self._unwatched: list[Origin] = []
        self._known: dict[JournalId, Target] = {}
        self._users: dict[JournalId, int | None] = {}
        """Journal -> the user of its process; None: the process had ended."""
        self._aside: dict[JournalId, str] = {}
        """Journal -> why it is set aside, as recorded last."""
        self._targets: tuple[Target, ...] = ()
        self._attribution = Attribution(lambda: self._targets, changed=self._owner_changed)
        self._collectors = [make(settings.root, lambda: self._targets) for make in COLLECTORS]
        self._lanes = Lanes(self._sources() if sources is None else sources, self, clock=clock)
        self._senders = Senders(settings, self.host, clock)
        self._book = Book(self._open_journal)
        self._queues = QueueDesk(SCHEDULERS, clock=clock)
        self._moved = Neighbour(settings, self.host, clock)
        self._sync = DiskSync(settings.root, period_seconds=settings.sync_seconds, clock=clock)
        self._dropped = self._warn_dropped_ns = self._dropped_of_others = 0
        self._note = StatusNote(settings, self.host, clock)
        self._failed: set[str] = set()
        context = Context(settings.root, self.host, clock, lambda: self._targets, self._book.event)
        self._kineto = KinetoDaemon(clock=clock)
        errands: dict[str, Errand] = {
            **ERRANDS,
            ProfileCommand.KIND: ProfileErrand(self._kineto),
            Holdings.KIND: lambda *_: HoldingsResult(waiting=self._senders.unfinished()),
        }
        self._errands = Errands(context, errands, self._carry_out)
        self._busy_ns = clock.mono_ns()
        self._tidied_ns = 0
        self._old_journals = Memory()
        self._senders.begin(Orders(self._errands.kinds, self._errands.take))

    def _open_journal(self) -> JournalWriter:
        return here_or_elsewhere(self.settings.root, self._open_journal_in)

    def _open_journal_in(self, root: Path) -> JournalWriter:
        own, origin = self.settings.own_bytes, self._origin()
        writer = JournalWriter(
            root,
            origin,
            # A full journal drops its oldest segment: it must be a small part of the whole.
            segment_bytes=min(DEFAULT_SEGMENT_BYTES, own // SEGMENTS),
            budget_bytes=own,
            clock=self._clock,
            heads=self._senders.note(),
        )
        self._senders.opened(origin.journal)
        return writer

    def _origin(self) -> Origin:
        now, pid = self._clock.wall_ns(), os.getpid()
        journal = new_journal_id(self.host, pid, now, os.urandom(4).hex())
        ticks = start_ticks(pid) or 0
        here = pid_namespace()
        return Origin(journal, self.host, pid, now, boot_id(), ticks, "agent", __version__, here)

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        self._book.tell(AgentStart(os.getpid(), __version__))
        self._senders.look()
        self._senders.start()
        self._kineto.start()
        self._sync.start()
        try:
            for tick in every(self.settings.period_seconds, until=self._wait, clock=self._clock):
                self._look()
                self._tell_queues(self._queues.look(self._targets))
                for collector in self._collectors:
                    self.round(collector, self._late_seconds(tick))
                self._hear_lanes()
                self._mind_losses()
                self._tidy()
                self._moved.look()
                self._tell_status()
                if self._is_idle():
                    break
        finally:
            for gone in self._watch.poll(0):  # those that ended since the last poll
                self._record_exit(gone)
            self._kineto.stop()
            self._sync.stop()
            self._lanes.stop()
            self._tell_queues(self._queues.stop())
            self._book.tell(AgentEnd(os.getpid()))
            self._end()

    def _wait(self, seconds: float) -> bool:
        """Wait until the next tick or the stop.  The end of a process is recorded at once: the
        order in which ranks ended tells which one took the others down."""
        deadline = self._clock.mono_ns() + int(seconds * 1e9)
        while not self._stop.is_set():
            left = (deadline - self._clock.mono_ns()) / 1e9
            for gone in self._watch.poll(min(max(left, 0.0), POLL_SECONDS)):
                self._record_exit(gone)
            self._errands.look()
            if left <= 0:
                return False
        return True

    def _end(self) -> None:
        self._book.close()
        closed_ns, last = self._clock.mono_ns(), self.settings.last_seconds
        deadline = closed_ns + max(SHIP_ON_EXIT_SECONDS, last) * 1e9
        pause = threading.Event()
        while self._clock.mono_ns() < deadline and not self._has_shipped(closed_ns):
            pause.wait(0.05)
        self._senders.stop()
        self._tell_status(ended=True)
        self._tail.close()
        self._watch.close()

    def _has_shipped(self, closed_ns: int) -> bool:
        """Heads that do not answer are not waited for, nor is what others recorded: the next agent
        sends it.  If there is none, they are."""
        if self.settings.last_seconds > 0:
            return self._senders.has_shipped_all(closed_ns)
        return self._senders.has_shipped([self._book.journal], closed_ns)

    # ── processes ─────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        """Begin to watch new processes."""
        self._senders.look()
        came = [followed.origin for followed in self._tail.discover()]
        waiting, self._unwatched = self._unwatched, []
        to_watch = [*waiting, *filter(self._is_to_be_watched, came)]
        try:
            seen = list(seen_from_here(to_watch, self.host))
        except OSError as error:
            self._cannot_watch(to_watch, error)
            seen = []
        for origin in seen:
            self._add(origin)
        self._sync.look_at([origin.journal for origin in self._tail.live()])
        self._tell_aside()
        self._know_targets()

    def _add(self, origin: Origin) -> None:
        try:
            owner = whose(origin, self._directory(origin))
            if not owner.stranger:
                self._users[origin.journal] = owner.uid
                self._watch.add(origin)
        except (FileNotFoundError, Refused) as error:
            logger.warning(
                "journal %s cannot be opened, its process is not watched: %s", origin.journal, error
            )
            return
        except OSError as error:
            self._cannot_watch([origin], error)
            return
        if owner.stranger:
            logger.warning(
                "journal %s names process %d, %s: the agent does not watch that process",
                origin.journal,
                origin.pid,
                owner.stranger,
            )

    def _cannot_watch(self, origins: Sequence[Origin], error: OSError) -> None:
        """Most likely too many files are open.  The next look tries again."""
        self._unwatched += origins
        if "watch" not in self._failed:
            self._failed.add("watch")
            logger.warning("%d processes cannot be watched yet: %s", len(origins), error)

    def _tell_aside(self) -> None:
        """Record each journal that is set aside, when that begins and when it ends."""
        both = self._tail.aside() + self._senders.aside()
        now = {aside.journal: aside.why for aside in both[:MOST_ASIDE]}
        for journal in sorted(now.keys() | self._aside.keys()):
            if now.get(journal) != self._aside.get(journal):
                state = JournalAside.ASIDE if journal in now else JournalAside.BACK
                change = JournalAside(journal, now.get(journal, ""), state, __version__)
                self._book.tell(change)
        self._aside = now

    def has_missed_someone(self) -> bool:
        """Whether a process has come since the last look.  Asked after the loop has ended."""
        came = [followed.origin for followed in self._tail.discover(surely=True)]
        self._tail.close()
        return any(map(self._is_to_be_watched, came))

    def _is_to_be_watched(self, origin: Origin) -> bool:
        return origin.role != "agent" and not has_ended(self._directory(origin))

    def _record_exit(self, gone: Exit) -> None:
        journal = gone.origin.journal
        process_exit = ProcessExit(
            journal=journal,
            pid=gone.origin.pid,
            code=gone.code,
            signal=gone.signal,
            core_dumped=gone.core_dumped,
            oom=gone.oom,
            lived_ns=gone.lived_ns,
            fault=self._fault(gone) or None,
        )
        target = self._target(gone.origin)
        self._book.tell(process_exit, target.scope if target else 0)
        if target is not None:
            self._read_dumps(target, ended=True)
        self._known.pop(journal, None)
        self._users.pop(journal, None)
        self._know_targets()
        try:
            # This tells the next agent that the end is recorded.
            with journal_folder(self._directory(gone.origin)) as folder:
                folder.write(ENDED, json.dumps(process_exit.body()).encode(), give=True)
        except OSError as error:
            logger.warning("cannot note the end of %s: %s", journal, error)

    def _fault(self, gone: Exit) -> str:
        """The fault the process died of, where the exit status may not tell."""
        if gone.signal not in FATAL and (gone.signal is not None or gone.code is not None):
            return ""
        return dumps.last_fault(self._directory(gone.origin))

    def _read_dumps(self, target: Target, *, ended: bool) -> None:
        """Record stacks that the process itself wrote: at a fault, or in its periodic dumps."""
        journal = self.settings.root / "journals" / target.labels["journal"]
        rank = int(target.labels["rank"])
        try:
            for stacks in dumps.collect(journal, rank=rank, host=self.host, ended=ended):
                self._book.tell(stacks, scope=target.scope)
        except Exception as error:
            self._has_failed("dumps", error)

    def _directory(self, origin: Origin) -> Path:
        """The id is safe in a path: the tail follows only journals named like their directory."""
        return self.settings.root / "journals" / origin.journal

    def _target(self, origin: Origin) -> Target | None:
        """A process and its part in a run; None until its journal names the run."""
        known = self._known.get(origin.journal)
        if known is not None:
            return known
        if self._tail.is_aside(origin.journal):
            return None
        try:
            batch = self._first_words(origin.journal)
        except FAILURES as error:
            self._tail.set_aside(origin.journal, error)
            return None
        runs = [d for d in batch.definitions if isinstance(d, RunScope)] if batch else []
        if not runs:
            return None
        scope = runs[-1]
        labels = {"rank": str(scope.rank), "pid": str(origin.pid), "journal": origin.journal}
        self._senders.learn(origin.journal, scope, self._book.journal)
        number = self._book.run(scope)
        user = self._users.get(origin.journal)
        target = Target(
            origin.pid, number, labels, scope.run, origin.process_start_ticks, origin.host, user
        )
        self._known[origin.journal] = target
        return target

    def _first_words(self, journal: JournalId) -> Batch | None:
        reader = JournalReader(self.settings.root / "journals" / journal, clock=self._clock)
        try:
            return reader.read()
        finally:
            reader.close()

    def _know_targets(self) -> None:
        """Tell collectors each live process of a run.  Replace the tuple: other threads read it.

        A launcher is ours, and no rank: nobody wants its stacks or profiles in a rank's place.
        """
        ranks = (origin for origin in self._watch.watched() if origin.role != "launcher")
        targets = (self._target(origin) for origin in ranks)
        self._targets = tuple(target for target in targets if target is not None)
        self._attribution.refresh()

    def _tell_queues(self, events: Sequence[QueueEvent]) -> None:
        for event in events:
            self._book.tell(event.message, event.target.scope)

    # ── numbers ───────────────────────────────────────────────────────────────────────────────

    def _late_seconds(self, tick: Tick) -> float:
        return max(0.0, (self._clock.mono_ns() - tick.scheduled_ns) / 1e9)

    def round(self, collector: Collector, late_seconds: float) -> None:
        """Collect once and record the samples, with the time at which it began.  Never raises."""
        begun = self._clock.mono_ns()
        late = Sample("agent_late_seconds", late_seconds, "s", "", {"collector": collector.name})
        try:
            readings = list(collector.collect())
            samples = [reading for reading in readings if isinstance(reading, Sample)]
            self._book.points([*samples, late], begun)
            self._tell(readings)
        except Exception as error:  # see the module's docstring
            self._has_failed(collector.name, error)

    def open(self, source: Source) -> Sequence[DeviceCollector]:
        """The source's collectors; none when opening fails.  Never raises."""
        try:
            return source.open()
        except Exception as error:
            self._has_failed(source.name, error)
            return ()

    def close(self, collector: DeviceCollector) -> None:
        try:
            collector.close()
        except Exception as error:
            self._has_failed(collector.name, error)

    def _has_failed(self, name: str, error: Exception) -> None:
        if name not in self._failed:
            self._failed.add(name)
            logger.warning("collector %s failed", name, exc_info=error)
            self._book.tell(CollectorFailed(name, f"{type(error).__name__}: {error}"))

    def _carry_out(self, errand: Errand, command: Command, context: Context) -> CommandResult:
        try:
            return errand(command, context)
        except Exception as error:
            logger.warning("command %s (%s) failed", command.kind, command.id, exc_info=error)
            return CommandResult(state=FAILED, why=f"{type(error).__name__}: {error}")

    # ── devices ───────────────────────────────────────────────────────────────────────────────

    def _sources(self) -> list[Source]:
        settings = self.settings
        if settings.device_hz <= 0:
            return []
        devices = Devices(
            self._attribution, self._clock, 1 / settings.device_hz, settings.device_pcie
        )
        if settings.device_replay is not None:
            recording = load_recording(settings.device_replay)
            player = ReplayCollector(
                recording,
                self._attribution,
                period_seconds=devices.period_seconds,
                devices=settings.device_replay_count,
                speed=settings.device_replay_speed,
                clock=self._clock,
            )
            return [Source("replay", lambda: True, lambda: [player])]
        return [Source(n, there, partial(make, devices)) for n, (there, make) in DEVICES.items()]

    def _hear_lanes(self) -> None:
        self._tell(self._lanes.look())

    def _tell(self, readings: Sequence[Reading]) -> None:
        """Record notices as events of the run that owns the device."""
        for reading in readings:
            if isinstance(reading, Notice):
                scope = self._attribution.of(reading.device).scope
                self._book.tell(reading.message, scope)

    def _owner_changed(self, held: Held, owner: Owner) -> None:
        change = DeviceOwner(held.device, held.uuid, owner.how, **owner.labels)
        self._book.tell(change, owner.scope)

    # ── housekeeping ──────────────────────────────────────────────────────────────────────────

    def _mind_losses(self) -> None:
        """Warn of records that were dropped before a head had them, once a minute at most."""
        self._book.acknowledged(self._senders.acknowledged())
        dropped, now = self._book.dropped_records, self._clock.mono_ns()
        if dropped > self._dropped and now >= self._warn_dropped_ns:
            self._dropped, self._warn_dropped_ns = dropped, now + int(WARN_SECONDS * 1e9)
            logger.warning(
                "the agent dropped %d of its records, the oldest, before a head had them: "
                "its journal is full (RUNWATCH_AGENT_BYTES is %d bytes)",
                dropped,
                self.settings.own_bytes,
            )

    def _tell_status(self, *, ended: bool = False) -> None:
        dropped = self._book.dropped_records + self._dropped_of_others
        self._note.tell(self._tail, self._senders, dropped, ended=ended)

    def _tidy(self) -> None:
        now = self._clock.mono_ns()
        if now - self._tidied_ns < TIDY_SECONDS * 1e9:
            return
        self._tidied_ns = now
        shorten(self.settings.root)
        report = enforce(
            self.settings.root,
            acknowledged=self._senders.acknowledged(),
            live={origin.journal for origin in self._tail.live()},
            budget_bytes=self.settings.budget_bytes,
            keep_acknowledged_seconds=self.settings.keep_acknowledged_seconds,
            clock=self._clock,
            memory=self._old_journals,
        )
        self._dropped_of_others += report.records_dropped
        if report.records_dropped:
            self._book.tell(JournalLoss(report.records_dropped))
        for target in self._targets:
            self._read_dumps(target, ended=False)

    def _is_idle(self) -> bool:
        """No process of a run for `idle_seconds`, and the head, if any, has everything."""
        if self.settings.idle_seconds <= 0:
            return False
        now = self._clock.mono_ns()
        if any(True for _ in self._watch.watched()) or self._hears_someone():
            self._busy_ns = now
        quiet = now - self._busy_ns > self.settings.idle_seconds * 1e9
        return quiet and self._senders.is_settled()

    def _hears_someone(self) -> bool:
        """Whether a live process records here, even one that we cannot see."""
        alive = (self._tail.journals[journal] for journal in self._tail.alive())
        return any(followed.origin.role != "agent" for followed in alive)


def run_agent(settings: AgentSettings, stop: threading.Event | None = None) -> bool:
    """Run until stopped or idle; False when another agent of this node and user runs already."""
    stop = stop or listen(threading.Event())
    lock = AgentLock(settings.root, settings.host or this_host())
    try:
        if not lock.acquire():
            return False
        with shelf(settings.root, "journals", make=True):
            pass  # fails if another user put a link there: it would lead our journal elsewhere
    except OSError as error:
        raise UsageError(f"no agent can serve {settings.root}: {error}") from error
    while True:
        try:
            agent = Agent(settings, stop=stop)
            agent.run()
        finally:
            lock.release()
        # A process that came while we were ending started no agent: it saw that we still ran.
        if stop.is_set() or not agent.has_missed_someone() or not lock.acquire():
            return True
