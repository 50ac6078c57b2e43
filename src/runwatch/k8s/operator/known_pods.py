"""What is known of the watched pods, and what of it was told.  Nothing here asks anybody."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from runwatch.k8s.operator import pods
from runwatch.k8s.operator.objects import Kind, Ref, uid_of
from runwatch.k8s.operator.pods import Told
from runwatch.k8s.operator.whose import whose
from runwatch.kube import Thing
from runwatch.record import RunId
from runwatch.record.pods import PodTold, What

KIND: Final = Kind("v1", "pods", "Pod")
MOST_EARLY: Final = 4_096
"""Pods of which an Event is known and nothing else."""
MOST_BEFORE: Final = 20_000
MOST_SENTENCES: Final = 16
"""About one thing of one pod: some have a number or a digest in them that changes."""
MOST_OTHERS: Final = 500
"""A container that ends again and again, a node that comes and goes."""
_WHO: Final = ("pod", "namespace", "uid", "node", "workload", "workload_uid")
"""What a record says of which pod it is; the rest is what happened."""


Key = tuple[str, ...]


@dataclass(slots=True)
class KnownPod:
    about: PodTold
    looked_ns: int
    """When it was read last, or brought by a watch; monotonic."""
    changed_ns: int
    """When it was otherwise last."""
    status: Sequence[Told] = ()
    more: dict[Key, Told] = field(default_factory=dict)
    """What Events and its node said."""
    runs: dict[RunId, str] = field(default_factory=dict)
    """By id, with their names."""
    is_sure: bool = False
    """Its processes have named the runs."""
    is_over: bool = False
    is_gone: bool = False

    @property
    def ref(self) -> Ref:
        return ref_of(self.about)

    def add(self, told: Told) -> None:
        _add(self.more, told)

    def all(self) -> Iterator[Told]:
        yield from self.status
        for told in self.more.values():
            # An Event knows neither workload nor node.
            yield Told(told.time_ns, replace(told.what, **_who(self.about)))

    @property
    def is_sent_away(self) -> bool:
        """Before it had ended by itself."""
        times = {told.what.what: told.time_ns for told in self.all()}
        deleted_ns, over_ns = times.get("deleted"), times.get("ended")
        is_cleared_away = deleted_ns is None or over_ns is not None and over_ns <= deleted_ns
        return "evicted" in times or "preempted" in times or not is_cleared_away

    def first_ns(self, what: What) -> int | None:
        return next((told.time_ns for told in self.status if told.what.what == what), None)


class KnownPods:
    def __init__(self) -> None:
        self._pods: dict[str, KnownPod] = {}
        """By uid."""
        self._places: dict[Ref, str] = {}
        self._told: defaultdict[str, set[tuple[RunId, Key]]] = defaultdict(set)
        self._told_before: OrderedDict[str, set[tuple[RunId, Key]]] = OrderedDict()
        """Of pods that are not known yet; most of them are gone."""
        self._early: OrderedDict[str, dict[Key, Told]] = OrderedDict()

    def __iter__(self) -> Iterator[KnownPod]:
        return iter(list(self._pods.values()))

    def get(self, uid: str) -> KnownPod | None:
        return self._pods.get(uid)

    def at(self, ref: Ref) -> KnownPod | None:
        """The one that has the name now, or had it last."""
        return self._pods.get(self._places.get(ref, ""))

    def is_sent_away(self, workload: str) -> bool:
        """Whether one of its pods was."""
        return any(pod.is_sent_away for pod in self if pod.about.workload_uid == workload)

    # ── what comes ────────────────────────────────────────────────────────────────────────────

    def recall(self, run: RunId, told: Told, now_ns: int) -> None:
        """An earlier operator told it, and this one answers for the pod."""
        about = replace(pods.NOBODY, **_who(told.what))
        self._told[about.uid].add((run, told.key))
        pod = self._known(about, now_ns)
        pod.runs.setdefault(run, "")
        pod.is_over = pod.is_over or told.what.what in ("ended", "deleted")

    def heard(self, run: RunId, told: Told) -> None:
        """The head knows it already."""
        uid = told.what.uid
        if uid in self._pods:
            self._told[uid].add((run, told.key))
            return
        self._told_before.setdefault(uid, set()).add((run, told.key))
        while len(self._told_before) > MOST_BEFORE:
            self._told_before.popitem(last=False)

    def seen(self, thing: Thing, now_ns: int) -> KnownPod | None:
        """None: nobody watches it."""
        if whose(thing) is None:
            self._early.pop(uid_of(thing), None)
            return None
        about, status = pods.about(thing), pods.told_of(thing)
        pod = self._known(about, now_ns)
        for told in self._early.pop(about.uid, {}).values():
            pod.add(told)
        if status != pod.status:
            pod.status, pod.changed_ns = status, now_ns
        pod.about, pod.is_over, pod.looked_ns = about, pods.is_over(thing), now_ns
        return pod

    def _known(self, about: PodTold, now_ns: int) -> KnownPod:
        self._places[ref_of(about)] = about.uid
        self._told[about.uid] |= self._told_before.pop(about.uid, set())
        return self._pods.setdefault(about.uid, KnownPod(about, now_ns, now_ns))

    def keep(self, told: Told) -> None:
        """An Event about a pod that is not known yet."""
        _add(self._early.setdefault(told.what.uid, {}), told)
        while len(self._early) > MOST_EARLY:
            self._early.popitem(last=False)

    def forget(self, pod: KnownPod) -> None:
        uid = pod.about.uid
        del self._pods[uid]
        self._told.pop(uid, None)
        if self._places.get(pod.ref) == uid:
            del self._places[pod.ref]

    # ── what was told ─────────────────────────────────────────────────────────────────────────

    def news(self, pod: KnownPod) -> Iterator[tuple[RunId, Told]]:
        """What is to be told of it; call `was_told` before the next one."""
        known = self._told[pod.about.uid]
        for run in pod.runs:
            for told in pod.all():
                if (run, told.key) not in known and not self._is_enough(run, told.what):
                    yield run, told

    def was_told(self, run: RunId, told: Told) -> None:
        self._told[told.what.uid].add((run, told.key))

    def _is_enough(self, run: RunId, told: PodTold) -> bool:
        alike = sum(at == run and key[0] == told.what for at, key in self._told[told.uid])
        return alike >= _most(told.what)


def _add(known: dict[Key, Told], told: Told) -> None:
    what = told.what.what
    if sum(key[0] == what for key in known) < _most(what):
        known.setdefault(told.key, told)


def _most(what: What) -> int:
    return MOST_SENTENCES if what in pods.SENTENCES else MOST_OTHERS


def ref_of(pod: PodTold) -> Ref:
    return Ref(KIND, pod.namespace, pod.pod)


def _who(pod: PodTold) -> dict[str, Any]:
    return {name: getattr(pod, name) for name in _WHO}
