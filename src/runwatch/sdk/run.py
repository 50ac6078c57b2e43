"""One process's part in a run."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from runwatch.clock import Clock, system_clock
from runwatch.journal.liveness import this_host
from runwatch.journal.writer import JournalWriter
from runwatch.record import NO_STEP, Role, RunId, RunScope
from runwatch.record.life import Config, Fork, LogText, RunEnd, SdkWarning
from runwatch.sdk import collect, farewell, launch, launched
from runwatch.sdk.console import tracebacks
from runwatch.sdk.console.unheard import Unheard
from runwatch.sdk.ending import EndWatch, cleaned, describe, when_worker_ends
from runwatch.sdk.faults import mind_faults, unwatch_faults, watch_faults
from runwatch.sdk.guard import guarded, tally, text_of
from runwatch.sdk.hooks.install import hooks_of
from runwatch.sdk.identity import Identity
from runwatch.sdk.place import Shown, open_journal
from runwatch.sdk.step import (
    DATA_WAIT_SECONDS,
    DEVICE_LAG_SECONDS,
    STEP_SECONDS,
)
from runwatch.sdk.stepping import Stepping
from runwatch.sdk.values import masking
from runwatch.sdk.values.config import ConfigDict
from runwatch.sdk.values.numbers import (
    PerDevice,
    Reading,
    Text,
    Unrecordable,
)
from runwatch.sdk.values.pending import Collector, Logged, is_pending
from runwatch.sdk.values.plain import mapping, plain, text
from runwatch.sdk.values.units import UNITS

if TYPE_CHECKING:
    from runwatch.sdk.control import Control
    from runwatch.sdk.profiling.profiling import Profiler, ProgramProfile

STATUSES: Final = ("completed", "failed", "killed")
DRAIN_SECONDS: Final = 0.5
COLLECT_SECONDS: Final = 0.2
CALM_ROUNDS: Final = 10
MAX_PLANS: Final = 1_000
_UNITS: Final[Mapping[str, str]] = {
    **UNITS,
    STEP_SECONDS: "s",
    DATA_WAIT_SECONDS: "s",
    DEVICE_LAG_SECONDS: "s",
}


class Run(Stepping, Shown):
    """Made by `runwatch.init`.  Nothing here raises into the program or waits for anything.

    There is one run object per process: a copy, however deep, is the same object.  It can be
    pickled, for example with a dataset for a data loader's workers.  Unpickled, it is that
    process's own run with the same id, if there is one, now or later.  Until then everything can be
    called and nothing is recorded; that is counted but not logged (`sdk/elsewhere.py`).
    """

    _profiler: Profiler | None = None
    _by_hooks = False
    """Hooks began it, and the program has not asked for it yet."""
    _left_for: RunId | None = None
    """The run that this process's part went over to."""

    def __init__(
        self,
        identity: Identity,
        *,
        group: str = "",
        record_on_all_hosts: bool = False,
        total_steps: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__()
        self.id = identity.run
        self.name = identity.name
        group = group or os.environ.get("RUNWATCH_GROUP", "")
        self.group = text(group if isinstance(group, str) else text_of(group))[:200]
        self.rank = identity.rank
        self.local_rank = identity.local_rank
        self.world_size = identity.world_size
        self.status = "running"
        """running, completed, failed or killed, as far as this process knows."""
        self.config = ConfigDict()
        """The program's own settings; changes are recorded."""
        self.total_steps = total_steps
        """How many steps there are in all, if the program said so."""
        self._exhausted: bool | None = None
        """Whether the loop over `steps` reached its end; None: there was no such loop."""
        self._identity = identity
        self._listening = identity.rank == 0 or record_on_all_hosts
        self._directory = directory
        self._clock = clock
        self._pid, self._session = os.getpid(), os.getsid(0)
        self._lock = threading.RLock()
        self._opening = self._homeless = self._finishing = self._finished = False
        self._collected: tuple[str, ...] | None = None
        self._collecting = threading.Lock()
        self._caretaker: launch.Caretaker | None = None
        self._modules = self._calm = 0
        self._parent_journal = ""
        self._span_ids: dict[str, int] = {}
        self._own_ids: dict[str, int] = {}
        self._collector = Collector(self._write, clock)
        self._end_watch = EndWatch(self._on_exception, self._on_exit, self._on_thread)
        self._told_error = 0
        self._console = Unheard()
        self._hooks = hooks_of(self)
        self._control: Control | None = None

    def __repr__(self) -> str:
        return f"<runwatch run {self.id} rank {self.rank}/{self.world_size} {self.status}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        from runwatch.sdk.elsewhere import public_part, unpickled

        return unpickled, (self._identity, public_part(self))

    # ── what a program calls ──────────────────────────────────────────────────────────────────

    def profile(
        self,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        session: str | None = None,
        path: str | os.PathLike[str] | None = None,
        frameworks: Sequence[str] = (),
        **options: bool,
    ) -> ProgramProfile:
        """`with run.profile(steps=3):`, `@run.profile()`, or its `start()` and `stop()`.

        Traces what the imported frameworks do, until the block ends, or earlier: after this many
        whole steps or seconds.  Processes with the same `session` share a folder of files.
        """
        from runwatch.sdk.profiling.profiling import profile

        return profile(
            self, steps, seconds, session, path=path, frameworks=frameworks, options=options
        )

    @property
    def _profile_path(self) -> str | None:
        """Where this run's profiles go, if not into the Runwatch directory."""
        return None

    def _why_no_profile(self) -> str:
        """Why this run takes no profiles; "" if it does."""
        return ""

    @property
    def _profiles(self) -> Profiler:
        from runwatch.sdk.profiling.profiling import Profiler

        with self._lock:
            if self._profiler is None:
                self._profiler = Profiler(self)
            return self._profiler

    @guarded("finish")
    def finish(
        self, status: str | None = None, reason: str | None = None, exit_code: int | None = None
    ) -> None:
        """End the run's part in this process.  Takes less than a second, unless a profile is still
        being written.  A second call does nothing.  An exit code other than 0 is a failure.
        """
        if isinstance(status, int) and exit_code is None:
            status, exit_code = None, status  # wandb's finish(1)
        if exit_code:
            status, reason = status or "failed", reason or f"exit code {text_of(exit_code)[:20]}"
        if status is not None and status not in STATUSES:
            tally.count(
                "finish status", f"status {text_of(status)} is not one of {', '.join(STATUSES)}"
            )
            reason, status = reason or text_of(status), None
        self._end(RunEnd(status or "completed", True, True, reason))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tracebacks.tell_once(self, error)
        status, exception = ("completed", "") if error is None else describe(error)
        self._end(RunEnd(status, True, self._is_done(), exception=exception))

    # ── beginning ─────────────────────────────────────────────────────────────────────────────

    @guarded("start a run")
    def _start(self, config: Mapping[str, Any]) -> None:
        dict.update(self.config, config)
        self.config._listen(self._record_config)
        writer = self._open()
        self._end_watch.start()
        if writer is None:
            return
        watch_faults(writer.directory)
        self._tell_start(writer)
        if self.config:
            self._record_config()
        self._hooks.serve(self)
        self._report()
        launched.tell_run(self._identity.run, self._identity.name, self.group)
        self._ask_for_agent()
        self._say_where()

    def _tell_start(self, writer: JournalWriter) -> None:
        start = collect.run_start(self._identity, self.group)
        body = {**start.body(), **mapping(self._details())}
        writer.event(start.KIND, body, scope=self._scope, mono_ns=self._hooks.since_ns)

    def _details(self) -> Mapping[str, Any]:
        """More fields of `run_start`, for readers outside the core: `compat/` has some."""
        return {}

    def _open(self) -> JournalWriter | None:
        """This process's journal.  A forked child opens its own at its first record."""
        if self._writer is not None or self._homeless or self._finished:
            return self._writer
        with self._lock:
            if self._writer is not None or self._opening:
                return self._writer  # a signal handler that logs while we open it gets None
            self._opening = True
            try:
                return self._open_now()
            finally:
                self._opening = False
                self._homeless = self._writer is None  # do not try again at every record

    def _open_now(self) -> JournalWriter | None:
        role: Role = "child" if self._is_child else "process"
        since_ns = self._hooks.since_ns
        writer = open_journal(
            self._directory, self._keep, role=role, since_ns=since_ns, clock=self._clock
        )
        if writer is None:
            return None
        self._scope = writer.scope(self._part)
        self._point, self._points = writer.point, writer.points
        self._writer = writer
        self._directory = writer.directory.parents[1]  # a child's journal belongs there too
        if self._is_child:
            fork = Fork(self._parent_journal, self._pid, self._is_detached)
            writer.tell(fork, scope=self._scope)
            when_worker_ends(self._close_child)
        return writer

    @property
    def _part(self) -> RunScope:
        who = self._identity
        return RunScope(0, who.run, who.name, who.rank, who.world_size, who.attempt_key, self.group)

    # ── recording ─────────────────────────────────────────────────────────────────────────────

    def _listens(self, all_hosts: bool) -> bool:
        return self._listening or all_hosts

    def _accept(self, logged: Logged) -> None:
        if self._finished:
            tally.count("after finish", f"run {self.name!r} has finished: nothing more is recorded")
            return
        if not self._listens(logged.all_hosts):
            return
        if logged.by_record and not self._records(logged.name):
            return
        if is_pending(logged.reading):
            self._collector.add(logged)
        else:
            self._write(logged)

    def _records(self, name: str, *, quiet: bool = False) -> bool:
        """Whether `metrics.record` may record a metric of this name; a refusal is counted."""
        return True

    def _write(self, logged: Logged) -> None:
        writer = self._open()
        reading: Reading = logged.reading
        if isinstance(reading, Unrecordable):
            tally.count(reading.what, f"{logged.name}: {reading.message}")
            return
        if writer is None:
            tally.count("no journal")
            return
        moment = logged.mono_ns or None
        if logged.there_ns and logged.step != NO_STEP:
            lag = (logged.there_ns - logged.mono_ns) / 1e9
            writer.points((self._own_series(DEVICE_LAG_SECONDS),), (lag,), logged.step, moment)
        if isinstance(reading, Text):
            body = masking.named_values(LogText(logged.name, plain(reading.value)).body())
            writer.event(LogText.KIND, body, logged.step, self._scope, moment)
        elif isinstance(reading, PerDevice):
            devices = ["", *(str(i) for i in range(len(reading.values)))]
            ids = tuple(self._series_id(writer, logged, device) for device in devices)
            writer.points(ids, (reading.mean, *reading.values), logged.step, moment)
        elif isinstance(reading, float):
            series = self._series_id(writer, logged, "")
            if moment is None:
                writer.point(series, reading, logged.step)
            else:
                writer.points((series,), (reading,), logged.step, moment)

    def _series_id(self, writer: JournalWriter, logged: Logged, device: str) -> int:
        name = logged.name
        if not device and not logged.labels and (existing := self._series.get(name)) is not None:
            return existing
        unit = _UNITS.get(name, "")
        labels = logged.labels
        number = writer.series(name, scope=self._scope, unit=unit, device=device, labels=labels)
        if not device and not labels and self._listening:
            self._series[name] = number
            if self._records(name, quiet=True):
                self._recordable[name] = number
        return number

    def _remember(self, names: Mapping[str, Any]) -> None:
        numbers = [self._series.get(name) for name in names]
        writer = self._writer
        if writer is None or len(numbers) < 2 or None in numbers:
            return
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        ids = tuple(number for number in numbers if number is not None)
        self._plans[tuple(names)] = writer.recorder(ids)

    def _own_series(self, name: str) -> int:
        """The series of our own metrics, which every rank records."""
        number = self._own_ids.get(name)
        if number is None and self._writer is not None:
            number = self._writer.series(name, scope=self._scope, unit=_UNITS.get(name, ""))
            self._own_ids[name] = number
        return number or 0

    def _span_id(self, name: str) -> int:
        number = self._span_ids.get(name)
        if number is None and self._writer is not None:
            number = self._writer.span_name(name, scope=self._scope)
            self._span_ids[name] = number
        return number or 0

    @guarded("record the config")
    def _record_config(self) -> None:
        if not self._finished:
            self._config_event("user", mapping(self.config))

    def _config_event(self, part: str, values: Mapping[str, Any]) -> None:
        writer = self._open()
        if writer is not None:
            writer.tell(Config(part, masking.named_values(values)), scope=self._scope)

    # ── in the keeper's thread ────────────────────────────────────────────────────────────────

    @guarded("look after the run")
    def _keep(self) -> None:
        if self._writer is None:
            return
        if not self._is_child and self._is_worth_a_look():
            self._hooks.look()
            self._collect()
            self._listen()
        if self._caretaker is not None and not self._is_child:
            self._caretaker.look()
        self._console.tick()
        self._mind_descriptors()
        self._report()

    def _mind_descriptors(self) -> None:
        """The program may have closed our descriptors, as code that makes a daemon does."""
        mind_faults()
        if self._control is not None and self._control.is_lost() and not self._is_child:
            self._control.stop()
            self._control = None
            self._listen()

    def _is_worth_a_look(self) -> bool:
        """If nothing was imported for a while, there is hardly anything new to find."""
        modules, before = len(sys.modules), self._modules
        self._modules, self._calm = modules, self._calm + 1 if modules == before else 0
        return self._calm < CALM_ROUNDS or self._calm % CALM_ROUNDS == 0

    def _collect(self) -> None:
        """Record the machine and the software; again when another framework was imported."""
        # The end of the run waits for the keeper to have recorded this, but not for a file system
        # that hangs.
        if not self._collecting.acquire(timeout=COLLECT_SECONDS):
            return
        try:
            frameworks = collect.imported()
            if frameworks == self._collected:
                return
            if self._collected is None:
                self._config_event("system", collect.system())
            self._config_event("software", mapping(collect.software()))
            self._collected = frameworks
        finally:
            self._collecting.release()

    def _report(self) -> None:
        writer = self._writer
        if writer is None or writer.closed:
            return
        for what, count in tally.news():
            writer.tell(SdkWarning(text(what), count), scope=self._scope)

    def _listen(self) -> None:
        """From now on answer questions at the control socket."""
        if self._control is None and self._writer is not None and not self._finished:
            from runwatch.sdk.control import Control  # sockets are not needed at first

            self._control = Control(self._writer.directory)
            self._control.serve("profile", lambda body: self._profiles.answer(body))
            self._control.start()

    @guarded("ask for an agent")
    def _ask_for_agent(self) -> None:
        """In `init`, so that no child of ours is left when it returns; later in the keeper."""
        if self._writer is None or not launch.wanted():
            return
        root, host, first = self._writer.directory.parents[1], this_host(), self.local_rank == 0
        caretaker = launch.Caretaker(root, host, first=first, clock=self._clock)
        caretaker.look()
        self._caretaker = caretaker

    # ── the end ───────────────────────────────────────────────────────────────────────────────

    @property
    def _is_child(self) -> bool:
        return os.getpid() != self._pid

    @property
    def _is_detached(self) -> bool:
        """A child with its own session: the program has put itself into the background."""
        return self._is_child and os.getsid(0) != self._session

    @guarded("note an exception")
    def _on_exception(self, error: BaseException) -> None:
        """Uncaught: recorded at once, since what follows (other threads, exit) may hang."""
        tracebacks.tell_once(self, error)
        if (not self._is_child or self._is_detached) and not self._finished:
            status, exception = describe(error)
            self._record_end(RunEnd(status, exception=exception))

    def _on_thread(self, error: BaseException, thread: str) -> None:
        tracebacks.tell(self, error, thread)  # and the program goes on

    def _on_exit(self, error: BaseException | None) -> None:
        if not self._is_child or self._is_detached:
            tracebacks.tell_once(self, error)
        status, exception = ("completed", "") if error is None else describe(error)
        by_hooks = self._by_hooks or None
        self._end(RunEnd(status, False, self._is_done(), exception=exception, by_hooks=by_hooks))
        farewell.wait()

    def _is_done(self) -> bool | None:
        """Whether all work is done; None: nobody said how much there is."""
        if self.total_steps is not None:
            return self._step >= self.total_steps - 1
        return self._exhausted

    @guarded("finish")
    def _end(self, end: RunEnd) -> None:
        if self._finished or self._finishing:
            return
        if self._is_child:
            if self._is_detached and self._writer is not None:
                self._record_end(end)
            self._close_child()
            return
        self._finishing = True
        try:
            self._hooks.remove(self)
            if self._profiler is not None:
                self._profiler.finish()
            self._collector.finish(DRAIN_SECONDS)
            if self._open() is not None:
                self._collect()
            self._record_end(end)
            self._console.stop()
            self._shut()
        finally:
            self._finishing = False

    def _record_end(self, end: RunEnd) -> None:
        if self.status != "running":
            return
        self.status = end.status
        writer = self._open()
        if writer is not None:
            self._report()
            writer.tell(cleaned(end), scope=self._scope)

    def _shut(self) -> None:
        self._finished = True
        self._forget_ids()
        self._end_watch.stop()
        writer = self._writer
        if writer is not None:
            self._report()
            unwatch_faults(writer.directory)
            writer.close()  # also ends its keeper, which may just have opened the socket
            ask = self.local_rank == 0
            farewell.expect(writer.directory, writer.position, ask_for_agent=ask)
            self._writer = None
        if self._control is not None:
            self._control.stop()

    # ── fork ──────────────────────────────────────────────────────────────────────────────────

    @guarded("release the parent's journal")
    def _after_fork(self) -> None:
        """In the child: the journal is the parent's, the run is shared, its end is not ours."""
        writer, self._writer = self._writer, None
        self._forget_ids()
        self._span_ids, self._own_ids = {}, {}
        self._profiler = self._at_step = None
        self._lock = threading.RLock()
        self._opening = False
        self._hooks.forget()
        self._collector.forget()
        self._console.forget()
        if writer is not None:
            self._parent_journal = writer.origin.journal
            writer.abandon()

    @guarded("close a child's journal")
    def _close_child(self) -> None:
        tracebacks.tell_once(self, sys.exc_info()[1])
        self._console.flush()
        self._report()
        writer, self._writer = self._writer, None
        self._forget_ids()
        if writer is not None:
            writer.close()
