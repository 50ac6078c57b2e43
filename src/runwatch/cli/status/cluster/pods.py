"""Which pods are to be watched and are not, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runwatch.cli.status.cluster.told import (
    MOST_NAMED,
    WORKLOAD,
    Told,
    by_uid,
    chain,
    few,
    full_name,
    is_over,
    name,
    namespace,
)
from runwatch.cli.status.cluster.why import Why, left_out, silent, spared
from runwatch.cli.status.cluster.wished import Wish, is_injected, is_ours, wished, wishes_of
from runwatch.cli.status.types import Problem, Section, many
from runwatch.k8s.names import WATCH
from runwatch.kube import Thing, text
from runwatch.kube import owners as owners_of


@dataclass(slots=True)
class _Sorted:
    """Every pod that is to be watched, or might be."""

    watched: int = 0
    unknown: int = 0
    wrong: dict[tuple[str, Why], list[Thing]] = field(default_factory=lambda: defaultdict(list))
    overruled: dict[str, list[Thing]] = field(default_factory=lambda: defaultdict(list))
    spared: dict[str, list[Thing]] = field(default_factory=lambda: defaultdict(list))
    labelled: int = 0


def section(told: Told) -> Section:
    if "Pod" in told.refused:
        why_not = told.refused["Pod"]
        return Section("pods", {"refused": why_not}, [why_not], is_unread=True)
    found = _sorted(told)
    facts = {
        "labelled": found.labelled,
        "watched": found.watched,
        "not_watched": [
            {"pod": full_name(pod), "workload": group, "why": why.key, "what": why.what}
            for (group, why), pods in found.wrong.items()
            for pod in pods
        ],
        "refused_by_label": _total(found.overruled),
        "spared": _total(found.spared),
        "unknown": found.unknown,
    }
    problems = list(_problems(found.wrong))
    return Section("pods", facts, [*_lines(told, found)], problems, is_unread=bool(found.unknown))


def _sorted(told: Told) -> _Sorted:
    known, spaces = by_uid(told), {name(each): each for each in told.of("Namespace")}
    found = _Sorted()
    for pod in told.of("Pod"):
        if is_over(pod) or is_ours(pod) or (told.namespace and namespace(pod) != told.namespace):
            continue
        owners = [each for each in chain(pod, known) if text(each, "kind") != "Node"]
        space = spaces.get(namespace(pod), {})
        wish = wished(pod, owners, space)
        if is_injected(pod):
            found.labelled += 1
            why = silent(told, pod, owners)
            found.watched += why is None
        elif wish is None:
            found.unknown += _may_be_wished(told, owners[-1] if owners else pod)
            continue
        else:
            found.labelled += 1
            why = left_out(told, pod, owners, space, wish) if wish.watched else None
            if wish.holder is space and (kind := spared(pod)):
                found.spared[kind].append(pod)  # who labels a namespace need not mean these, too
                continue
            if not wish.watched and (overruled := _overruled(pod, owners, space, wish)):
                found.overruled[overruled].append(pod)
        if why is not None:
            found.wrong[_group(pod, owners), why].append(pod)
    return found


def _total(some: Mapping[str, Sequence[Thing]]) -> int:
    return sum(len(pods) for pods in some.values())


def _lines(told: Told, found: _Sorted) -> Iterator[str]:
    if found.labelled or found.unknown:
        yield f"{many(found.labelled, 'pod')} of labelled workloads, {found.watched:,} watched"
    else:
        yield f"no pod is labelled ({WATCH}=true on a workload, a pod or a namespace)"
    if found.unknown:
        unread = told.refused.get("Namespace") or told.refused[WORKLOAD]
        yield f"{many(found.unknown, 'more pod')} may be asked to be watched: {unread}"
    for why, pods in (*found.overruled.items(), *found.spared.items()):
        yield f"{_count(pods)} not watched: {why}"


def _may_be_wished(told: Told, farthest: Thing) -> bool:
    """Nobody could look whether its namespace, or a workload beyond this one, is labelled."""
    if "Namespace" in told.refused:
        return True
    return WORKLOAD in told.refused and any(owners_of(farthest))


def _overruled(pod: Thing, owners: Sequence[Thing], space: Thing, wish: Wish) -> str:
    """In words, if something farther away asks for it."""
    far = next((each for each in wishes_of(pod, owners, space) if each.watched), None)
    if far is None:
        return ""
    return f"{wish.key}=false on {wish.on} is nearer than {far.key}=true on {far.on}"


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def _group(pod: Thing, owners: Sequence[Thing]) -> str:
    if not owners:
        return f"Pod {full_name(pod)}"
    return f"{text(owners[-1], 'kind')} {full_name(owners[-1])}"


def _count(pods: Sequence[Thing]) -> str:
    one = full_name(pods[0])
    return f"pod {one} is" if len(pods) == 1 else f"{len(pods):,} pods ({one}, …) are"


def _problems(wrong: Mapping[tuple[str, Why], Sequence[Thing]]) -> Iterator[Problem]:
    """One for each workload; one for all if many have the same trouble."""
    alike: dict[str, dict[str, tuple[Why, int]]] = defaultdict(dict)
    for (group, why), pods in wrong.items():
        alike[why.what][group] = why, len(pods)
    for what, groups in alike.items():
        if len(groups) <= MOST_NAMED:
            for group, (why, count) in groups.items():
                yield Problem(f"{_who(group, count)}: {what}", why.todo)
            continue
        every = sum(count for _, count in groups.values())
        who = f"{every:,} pods are not watched ({few([*groups])})"
        todos = list(dict.fromkeys(why.todo for why, _ in groups.values()))
        first = todos[0] if len(todos) == 1 else f"for each of them, as the first: {todos[0]}"
        yield Problem(f"{who}: {what}", first)


def _who(group: str, pods: int) -> str:
    if group.startswith("Pod "):
        return f"{group} is not watched"
    return f"{many(pods, 'pod')} of {group} {'is' if pods == 1 else 'are'} not watched"
