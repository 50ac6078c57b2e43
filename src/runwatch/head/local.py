"""A head that tails a directory of journals itself: no agent and no network needed."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.head.ingest import Ingest
from runwatch.journal.reader import READ_BYTES
from runwatch.record import JournalId, Verdict
from runwatch.ship.tail import Aside, NotTaken, Tail

POLL_SECONDS: Final = 0.1
HURRY_BYTES: Final = 256 << 10
HERE: Final = "this directory"
"""The name of this client, for the limits."""


class LocalTail:
    """Follows `<root>/journals` into an ingest, from where the store has got to."""

    def __init__(
        self,
        root: Path,
        ingest: Ingest,
        *,
        clock: Clock = system_clock,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self._ingest = ingest
        self._tail = Tail(root, start=ingest.cursor, clock=clock, read_bytes=read_bytes)
        self._clock = clock
        self.read_until_ns: int | None = None
        """Everything recorded before this time is stored; None: we have not looked yet."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runwatch-tail", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._tail.close()

    def alive(self) -> frozenset[JournalId]:
        return frozenset(self._tail.alive())

    def gone(self) -> frozenset[JournalId]:
        return frozenset(self._tail.gone())

    def aside(self) -> list[Aside]:
        """Journals that are left alone, and why."""
        return self._tail.aside()

    def agents(self) -> set[str]:
        """Hosts whose agents see this directory."""
        return {origin.host for origin in self._tail.live() if origin.role == "agent"}

    def agent_beside(self, host: str) -> str | None:
        """Whether an agent on the same machine serves the host: its own, or the node's if the host
        is a container."""
        live = self._tail.live()
        boots = {origin.boot for origin in live if origin.host == host} - {""}
        beside = {o.host for o in live if o.role == "agent" and (o.boot in boots or o.host == host)}
        return host if host in beside else min(beside, default=None)

    def hosts(self) -> set[str]:
        """Those whose journals we follow."""
        return {origin.host for origin in self._tail.live()}

    def _run(self) -> None:
        while not self._stop.is_set():
            # In small pieces, every few records would be a transaction.
            if self.round() < HURRY_BYTES:
                self._stop.wait(POLL_SECONDS)

    def round(self) -> int:
        """Store what is new; returns how many bytes of journal that was."""
        begun_ns = self._clock.wall_ns()
        self._tail.discover()
        read = 0
        pending: list[Future[Verdict]] = []
        for _, batch in self._tail.read():
            while not self._ingest.wait_for_room(POLL_SECONDS):
                if self._stop.is_set():
                    return 0
            pending.append(self._ingest.submit(batch, HERE))
            read += batch.end - batch.start
        for future in pending:
            if future.cancelled():
                self._stop.set()
                return 0
            verdict = future.result()
            if verdict.why:
                self._tail.set_aside(verdict.journal, NotTaken(verdict.why))
            elif not verdict.accepted:
                self._tail.resume(verdict.journal, verdict.position)
            else:
                self._tail.taken(verdict.journal)
        if read < HURRY_BYTES:
            self.read_until_ns = begun_ns
        return read
