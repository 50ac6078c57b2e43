"""The errand `profile`: traces of programs on this node, all from the same moment on.

The body: `session`; `start_ns`, of this host's clock; `duration_ms`, or `steps` and `at_step`;
`run` and `ranks`, or `plain` for programs that do not use Runwatch, with `pids` and `ports`
(profiler ports, beside the usual ones); `path`, where profiles go.  With `preflight` it only tells
for each program which way leads to it, or why none does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypeVar

from runwatch.agent.collectors.base import Target
from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.kineto import KinetoDaemon
from runwatch.agent.errands.kineto_way import KinetoWay
from runwatch.agent.errands.profile_ways import (
    USUAL_PORTS,
    Look,
    Outcome,
    PortWay,
    SdkWay,
    Subject,
    Way,
    Wish,
)
from runwatch.agent.listening import owners_of
from runwatch.agent.neighbours import why_not_theirs
from runwatch.capture import process
from runwatch.capture.tracing.session_files import as_host, checked_name
from runwatch.clock import Clock
from runwatch.errors import UsageError
from runwatch.journal.liveness import start_ticks
from runwatch.record import Command

MAX_MS: Final = 600_000
MAX_AHEAD_NS: Final = 600 * 10**9
MAX_TREE: Final = 256
MAX_PROCESSES: Final = 256
MAX_WORDS: Final = 600
UNATTRIBUTED: Final = "unattributed"
LOST: Final[Mapping[str, Any]] = {
    "pid": 0, "rank": -1, "way": "", "state": "failed", "why": "a fault in the agent: see its log",
}  # fmt: skip
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A command's body, checked."""

    wish: Wish
    run: str = ""
    """Whose processes; "": every run's."""
    ranks: frozenset[int] | None = None
    pids: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    plain: bool = False
    """Programs that are of no run."""
    preflight: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any], command: str, now_ns: int) -> Request:
        """Raises UsageError."""
        preflight = bool(body.get("preflight"))
        ranks = body.get("ranks")
        return cls(
            Wish("preflight") if preflight else _wish(body, command, now_ns),
            run=str(body.get("run") or ""),
            ranks=None if ranks is None else frozenset(_numbers(ranks, "ranks")),
            pids=_numbers(body.get("pids") or (), "pids"),
            ports=_numbers(body.get("ports") or (), "ports"),
            plain=bool(body.get("plain")),
            preflight=preflight,
        )


def _wish(body: Mapping[str, Any], command: str, now_ns: int) -> Wish:
    steps, duration = _number(body, "steps"), _number(body, "duration_ms")
    if not steps and not duration:
        raise UsageError("a capture needs duration_ms or steps")
    if duration is not None and not 0 < duration <= MAX_MS:
        raise UsageError(f"duration_ms {duration}: 1 to {MAX_MS}")
    start_ns = _number(body, "start_ns") or now_ns
    if start_ns > now_ns + MAX_AHEAD_NS:
        raise UsageError(f"start_ns {start_ns}: more than {MAX_AHEAD_NS // 10**9} s ahead")
    return Wish(
        session=checked_name(body.get("session")),
        command=command,
        start_ns=start_ns,
        duration_ms=duration,
        steps=steps,
        at_step=_number(body, "at_step"),
        path=str(body.get("path") or ""),
    )


def _number(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise UsageError(f"{name} {str(value)[:80]!r}: not a whole number")
    return value


def _numbers(values: object, name: str) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)):
        raise UsageError(f"{name} {str(values)[:80]!r}: not a list")
    return tuple(_number({name: value}, name) or 0 for value in values)


class ProfileErrand:
    """Called with a command, like any errand."""

    def __init__(self, daemon: KinetoDaemon) -> None:
        self._daemon = daemon

    def __call__(self, command: Command, context: Context) -> Mapping[str, Any]:
        try:
            request = Request.of(command.body, command.id, context.clock.wall_ns())
            subjects = self._subjects(request, context)
        except UsageError as error:
            return {"state": "failed", "why": str(error), "processes": []}
        ways = (SdkWay(context), PortWay(context), KinetoWay(context, self._daemon))
        act: Callable[..., Mapping[str, Any]] = partial(capture, wish=request.wish)
        if request.preflight:
            act = partial(preflight, clock=context.clock)
        begun_ns = context.clock.mono_ns()
        processes = together([partial(act, subject, ways) for subject in subjects], LOST)
        took_ms = (context.clock.mono_ns() - begun_ns) // 1_000_000
        return {"took_ms": took_ms, **_summary(processes, request)}

    # ── who ───────────────────────────────────────────────────────────────────────────────────

    def _subjects(self, request: Request, context: Context) -> list[Subject]:
        targets = list(context.targets())
        if not request.plain:
            return _of_runs(request, targets, context)[:MAX_PROCESSES]
        # Who is named by its number may use Runwatch all the same.
        named = _of_runs(request, targets, context) if request.pids else []
        known = {subject.pid for subject in named}
        return (named + self._plain(request, targets, context, known))[:MAX_PROCESSES]

    def _plain(
        self, request: Request, targets: Sequence[Target], context: Context, known: set[int]
    ) -> list[Subject]:
        """Programs that are named, or else all that can be reached."""
        run = checked_name(request.run or as_host(f"{UNATTRIBUTED}-{context.host}"), "run")
        trees = {pid: tuple(tree_of(pid)) for pid in request.pids}
        by_port = {port: owners_of(port) for port in request.ports}
        trees |= {pids[0]: (pids[0],) for pids in by_port.values() if pids and pids[0] not in trees}
        if not request.pids and not request.ports:
            trees = {pid: (pid,) for pid in self._reachable(targets)}
        found = sorted(pid for pid in trees if pid not in known)
        hidden = [port for port, pids in by_port.items() if not pids]
        made = [
            Subject(
                pid,
                number,
                run,
                context.host,
                start_ticks=start_ticks(pid),
                tree=trees[pid],
                ports=request.ports,
            )
            for number, pid in enumerate(found)
        ]
        return made + [
            Subject(0, number, run, context.host, ports=(port,))
            for number, port in enumerate(hidden, len(made))
        ]

    def _reachable(self, targets: Iterable[Target]) -> list[int]:
        of_runs = {pid for target in targets for pid in tree_of(target.pid)}
        asking = [client.pid for client in self._daemon.clients()]
        serving = [pid for port in USUAL_PORTS for pid in owners_of(port)]
        return [pid for pid in (*asking, *serving) if pid not in of_runs]


def _of_runs(request: Request, targets: Sequence[Target], context: Context) -> list[Subject]:
    lowest: dict[str, int] = {}
    for target in targets:
        lowest[target.run] = min(target.rank, lowest.get(target.run, target.rank))
    known = {target.pid: target for target in targets}
    wanted = [
        target
        for target in targets
        if not _is_worker(target, known)
        and (not request.run or target.run == request.run)
        and (request.ranks is None or target.rank in request.ranks)
        and (not request.pids or target.pid in request.pids)
    ]
    return [
        Subject(
            target.pid,
            rank=target.rank,
            run=target.run,
            host=target.host or context.host,
            scope=target.scope,
            journal=context.journal(target),
            start_ticks=target.start_ticks,
            # A rank that was forked from another is asked itself.
            tree=tuple(
                pid
                for pid in tree_of(target.pid)
                if pid == target.pid or pid not in known and _is_theirs(pid, target)
            ),
            ports=request.ports,
            first=target.rank == lowest[target.run],
        )
        for target in sorted(wanted, key=lambda target: target.rank)
    ]


def _is_theirs(pid: int, target: Target) -> bool:
    """What a program started may run with another's rights, and is then not its user's to see."""
    return target.uid is None or not why_not_theirs(pid, target.uid)


def _is_worker(target: Target, known: Mapping[int, Target]) -> bool:
    """A data loader's, with a journal of its own: its rank is captured, not itself."""
    parent = known.get(int(process.read_status(target.pid).get("PPid") or 0))
    return parent is not None and (parent.run, parent.rank) == (target.run, target.rank)


def tree_of(pid: int) -> list[int]:
    """Itself, and those it started."""
    found = [pid]
    for each in found:
        if len(found) < MAX_TREE:
            found += [child for child in process.children(each) if child not in found]
    return found


# ── what ──────────────────────────────────────────────────────────────────────────────────────


def way_to(subject: Subject, ways: Sequence[Way]) -> tuple[Way | None, Look]:
    """The first that leads to it; else none, and why each does not."""
    words: list[str] = []
    known: tuple[str, ...] = ()
    for way in ways:
        look = way.look(subject)
        if not look.why:
            return way, look
        if not (way.name == "sdk" and subject.is_plain):
            words.append(look.why)
        known = known or look.frameworks
        if look.final:
            words = [look.why]
            break
    return None, Look("; ".join(words), frameworks=known)


def preflight(subject: Subject, ways: Sequence[Way], clock: Clock) -> Mapping[str, Any]:
    begun_ns = clock.mono_ns()
    way, look = way_to(subject, ways)
    looked = (clock.mono_ns() - begun_ns) / 1e9  # as long again, when it is meant
    return {
        **_who(subject),
        "way": way.name if way else "",
        "why": (look.why or look.warning)[:MAX_WORDS],
        "frameworks": list(look.frameworks),
        "address": look.address,
        "ready_ms": round((look.ready_seconds + looked) * 1e3),
    }


def capture(subject: Subject, ways: Sequence[Way], wish: Wish) -> Mapping[str, Any]:
    way, look = way_to(subject, ways)
    outcome = way.capture(subject, wish, look) if way else Outcome("", why=look.why)
    said = asdict(outcome)
    del said["problems"]
    return {**_who(subject), **said, "why": outcome.why[:MAX_WORDS], "files": list(outcome.files)}


def _who(subject: Subject) -> dict[str, Any]:
    return {
        "pid": subject.pid, "rank": subject.rank, "run": subject.run, "host": subject.host,
    }  # fmt: skip


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


def _summary(processes: Sequence[Mapping[str, Any]], request: Request) -> Mapping[str, Any]:
    said: dict[str, Any] = {
        "session": request.wish.session,
        "run": request.run,
        "start_ns": request.wish.start_ns,
        "preflight": request.preflight,
        "processes": list(processes),
    }
    captured = [each for each in processes if each.get("state") == "done"]
    if not processes:
        return {**said, "state": "failed", "why": _nobody(request)}
    if request.preflight or captured:
        return said
    whys = dict.fromkeys(str(each["why"]) for each in processes)
    return {**said, "state": "failed", "why": "; ".join(whys)[:2000]}


def _nobody(request: Request) -> str:
    if request.plain:
        return (
            "no program here asks for profiles (KINETO_USE_DAEMON=1) or serves a profiler port "
            f"({', '.join(map(str, (*USUAL_PORTS, *request.ports)))})"
        )
    return "no such process of the run lives here"
