"""The errand `profile`: profiles of programs on this node, all from the same moment on.

It finds the targets of a `ProfileCommand` here, and the way to each (`profile_ways.py`).  With
`preflight` it only tells for each target which way leads to it, or why none does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from runwatch.agent.collectors.base import Target
from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.kineto import KinetoDaemon
from runwatch.agent.errands.kineto_way import KinetoWay
from runwatch.agent.errands.port_way import PortWay
from runwatch.agent.errands.profile_ways import (
    LocalTarget,
    Recording,
    SdkWay,
    Way,
    WayPreflight,
)
from runwatch.agent.listening import owners_of
from runwatch.agent.neighbours import why_not_theirs
from runwatch.capture.process import children, read_status
from runwatch.capture.tracing.profile_files import as_host
from runwatch.clock import Clock
from runwatch.errors import UsageError
from runwatch.journal.liveness import start_ticks
from runwatch.record import Command
from runwatch.record.capture_limits import PROFILER_PORTS
from runwatch.record.captures import DONE, FAILED, checked_name
from runwatch.record.commands import (
    CaptureResult,
    PreflightResult,
    ProfileCommand,
    ProfileResult,
    TargetPreflight,
    TargetProfile,
)
from runwatch.record.control import ProfileStart
from runwatch.record.message import read_strictly

MOST_IN_TREE: Final = 256
MOST_TARGETS: Final = 256
LONGEST_WHY_OF_TARGET: Final = 600
LONGEST_WHY: Final = 2_000
UNATTRIBUTED: Final = "unattributed"
_FAULT: Final = "a fault in the agent: see its log"
LOST: Final = TargetProfile(rank=-1, state=FAILED, why=_FAULT)
LOST_PREFLIGHT: Final = TargetPreflight(rank=-1, why=_FAULT)
T = TypeVar("T")


class ProfileErrand:
    """Called with a command, like any errand."""

    def __init__(self, daemon: KinetoDaemon) -> None:
        self._daemon = daemon

    def __call__(self, command: Command, context: Context) -> ProfileResult:
        begun_ns = context.clock.mono_ns()
        try:
            wanted = read_strictly(ProfileCommand, command.body)
            carry_out = self._preflight if wanted.preflight else self._capture
            result = carry_out(wanted, command.id, context)
        except UsageError as error:
            return CaptureResult(state=FAILED, why=str(error))
        return replace(result, took_ms=(context.clock.mono_ns() - begun_ns) // 1_000_000)

    def _ways(self, context: Context) -> tuple[Way, ...]:
        return SdkWay(context), PortWay(context), KinetoWay(context, self._daemon)

    def _preflight(self, wanted: ProfileCommand, id: str, context: Context) -> ProfileResult:
        ways = self._ways(context)
        acts = [
            partial(preflight, target, ways, context.clock)
            for target in self._targets(wanted, context)
        ]
        targets = tuple(together(acts, LOST_PREFLIGHT))
        result = PreflightResult(run=wanted.run, preflight=True, processes=targets)
        return result if targets else replace(result, state=FAILED, why=_nobody(wanted))

    def _capture(self, wanted: ProfileCommand, id: str, context: Context) -> ProfileResult:
        request = request_of(wanted, id, context.clock.wall_ns())
        ways = self._ways(context)
        acts = [
            partial(capture, target, ways, request) for target in self._targets(wanted, context)
        ]
        targets = tuple(together(acts, LOST))
        result = CaptureResult(
            session=request.session, run=wanted.run, start_ns=request.start_ns, processes=targets
        )
        if any(target.state == DONE for target in targets):
            return result
        whys = dict.fromkeys(target.why for target in targets)
        why = "; ".join(whys)[:LONGEST_WHY] if targets else _nobody(wanted)
        return replace(result, state=FAILED, why=why)

    # ── targets ───────────────────────────────────────────────────────────────────────────────

    def _targets(self, wanted: ProfileCommand, context: Context) -> list[LocalTarget]:
        processes = list(context.targets())
        if not wanted.plain:
            return _of_runs(wanted, processes, context)[:MOST_TARGETS]
        # A process that is named by its number may use Runwatch all the same.
        named = _of_runs(wanted, processes, context) if wanted.pids else []
        known = {target.pid for target in named}
        return (named + self._plain(wanted, processes, context, known))[:MOST_TARGETS]

    def _plain(
        self,
        wanted: ProfileCommand,
        processes: Sequence[Target],
        context: Context,
        known: set[int],
    ) -> list[LocalTarget]:
        """Programs that are named, or else all that can be reached."""
        run = checked_name(wanted.run or as_host(f"{UNATTRIBUTED}-{context.host}"), "run")
        there = [pid for pid in wanted.pids if start_ticks(pid) is not None]
        trees = {pid: tuple(tree_of(pid)) for pid in there}
        by_port = {port: owners_of(port) for port in wanted.ports}
        trees |= {pids[0]: (pids[0],) for pids in by_port.values() if pids and pids[0] not in trees}
        if not wanted.pids and not wanted.ports:
            trees = {pid: (pid,) for pid in self._reachable(processes)}
        pids = sorted(pid for pid in trees if pid not in known)
        seen = [
            LocalTarget(
                pid,
                number,
                run,
                context.host,
                start_ticks=start_ticks(pid),
                tree=trees[pid],
                ports=wanted.ports,
            )
            for number, pid in enumerate(pids)
        ]
        hidden = [port for port, owners in by_port.items() if not owners]
        return seen + [
            LocalTarget(0, number, run, context.host, ports=(port,))
            for number, port in enumerate(hidden, len(seen))
        ]

    def _reachable(self, processes: Iterable[Target]) -> list[int]:
        of_runs = {pid for process in processes for pid in tree_of(process.pid)}
        asking = [client.pid for client in self._daemon.clients()]
        serving = [pid for port in PROFILER_PORTS for pid in owners_of(port)]
        return [pid for pid in (*asking, *serving) if pid not in of_runs]


def request_of(wanted: ProfileCommand, id: str, now_ns: int) -> ProfileStart:
    """What each target is asked for.  Raises UsageError."""
    request = ProfileStart(
        session=checked_name(wanted.session),
        command=id,
        start_ns=wanted.start_ns or now_ns,
        duration_ms=wanted.duration_ms,
        steps=wanted.steps,
        at_step=wanted.at_step,
        path=wanted.path,
    )
    request.check(now_ns)
    return request


def _of_runs(
    wanted: ProfileCommand, processes: Sequence[Target], context: Context
) -> list[LocalTarget]:
    lowest: dict[str, int] = {}
    for process in processes:
        lowest[process.run] = min(process.rank, lowest.get(process.run, process.rank))
    by_pid = {process.pid: process for process in processes}
    chosen = [
        process
        for process in processes
        if not _is_worker(process, by_pid)
        and (not wanted.run or process.run == wanted.run)
        and (wanted.ranks is None or process.rank in wanted.ranks)
        and (not wanted.pids or process.pid in wanted.pids)
    ]
    return [
        LocalTarget(
            process.pid,
            rank=process.rank,
            run=process.run,
            host=process.host or context.host,
            scope=process.scope,
            journal=context.journal(process),
            start_ticks=process.start_ticks,
            # A rank that was forked from another is asked itself.
            tree=tuple(
                pid
                for pid in tree_of(process.pid)
                if pid == process.pid or pid not in by_pid and _is_theirs(pid, process)
            ),
            ports=wanted.ports,
            first=process.rank == lowest[process.run],
        )
        for process in sorted(chosen, key=lambda process: process.rank)
    ]


def _is_theirs(pid: int, parent: Target) -> bool:
    """What a program started may run with another's rights, and is then not its user's to see."""
    return parent.uid is None or not why_not_theirs(pid, parent.uid)


def _is_worker(target: Target, by_pid: Mapping[int, Target]) -> bool:
    """A data loader's, with a journal of its own: its rank is captured, not itself."""
    parent = by_pid.get(int(read_status(target.pid).get("PPid") or 0))
    return parent is not None and (parent.run, parent.rank) == (target.run, target.rank)


def tree_of(pid: int) -> list[int]:
    """Itself, and those it started."""
    tree = [pid]
    for each in tree:
        if len(tree) < MOST_IN_TREE:
            tree += [child for child in children(each) if child not in tree]
    return tree


# ── one target ────────────────────────────────────────────────────────────────────────────────


def way_to(target: LocalTarget, ways: Sequence[Way]) -> tuple[Way | None, WayPreflight]:
    """The first that leads to it; else none, and why each does not."""
    whys: list[str] = []
    frameworks: tuple[str, ...] = ()
    for way in ways:
        checked = way.preflight(target)
        if not checked.why:
            return way, checked
        if not (way.name == SdkWay.name and target.is_plain):
            whys.append(checked.why)
        frameworks = frameworks or checked.frameworks
        if checked.final:
            whys = [checked.why]
            break
    return None, WayPreflight("; ".join(whys), frameworks=frameworks)


def preflight(target: LocalTarget, ways: Sequence[Way], clock: Clock) -> TargetPreflight:
    begun_ns = clock.mono_ns()
    way, checked = way_to(target, ways)
    took_seconds = (clock.mono_ns() - begun_ns) / 1e9  # the capture itself will take it again
    return TargetPreflight(
        host=target.host,
        rank=target.rank,
        pid=target.pid,
        run=target.run,
        way=way.name if way else "",
        why=(checked.why or checked.warning)[:LONGEST_WHY_OF_TARGET],
        frameworks=checked.frameworks,
        address=checked.address,
        ready_ms=round((checked.ready_seconds + took_seconds) * 1e3),
    )


def capture(target: LocalTarget, ways: Sequence[Way], request: ProfileStart) -> TargetProfile:
    way, checked = way_to(target, ways)
    recording = way.record(target, request, checked) if way else Recording("", why=checked.why)
    return TargetProfile(
        host=target.host,
        rank=target.rank,
        pid=target.pid,
        run=target.run,
        way=recording.way,
        state=recording.state,
        why=recording.why[:LONGEST_WHY_OF_TARGET],
        framework=recording.framework,
        files=tuple(recording.files),
        directory=recording.directory,
        bytes=recording.bytes,
        start_ns=recording.start_ns,
        end_ns=recording.end_ns,
    )


def together(acts: Sequence[Callable[[], T]], lost: T) -> list[T]:
    """All at the same time; `lost` for one that raised, which its thread tells in the log.

    Threads that do not keep an agent from ending, as a pool's would.
    """
    results = [lost] * len(acts)

    def act(number: int) -> None:
        results[number] = acts[number]()

    threads = [
        threading.Thread(target=act, args=(number,), name="runwatch-profile", daemon=True)
        for number in range(len(acts))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _nobody(wanted: ProfileCommand) -> str:
    if wanted.plain and wanted.pids:
        return f"no such process here: {', '.join(map(str, wanted.pids))}"
    if wanted.plain:
        return (
            "no program here asks for profiles (KINETO_USE_DAEMON=1) or serves a profiler port "
            f"({', '.join(map(str, (*PROFILER_PORTS, *wanted.ports)))})"
        )
    return (
        "this agent knows no such process of the run: "
        "it may have just begun, or this is a sidecar, which sees none but its own"
    )
