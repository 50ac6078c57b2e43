"""The wrapper's records: that the command began, what it wrote, and how it ended.

They are in a journal of the role "launcher", which takes part in a run and is no rank of it.  Which
run that is may turn out late: if a process of the command begins a run of another name, the wrapper
goes over to that run and tells there again what it has told so far (`join`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from runwatch.clock import system_clock
from runwatch.journal.liveness import this_host
from runwatch.journal.writer import JournalWriter
from runwatch.launcher.ended import Ended
from runwatch.launcher.environment import Options
from runwatch.record import RunId, RunScope
from runwatch.record.console import Console, Stream
from runwatch.record.life import Config, Joined, RunEnd, RunStart, SdkWarning
from runwatch.sdk import collect, farewell, launch
from runwatch.sdk.console.keeper import LineKeeper
from runwatch.sdk.guard import attempt, guarded, tally
from runwatch.sdk.identity import Identity, identify
from runwatch.sdk.place import open_journal
from runwatch.sdk.values import masking
from runwatch.sdk.values.plain import mapping, text

KEPT_BYTES: Final = 4 << 20
"""How much of what was told is kept to be told again in another run."""


class Chronicle:
    """Any thread may call.  Nothing raises: the command goes on whatever happens here."""

    def __init__(
        self, options: Options, command: list[str], environment: Mapping[str, str]
    ) -> None:
        self._options, self._command, self._environment = options, command, environment
        self._identity = _identity(environment)
        self._group = environment.get("RUNWATCH_GROUP", "")
        self._writer: JournalWriter | None = None
        self._lock = threading.RLock()
        self._scopes: dict[tuple[str, int], int] = {}
        self._keepers: dict[int | None, LineKeeper] = {}
        self._told: list[tuple[int | None, Console, int]] | None = []
        """What was told until another run is known; None: no longer kept."""
        self._kept_bytes = 0
        self._began_ns = system_clock.mono_ns()
        self._caretaker: launch.Caretaker | None = None

    # ── beginning ─────────────────────────────────────────────────────────────────────────────

    @guarded("begin the records of the command")
    def begin(self) -> None:
        writer = open_journal(
            self._options.directory or None,
            self._keep,
            role="launcher",
            environment=self._environment,
        )
        if writer is None:
            return
        with self._lock:
            self._writer = writer
            self._begin_run()
            for rank, console, mono_ns in self._told or ():  # while there was no journal
                writer.tell(console, scope=self._scope(rank), mono_ns=mono_ns)
        if launch.wanted(self._environment):
            self._caretaker = launch.Caretaker(
                writer.directory.parents[1], this_host(self._environment), first=True
            )
            self._caretaker.look()

    def _begin_run(self) -> None:
        """Under the lock."""
        writer, identity = self._writer, self._identity
        assert writer is not None
        start = RunStart(
            run=identity.run,
            name=identity.name,
            group=self._group,
            rank=identity.rank,
            local_rank=identity.local_rank,
            world_size=identity.world_size,
            attempt_key=identity.attempt_key,
            orchestrator=identity.orchestrator,
            argv=tuple(masking.command_line(text(word) for word in self._command)),
            cwd=text(collect.working_directory()),
            **attempt("find out whose run it is", dict[str, Any](), collect.circumstances),
        )
        scope = self._scope(None)
        writer.event(start.KIND, start.body(), scope=scope, mono_ns=self._began_ns)
        if self._options.config:
            values = masking.named_values(mapping(self._options.config))
            writer.tell(Config("user", values), scope=scope)
        self._report()

    def _scope(self, rank: int | None) -> int:
        """Our own part in the run, or, for what a rank wrote, the rank's."""
        writer, identity = self._writer, self._identity
        assert writer is not None
        place = identity.rank if rank is None else rank
        known = self._scopes.get((identity.run, place))
        if known is None:
            known = self._scopes[identity.run, place] = writer.scope(
                RunScope(
                    0,
                    identity.run,
                    identity.name,
                    place,
                    max(identity.world_size, place + 1),
                    identity.attempt_key,
                    self._group,
                )
            )
        return known

    # ── meanwhile ─────────────────────────────────────────────────────────────────────────────

    @guarded("keep what the command wrote")
    def feed(self, rank: int | None, stream: Stream, data: bytes) -> None:
        """What the command wrote; `rank`, if a rank's own pipe brought it."""
        keeper = self._keepers.get(rank)
        if keeper is None:
            with self._lock:
                keeper = self._keepers.setdefault(rank, self._keeper(rank))
        keeper.feed(stream, data)

    def _keeper(self, rank: int | None) -> LineKeeper:
        def tell(console: Console, mono_ns: int) -> None:
            told = replace(console, of_command=True) if rank is None else console
            self._tell(rank, told, mono_ns)

        return LineKeeper(tell)

    @guarded("record what the command wrote")
    def _tell(self, rank: int | None, console: Console, mono_ns: int) -> None:
        with self._lock:
            if self._told is not None:
                self._told.append((rank, console, mono_ns))
                self._kept_bytes += sum(map(len, console.lines))
                while self._kept_bytes > KEPT_BYTES:
                    self._kept_bytes -= sum(map(len, self._told.pop(0)[1].lines))
            if self._writer is not None:
                self._writer.tell(console, scope=self._scope(rank), mono_ns=mono_ns)

    @guarded("look after the records of the command")
    def _keep(self) -> None:
        for keeper in list(self._keepers.values()):
            keeper.tick()
        if self._caretaker is not None:
            self._caretaker.look()
        self._report()

    def _report(self) -> None:
        with self._lock:
            writer = self._writer
            if writer is not None and not writer.closed:
                for what, count in tally.news():
                    writer.tell(SdkWarning(text(what), count), scope=self._scope(None))

    @guarded("take part in the run of a process")
    def join(self, run: str, name: str, group: str) -> None:
        """A process of the command has begun that run."""
        with self._lock:
            if self._writer is None or not run or run == self._identity.run:
                return
            self._writer.tell(Joined(run), scope=self._scope(None))
            self._identity = self._identity._replace(run=RunId(run), name=name or run)
            self._group = group or self._group
            self._begin_run()
            told, self._told = self._told or (), None
            for rank, console, mono_ns in told:
                self._writer.tell(console, scope=self._scope(rank), mono_ns=mono_ns)

    # ── the end ───────────────────────────────────────────────────────────────────────────────

    @guarded("record how the command ended")
    def end(self, ended: Ended) -> None:
        for keeper in list(self._keepers.values()):
            keeper.close()
        with self._lock:
            writer = self._writer
            if writer is None:
                return
            self._report()
            end = RunEnd(
                ended.status,
                explicit=True,
                reason=ended.reason,
                exit_code=ended.code,
                signal=ended.signal,
                max_rss_bytes=ended.max_rss_bytes,
            )
            writer.tell(end, scope=self._scope(None))
            self._writer = None
        writer.close()
        farewell.expect(writer.directory, writer.position, ask_for_agent=True)

    def say_farewell(self) -> None:
        """Wait until a head has the records, as a program with a run does at its end."""
        farewell.wait()


def _identity(environment: Mapping[str, str]) -> Identity:
    return identify(None, environment=environment, modules={})
