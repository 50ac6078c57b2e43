"""Captures: the object is asked of the head once, followed, and deleted when its time is over.

`Pending` is written before the head is asked, `Running` after it has answered.  Whoever begins
again in between asks the head again, by the session that is the object's: the head then answers
with the capture that it began the first time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import UsageError
from runwatch.k8s import names
from runwatch.k8s.api import Api
from runwatch.k8s.operator import asking, objects
from runwatch.k8s.operator.asking import Busy, Refused
from runwatch.k8s.operator.bounds import Bounds
from runwatch.k8s.operator.head import Head, HeadError
from runwatch.k8s.operator.objects import FAILED, OVER, PENDING, RUNNING, SUCCEEDED, Kind, Ref
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.kube import Thing, moment_ns, part, text, written
from runwatch.record.capture_limits import MAX_MS, MAX_STEPS

KIND: Final = Kind(names.API_VERSION, names.CAPTURES, "Capture")
FOLLOW_SECONDS: Final = 1.0
BUSY_SECONDS: Final = 3.0
FILES_SECONDS: Final = 120.0
"""How long files are waited for that agents bring."""
COMPLETE: Final = "Complete"


def session_of(thing: Thing) -> str:
    return f"capture-{objects.uid_of(thing)}"


def wanted_of(thing: Thing) -> tuple[str, Mapping[str, Any]]:
    """The run, and what the head is asked for.  Raises UsageError with the value.

    The API server has checked the object by its schema: by that of the version that is installed.
    """
    spec = part(thing, "spec")
    run, ranks = spec.get("run"), spec.get("ranks")
    seconds, steps = spec.get("durationSeconds"), spec.get("steps")
    if not isinstance(run, str) or not run.strip():
        raise UsageError(f"spec.run is {run!r}: the name or id of a run")
    wanted: dict[str, Any] = {}
    if ranks is not None:
        if not isinstance(ranks, list) or not all(_is_count(rank, 0) for rank in ranks):
            raise UsageError(f"spec.ranks is {str(ranks)[:200]}: a list of numbers from 0 on")
        wanted["ranks"] = sorted(set(ranks))
    if (seconds is None) == (steps is None):
        raise UsageError(
            f"spec.durationSeconds is {seconds}, spec.steps is {steps}: exactly one of the two"
        )
    if seconds is not None:
        wanted["duration_ms"] = _within("durationSeconds", seconds, MAX_MS // 1000) * 1000
    else:
        wanted["steps"] = _within("steps", steps, MAX_STEPS)
    return run, wanted


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _within(name: str, value: object, most: int) -> int:
    if not isinstance(value, int) or not _is_count(value, 1) or value > most:
        raise UsageError(f"spec.{name} is {value}: 1 to {most}")
    return value


class Captures:
    def __init__(
        self, api: Api, head: Head, settings: OperatorSettings, *, clock: Clock = system_clock
    ) -> None:
        self._api, self._head, self._settings, self._clock = api, head, settings, clock
        self._bounds = Bounds(api.access.namespace, settings)

    async def handle(self, ref: Ref) -> float | None:
        """The next step of one object; after how many seconds it wants another."""
        thing = await objects.read(self._api, ref)
        if thing is None:
            return None
        phase = objects.phase_of(thing)
        if phase in OVER:
            return await self._tidy(ref, thing)
        try:
            run, wanted = wanted_of(thing)
            if not phase:
                await self._write(ref, thing, PENDING, "", session=session_of(thing))
                return 0.0
            if phase == PENDING:
                return await self._begin(ref, thing, run, wanted)
            return await self._follow(ref, thing, run)
        except (UsageError, Refused) as error:
            await self._write(ref, thing, FAILED, str(error))
            return 0.0

    async def _begin(
        self, ref: Ref, thing: Thing, run: str, wanted: Mapping[str, Any]
    ) -> float | None:
        try:
            if not self._bounds.are_wide(ref):
                where = await asking.namespaces_of(self._head, run)
                self._bounds.check(ref, f"run {run!r}", where)
            await asking.begin(self._head, run, session_of(thing), wanted)
        except Busy as error:
            await self._waits(ref, thing, str(error))
            return BUSY_SECONDS
        except HeadError as error:
            await self._waits(ref, thing, str(error))
            raise
        await self._write(ref, thing, RUNNING, "", startTime=self._now())
        return FOLLOW_SECONDS

    async def _waits(self, ref: Ref, thing: Thing, why: str) -> None:
        if objects.cut(why) != text(part(thing, "status"), "message"):
            await self._write(ref, thing, PENDING, why)

    async def _follow(self, ref: Ref, thing: Thing, run: str) -> float | None:
        session = session_of(thing)
        capture = await asking.look(self._head, run, session)
        if not asking.is_over(capture):
            ranks = ranks_of(capture, {})
            if ranks != part(thing, "status").get("ranks"):
                await objects.write_status(self._api, ref, thing, {"ranks": ranks})
            return FOLLOW_SECONDS
        expected = asking.expected_files(capture)
        files = await asking.arrived(self._head, run, session, list(expected))
        if len(files) < len(expected) and not self._is_late(thing, capture):
            return FOLLOW_SECONDS
        await self._end(ref, thing, run, capture, files)
        return 0.0

    def _is_late(self, thing: Thing, capture: Mapping[str, Any]) -> bool:
        ends = [int(target.get("end_ns") or 0) for target in asking.targets(capture)]
        began_ns = moment_ns(part(thing, "status").get("startTime")) or 0
        since_ns = max([began_ns, *ends])
        return self._clock.wall_ns() - since_ns > FILES_SECONDS * 1e9

    async def _end(
        self,
        ref: Ref,
        thing: Thing,
        run: str,
        capture: Mapping[str, Any],
        files: Mapping[str, Any],
    ) -> None:
        expected = asking.expected_files(capture)
        pods = {
            int(process["rank"]): pod
            for (_, pod), processes in (await asking.pods_of(self._head, run)).items()
            for process in processes
        }
        why, ranks = asking.left_out(capture), ranks_of(capture, pods)
        if not expected:
            await self._write(ref, thing, FAILED, why, ranks=ranks)
            return
        if missing := sorted(set(expected) - set(files)):
            why = "; ".join(filter(None, [why, f"not brought to the head yet: {missing[0]}"]))
        traces = [
            {
                "rank": int(target.get("rank") or 0),
                "name": name,
                "url": self._link(files.get(name, {})),
            }
            for name, target in sorted(expected.items())
        ]
        await self._write(ref, thing, SUCCEEDED, why, traces=traces, ranks=ranks)

    def _link(self, file: Mapping[str, Any]) -> str:
        viewer = str(file.get("viewer") or "viewers/")
        return f"{self._settings.link_base}/{viewer}"

    # ── writing ───────────────────────────────────────────────────────────────────────────────

    async def _write(self, ref: Ref, thing: Thing, phase: str, message: str, **more: Any) -> None:
        now_ns = self._clock.wall_ns()
        status: dict[str, Any] = {
            "phase": phase,
            "message": objects.cut(message),
            "observedGeneration": objects.generation(thing),
            **more,
        }
        if phase in OVER:
            status["completionTime"] = written(now_ns)
        reason = {SUCCEEDED: "PartlyCaptured" if message else "Captured"}.get(phase, phase)
        complete = phase == SUCCEEDED and not message
        about = objects.condition(thing, COMPLETE, complete, reason, message, now_ns)
        await objects.write_status(self._api, ref, thing, {**status, "conditions": [about]})

    def _now(self) -> str:
        return written(self._clock.wall_ns())

    async def _tidy(self, ref: Ref, thing: Thing) -> float | None:
        own = part(thing, "spec").get("ttlSecondsAfterFinished")
        ttl = float(own) if isinstance(own, int) else self._settings.ttl_seconds or -1
        left = objects.left_seconds(thing, ttl, self._clock)
        if left:
            return left
        if left is not None:
            await objects.remove(self._api, ref, thing)
        return None


def ranks_of(capture: Mapping[str, Any], pods: Mapping[int, str]) -> Sequence[Mapping[str, Any]]:
    """One for each rank, as the object has them."""
    found: dict[int, dict[str, Any]] = {}
    for target in asking.targets(capture):
        rank = int(target.get("rank") or 0)
        told = {"rank": rank, "host": str(target.get("host") or ""), "pod": pods.get(rank, "")}
        told |= {"state": target.get("state"), "message": str(target.get("why") or "")[:500]}
        found.setdefault(rank, {key: value for key, value in told.items() if value != ""})
    return [found[rank] for rank in sorted(found)]
