"""Connections of google-cloud-mldiagnostics: pods are captured, and their profile is put where the
object says.

The way is written on the object first.  Where the head knows the programs it is asked, as for a
Capture: once, by the session that is the object's.  Others are asked as the original asks them, at
the port that the object names.  No such program is asked twice: `Running` is written before, and
who finds that and did not write it tells what came of it by the files that are there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from runwatch.capture.tracing.gathering import Gathered, gather
from runwatch.capture.tracing.http_profiling import by_http
from runwatch.capture.tracing.profile_files import as_host
from runwatch.capture.tracing.profiler_service import PortTarget
from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError, UsageError
from runwatch.k8s import names
from runwatch.k8s.api import Api
from runwatch.k8s.operator import asking, objects, storage, targets
from runwatch.k8s.operator.asking import Busy, Refused
from runwatch.k8s.operator.bounds import Bounds
from runwatch.k8s.operator.captures import BUSY_SECONDS, FILES_SECONDS, FOLLOW_SECONDS
from runwatch.k8s.operator.head import Head, HeadError
from runwatch.k8s.operator.objects import FAILED, OVER, PENDING, RUNNING, SUCCEEDED, Kind, Ref
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.storage import StorageError
from runwatch.k8s.operator.targets import Wanted, Way
from runwatch.k8s.operator.threads import in_thread
from runwatch.kube import Thing, moment_ns, part, text, written

KIND: Final = Kind(
    f"{names.CONNECTIONS_GROUP}/{names.VERSION}", names.CONNECTIONS, "MLDiagnosticsConnection"
)
SLACK_SECONDS: Final = 90.0
"""What a program gets for its trace, on top of the time it records."""
STORE_SECONDS: Final = 600.0
"""How long a place is tried that takes no files."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    why: str
    is_some: bool
    """Something was captured."""


class Connections:
    def __init__(
        self, api: Api, head: Head, settings: OperatorSettings, *, clock: Clock = system_clock
    ) -> None:
        self._api, self._head, self._settings, self._clock = api, head, settings, clock
        self._bounds = Bounds(api.access.namespace, settings)
        self._claimed: set[str] = set()
        """Objects whose programs we are about to ask, and nobody else."""
        self._outcomes: dict[str, _Outcome] = {}
        """What came of it, until it is written."""

    async def handle(self, ref: Ref) -> float | None:
        """The next step of one object; after how many seconds it wants another."""
        thing = await objects.read(self._api, ref)
        if thing is None:
            return None
        if objects.phase_of(thing) in OVER:
            return await self._tidy(ref, thing)
        try:
            wanted = targets.wanted_of(thing, self._settings)
            self._bounds.check(ref, "what podNamespace names", {wanted.namespace})
            try:
                return await self._step(ref, thing, wanted)
            except StorageError as error:
                await self._cannot_store(ref, thing, wanted, error)
                raise
        except (UsageError, Refused) as error:
            await self._fail(ref, thing, str(error))
            return 0.0

    async def _step(self, ref: Ref, thing: Thing, wanted: Wanted) -> float:
        if not objects.phase_of(thing):
            await self._write(ref, thing, PENDING, "")
            return 0.0
        way = targets.way_of(thing)
        if way is None:
            return await self._decide(ref, thing, wanted)
        if way.run:
            return await self._by_head(ref, thing, wanted, way)
        return await self._by_programs(ref, thing, wanted)

    async def _decide(self, ref: Ref, thing: Thing, wanted: Wanted) -> float:
        pods = await targets.pods_of(self._api, wanted)
        try:
            way = await targets.decided(self._head, pods)
        except HeadError as error:
            await self._waits(ref, thing, str(error))
            raise
        await objects.annotate(self._api, ref, thing, {names.CAPTURE: way.written()})
        return 0.0

    # ── the head is asked ─────────────────────────────────────────────────────────────────────

    async def _by_head(self, ref: Ref, thing: Thing, wanted: Wanted, way: Way) -> float:
        if objects.phase_of(thing) == PENDING:
            return await self._begin(ref, thing, wanted, way)
        session = session_of(thing)
        capture = await asking.look(self._head, way.run, session)
        if not asking.is_over(capture):
            return FOLLOW_SECONDS
        expected = asking.expected_files(capture)
        files = await asking.arrived(self._head, way.run, session, list(expected))
        if len(files) < len(expected) and not self._is_past(thing, wanted, FILES_SECONDS):
            return FOLLOW_SECONDS
        why = asking.left_out(capture)
        if missing := sorted(set(expected) - set(files)):
            why = "; ".join(filter(None, [why, f"not brought to the head: {missing[0]}"]))
        if not files:
            raise Refused(why)
        ranks = {name: int(expected[name].get("rank") or 0) for name in files}
        await self._copy(way, session, wanted.location, ranks)
        await self._succeed(ref, thing, wanted, why)
        return 0.0

    async def _begin(self, ref: Ref, thing: Thing, wanted: Wanted, way: Way) -> float:
        ask = {"ranks": way.all_ranks, "duration_ms": wanted.seconds * 1000}
        try:
            await asking.begin(self._head, way.run, session_of(thing), ask)
        except (Busy, HeadError) as error:
            await self._waits(ref, thing, str(error))
            if isinstance(error, Busy):
                return BUSY_SECONDS
            raise
        await self._write(ref, thing, RUNNING, "", startTime=self._now())
        return FOLLOW_SECONDS

    async def _copy(self, way: Way, session: str, location: str, ranks: Mapping[str, int]) -> None:
        """What is there from before stays."""
        output = storage.output_of(location, session)
        has = await in_thread(partial(storage.there, output))
        for name, rank in ranks.items():
            pod, is_only = way.pod_of(rank)
            target = storage.file_name(pod, None if is_only else rank, name)
            if target in has:
                continue
            with tempfile.TemporaryDirectory(prefix="runwatch-connection-") as scratch:
                file = Path(scratch, target)
                await self._head.file(way.run, session, name, file)
                await in_thread(partial(storage.put, output, [(file, target)]))

    # ── programs are asked ────────────────────────────────────────────────────────────────────

    async def _by_programs(self, ref: Ref, thing: Thing, wanted: Wanted) -> float:
        uid = objects.uid_of(thing)
        if objects.phase_of(thing) == PENDING:
            self._claimed.add(uid)
            await self._write(ref, thing, RUNNING, "", startTime=self._now())
            return 0.0
        if uid in self._claimed:
            self._claimed.discard(uid)
            self._outcomes[uid] = await self._asked(wanted, session_of(thing))
        outcome = self._outcomes.get(uid)
        if outcome is None:
            if not self._is_past(thing, wanted, SLACK_SECONDS):
                return FOLLOW_SECONDS
            outcome = await self._found(wanted, session_of(thing))
        if outcome.is_some:
            await self._succeed(ref, thing, wanted, outcome.why)
        else:
            await self._fail(ref, thing, outcome.why)
        self._outcomes.pop(uid, None)
        return 0.0

    async def _asked(self, wanted: Wanted, session: str) -> _Outcome:
        try:
            pods = await targets.pods_of(self._api, wanted)
            asked = [
                PortTarget(targets.address_of(pod, wanted.port), as_host(name))
                for pod, name in zip(pods, wanted.pods, strict=True)
            ]
            gathered = await in_thread(partial(_gathered, asked, wanted, session))
        except RunwatchError as error:
            return _Outcome(str(error), is_some=False)
        why = "; ".join(f"{one.host}: {one.why}" for one in gathered if one.why)
        return _Outcome(why, is_some=any(not one.why for one in gathered))

    async def _found(self, wanted: Wanted, session: str) -> _Outcome:
        """Another operator asked, and was ended before it could say what came of it."""
        output = storage.output_of(wanted.location, session)
        files = await in_thread(partial(storage.there, output))
        missing = [pod for pod in wanted.pods if not any(_is_of(file, pod) for file in files)]
        if not missing:
            return _Outcome("", is_some=True)
        why = (
            f"{missing[0]}: the operator was ended while it asked, and no program is asked twice: "
            "make another connection"
        )
        return _Outcome(why, is_some=len(missing) < len(wanted.pods))

    # ── writing ───────────────────────────────────────────────────────────────────────────────

    async def _waits(self, ref: Ref, thing: Thing, why: str) -> None:
        if objects.cut(why) != text(part(thing, "status"), "message"):
            await self._write(ref, thing, PENDING, why)

    async def _cannot_store(
        self, ref: Ref, thing: Thing, wanted: Wanted, error: StorageError
    ) -> None:
        if self._is_past(thing, wanted, STORE_SECONDS):
            raise Refused(str(error)) from error
        if objects.cut(str(error)) != text(part(thing, "status"), "message"):
            await self._write(ref, thing, RUNNING, str(error))

    async def _succeed(self, ref: Ref, thing: Thing, wanted: Wanted, why: str) -> None:
        output = storage.output_of(wanted.location, session_of(thing))
        result = {"status": SUCCEEDED, "outputLocation": output}
        await self._write(
            ref, thing, SUCCEEDED, why, completionTime=self._now(), captureResult=result
        )

    async def _fail(self, ref: Ref, thing: Thing, why: str) -> None:
        result = {"status": FAILED, "errorMessage": objects.cut(why)}
        await self._write(ref, thing, FAILED, why, completionTime=self._now(), captureResult=result)

    async def _write(self, ref: Ref, thing: Thing, phase: str, message: str, **more: Any) -> None:
        status = {"phase": phase, "message": objects.cut(message), **more}
        await objects.write_status(self._api, ref, thing, status)

    async def _tidy(self, ref: Ref, thing: Thing) -> float | None:
        left = objects.left_seconds(thing, self._settings.ttl_seconds or -1, self._clock)
        if left:
            return left
        if left is not None:
            await objects.remove(self._api, ref, thing)
        return None

    def _is_past(self, thing: Thing, wanted: Wanted, seconds: float) -> bool:
        """So long after the time that was recorded."""
        began_ns = moment_ns(part(thing, "status").get("startTime")) or 0
        return self._clock.wall_ns() - began_ns > (wanted.seconds + seconds) * 1e9

    def _now(self) -> str:
        return written(self._clock.wall_ns())


def session_of(thing: Thing) -> str:
    return f"connection-{objects.uid_of(thing)}"


def _gathered(asked: Sequence[PortTarget], wanted: Wanted, session: str) -> list[Gathered]:
    milliseconds = wanted.seconds * 1000
    gathered = gather(asked, wanted.location, session, milliseconds)
    return by_http(asked, gathered, wanted.location, milliseconds)


def _is_of(file: str, pod: str) -> bool:
    """pod.xplane.pb is of `pod`, pod.rank1.xplane.pb is not: programs are asked by their pods."""
    return file == storage.file_name(pod, None, ".xplane.pb")
