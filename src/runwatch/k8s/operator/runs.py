"""Run objects: one for each run of a watched workload, with what the head says of it.

A run's object belongs to the workload: the cluster collects it when that is deleted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from runwatch.clock import Clock, system_clock
from runwatch.k8s import names
from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.operator import events, objects
from runwatch.k8s.operator.events import Events
from runwatch.k8s.operator.head import Head
from runwatch.k8s.operator.objects import Kind, Ref
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.whose import Whose, is_there
from runwatch.kube import Thing, part, parts, path_of, text, written

KIND: Final = Kind(names.API_VERSION, names.RUNS, "Run")
LONGEST_INCIDENT: Final = 300
SETTLES_NS: Final = 120 * 1_000_000_000
_LIVE: Final = ("running",)
_QUIET: Final = ("step", "goodputPercent", "lastHeard")
"""What changes all the time: for these alone it is written now and then."""
_PLAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def name_of(run: str) -> str:
    """Of the object.  An id that is no name in a cluster gets one that nothing else has."""
    if len(run) <= 200 and _PLAIN.fullmatch(run):
        return run
    plain = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[:180].rstrip("-")
    digest = hashlib.sha256(run.encode(errors="replace")).hexdigest()[:10]
    return f"{plain or 'run'}-{digest}"


def status_of(
    run: Mapping[str, Any], last_incident: str, link: str
) -> dict[str, str | int | float | bool | None]:
    """None: the head does not say it, and neither does the object any more."""
    share = part(run, "goodput").get("share")
    shown = text(run, "shown_state") or text(run, "state")
    return {
        "state": shown or None,
        "step": _number(run, "last_step"),
        "goodputPercent": round(100 * share, 1) if isinstance(share, int | float) else None,
        "stalled": bool(run.get("stalled")),
        "lastIncident": objects.cut(last_incident, LONGEST_INCIDENT) or None,
        "ranks": _number(run, "ranks"),
        "attempt": _number(run, "attempts"),
        "url": f"{link}/#/run/{quote(text(run, 'run'), safe='')}",
        "startTime": _moment(run, "started_ns"),
        "lastHeard": _moment(run, "last_ns"),
    }


class _Look(NamedTuple):
    status: Mapping[str, Any]
    mono_ns: int


class Runs:
    def __init__(
        self,
        api: Api,
        head: Head,
        settings: OperatorSettings,
        told: Events,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._api, self._head, self._settings, self._clock = api, head, settings, clock
        self._events = told
        self._known: dict[Whose, int] = {}
        """Workloads that are there, and when that was seen."""
        self._looked: dict[tuple[Whose, str], _Look] = {}
        """By workload and run."""

    async def handle(self, workload: Whose) -> float | None:
        """After how many seconds the head is asked again."""
        if self._is_due(self._known.get(workload)):
            if not await is_there(self._api, workload):
                self._forget(workload)
                return None
            self._known[workload] = self._clock.mono_ns()
        runs = await self._head.runs(workload.uid)
        for run in runs:
            await self._one(workload, run)
        # A run that has ended may go on in new pods, and a watch tells of those.
        is_live = not runs or any(self._may_change(run) for run in runs)
        return self._settings.runs_seconds if is_live else self._settings.sweep_seconds

    def _may_change(self, run: Mapping[str, Any]) -> bool:
        """What became of one that has just ended is found out a little later."""
        quiet_ns = self._clock.wall_ns() - (_number(run, "last_ns") or 0)
        return text(run, "state") in _LIVE or quiet_ns < SETTLES_NS

    def _is_due(self, before_ns: int | None) -> bool:
        if before_ns is None:
            return True
        return self._clock.mono_ns() - before_ns >= self._settings.progress_seconds * 1e9

    def _forget(self, workload: Whose) -> None:
        self._known.pop(workload, None)
        for key in [key for key in self._looked if key[0] == workload]:
            del self._looked[key]

    async def _one(self, workload: Whose, run: Mapping[str, Any]) -> None:
        id, name = text(run, "run"), text(run, "name") or text(run, "run")
        now_ns = self._clock.wall_ns()
        incidents = await self._head.incidents(id)
        last = next((text(each, "text") for each in incidents if is_alarm(each)), "")
        await self._write(workload, run, status_of(run, last, self._settings.link_base))
        for incident in reversed(incidents):
            for told in events.told_of(id, name, incident, now_ns):
                await self._events.tell(workload, told)

    # ── the object ────────────────────────────────────────────────────────────────────────────

    async def _write(
        self, workload: Whose, run: Mapping[str, Any], status: Mapping[str, Any]
    ) -> None:
        ref = Ref(KIND, workload.namespace, name_of(text(run, "run")))
        before = self._looked.get((workload, ref.name))
        if before and not _is_news(before.status, status) and not self._is_due(before.mono_ns):
            return
        look = _Look(status, self._clock.mono_ns())
        thing = await self._object(workload, ref, run)
        if thing is None:
            return
        if any(part(thing, "status").get(key) != value for key, value in status.items()):
            told = {**status, "observedGeneration": objects.generation(thing)}
            await objects.write_status(self._api, ref, thing, told)
        self._looked[workload, ref.name] = look

    async def _object(self, workload: Whose, ref: Ref, run: Mapping[str, Any]) -> Thing | None:
        """As it is, or made now.  None: it is being deleted, and is made next time."""
        try:
            thing: Thing = await self._api.get(ref.path)
        except ApiError as error:
            if error.status != 404:
                raise
            return await self._make(workload, ref, run)
        if part(thing, "metadata").get("deletionTimestamp"):
            return None
        wanted = _owner(workload)
        owners = parts(part(thing, "metadata").get("ownerReferences"))
        if [text(each, "uid") for each in owners] == [workload.uid]:
            return thing
        # A run that goes on in a workload that was made anew.
        version = text(part(thing, "metadata"), "resourceVersion")
        change = {"metadata": {"resourceVersion": version, "ownerReferences": [wanted]}}
        return await self._api.patch(ref.path, change)

    async def _make(self, workload: Whose, ref: Ref, run: Mapping[str, Any]) -> Thing:
        spec = {"run": text(run, "run")} | ({"name": run["name"]} if run.get("name") else {})
        thing = {
            "apiVersion": KIND.api_version,
            "kind": KIND.name,
            "metadata": {
                "name": ref.name,
                "namespace": ref.namespace,
                "ownerReferences": [_owner(workload)],
            },
            "spec": spec,
        }
        return await self._api.create(path_of(KIND.api_version, KIND.plural, ref.namespace), thing)


def _is_news(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return any(before[key] != now[key] for key in now if key not in _QUIET)


def _owner(workload: Whose) -> dict[str, Any]:
    # It controls nothing and holds nothing up: the workload's own controller does not look at it.
    return {
        "apiVersion": workload.api_version,
        "kind": workload.kind,
        "name": workload.name,
        "uid": workload.uid,
    }


def is_alarm(incident: Mapping[str, Any]) -> bool:
    return text(incident, "severity") != "note"


def _number(run: Mapping[str, Any], name: str) -> int | None:
    value = run.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(run: Mapping[str, Any], name: str) -> str | None:
    value = _number(run, name)
    return written(value) if value else None
