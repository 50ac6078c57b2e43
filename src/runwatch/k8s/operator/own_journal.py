"""The operator's own journal: what it tells of pods, kept on its disk and sent to the head.

The journal comes first: what is in it reaches the head once, however often the operator or the head
is killed meanwhile.  Earlier operators' journals in the same directory are sent, too, and read
back: what they told is not told again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from runwatch._version import __version__
from runwatch.address import Address
from runwatch.clock import Clock, StillClock, system_clock
from runwatch.errors import SegmentError, UsageError
from runwatch.journal.liveness import boot_id, is_alive, pid_namespace, start_ticks, this_host
from runwatch.journal.reader import JournalReader
from runwatch.journal.retention import Memory, enforce
from runwatch.journal.segment import MIN_SEGMENT_BYTES, journal_directories, new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.k8s.operator.pods import Told
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.record import START, Origin, RunId, RunScope
from runwatch.record.checks import LATEST_NS
from runwatch.record.pods import PodTold
from runwatch.ship.client import Shipper, ShipSettings
from runwatch.ship.finding import find
from runwatch.ship.tail import FAILURES

FOLDER: Final = "operator"
OWN_BYTES: Final = 16 << 20
ALL_BYTES: Final = 32 << 20
"""With the journals of earlier operators that no head has stored yet."""
KEEP_SECONDS: Final = 86_400.0
"""How long a journal is kept after the head has stored it: it says what was told."""
END_SECONDS: Final = 5.0
logger = logging.getLogger("runwatch.operator")


class Row(NamedTuple):
    run: RunId
    told: Told


class OwnJournal:
    """`open`, `tidy` and `close` block: they are called in a thread."""

    def __init__(self, settings: OperatorSettings, *, clock: Clock = system_clock) -> None:
        self._settings, self._clock = settings, clock
        # In a directory that an agent shares, it would send these journals as its own.
        self.root = settings.root / FOLDER
        self._memory = Memory()
        self._writer: JournalWriter | None = None
        self._shipper: Shipper | None = None
        self._thread: threading.Thread | None = None
        self._ca: bytes | None = None
        self._is_away = False

    @property
    def problem(self) -> str:
        """Why nothing reaches the head at the moment; empty when all is well."""
        return self._shipper.problem if self._shipper is not None else "not begun"

    def open(self) -> list[Row]:
        """What earlier operators told here."""
        self._ca = self._settings.ca_bytes()
        earlier = list(_read_back(self))
        self._writer = self._new_writer()
        self._shipper = Shipper(
            self.root,
            self._locate,
            token=self._token,
            ca=lambda: self._ca,
            all_hosts=True,
            settings=ShipSettings(longest_delay_seconds=self._settings.retry_seconds),
            on_head=self._heard,
            clock=self._clock,
        )
        self._thread = threading.Thread(
            target=self._shipper.run, name="runwatch-operator-ship", daemon=True
        )
        self._thread.start()
        return earlier

    def _heard(self, answers: bool) -> None:
        self._is_away = not answers

    def _locate(self) -> Address:
        return find(self._settings.head, self._ca).address

    def _token(self) -> str:
        try:
            return self._settings.ingest_token()
        except UsageError as error:  # its file is being changed, or is not there yet
            logger.warning("%s", error)
            return ""

    def _new_writer(self) -> JournalWriter:
        now_ns, host, pid = self._clock.wall_ns(), this_host(), os.getpid()
        journal = new_journal_id(host, pid, now_ns, os.urandom(4).hex())
        ticks = start_ticks(pid) or 0
        return JournalWriter(
            self.root,
            Origin(
                journal, host, pid, now_ns, boot_id(), ticks, "agent", __version__, pid_namespace()
            ),
            segment_bytes=MIN_SEGMENT_BYTES,
            budget_bytes=OWN_BYTES,
            clock=StillClock(now_ns),
        )

    # ── telling ───────────────────────────────────────────────────────────────────────────────

    def tell(self, run: RunId, name: str, told: Told) -> bool:
        """False: the disk is full; later."""
        writer = self._writer
        assert writer is not None, "it tells between `open` and `close`"
        if not 0 < told.time_ns <= LATEST_NS:  # a time that nobody knew is written as the year 1
            return True
        # It takes no part in the run that it tells of.
        scope = RunScope(0, run, name, rank=-1, world_size=0)
        try:
            number = writer.scope(scope)
        except SegmentError:  # it has named as many runs as one journal may
            writer.close()
            writer = self._writer = self._new_writer()
            number = writer.scope(scope)
        lost = writer.lost_records
        writer.tell(told.what, scope=number, mono_ns=told.time_ns)
        return writer.lost_records == lost

    # ── keeping house ─────────────────────────────────────────────────────────────────────────

    def tidy(self) -> None:
        writer, shipper = self._writer, self._shipper
        assert writer is not None and shipper is not None
        own = writer.origin.journal
        reached = dict(shipper.acknowledged)
        writer.acknowledged = reached.get(own, START)
        enforce(
            self.root,
            acknowledged=reached,
            live=[own],
            budget_bytes=ALL_BYTES,
            keep_acknowledged_seconds=KEEP_SECONDS,
            clock=self._clock,
            alive=lambda origin: origin.journal == own or not _is_ours(origin) and is_alive(origin),
            memory=self._memory,
        )

    def close(self) -> None:
        """Waits a little for a head that answers; what it has not stored by then the next operator
        sends."""
        writer, shipper, thread = self._writer, self._shipper, self._thread
        if writer is None or shipper is None or thread is None:
            return
        writer.close()
        closed_ns = self._clock.mono_ns()
        until_ns, pause = closed_ns + int(END_SECONDS * 1e9), threading.Event()
        while not self._is_away and self._clock.mono_ns() < until_ns:
            if shipper.has_all_of(writer.origin.journal, closed_ns):
                break
            pause.wait(0.05)
        shipper.stop()
        thread.join(timeout=END_SECONDS)


def _is_ours(origin: Origin) -> bool:
    """This process wrote it: it begins another one each time that it has the lease."""
    pid = os.getpid()
    return (origin.pid, origin.process_start_ticks) == (pid, start_ticks(pid) or 0)


def _read_back(journal: OwnJournal) -> Iterator[Row]:
    for directory in journal_directories(journal.root):
        try:
            yield from _rows(JournalReader(directory))
        except FAILURES as error:
            logger.warning("cannot read what %s told: %s", directory.name, error)


def _rows(reader: JournalReader) -> Iterator[Row]:
    runs: dict[int, RunId] = {}
    try:
        while (batch := reader.read(final=True)) is not None:
            runs |= {d.id: d.run for d in batch.definitions if isinstance(d, RunScope)}
            for event in batch.events:
                if event.kind == PodTold.KIND and event.scope in runs:
                    yield Row(runs[event.scope], Told(event.time_ns, PodTold.of(event.body)))
    finally:
        reader.close()
