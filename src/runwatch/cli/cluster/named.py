"""The run of `job/llama`, or of a pod: what the cluster calls it, as the head calls it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from runwatch.cli.cluster.kubectl import Kubectl, NoKind, inside
from runwatch.cli.source import Source
from runwatch.errors import NotFound, RunwatchError
from runwatch.k8s.names import WORKLOAD
from runwatch.kube import Thing, notes, owners, part, text
from runwatch.terminal import shown

_OBJECT: Final = re.compile(r"[a-z][a-z0-9.-]*/[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_POD_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_MOST_OWNERS: Final = 8


def run_called(word: str, head: Source, kubectl: Kubectl) -> str:
    """The run, by what the cluster calls it; the word itself if that is a run's own name or id."""
    if _OBJECT.fullmatch(word):
        return _run_of(word, head, kubectl) or word
    if _POD_NAME.fullmatch(word) and not _is_run(head, word):
        return _run_of(f"pod/{word}", head, kubectl, must_be=False) or word
    return word


def _is_run(head: Source, word: str) -> bool:
    try:
        head.get(f"/runs/{word}")
    except NotFound:
        return False
    return True


def _run_of(word: str, head: Source, kubectl: Kubectl, *, must_be: bool = True) -> str:
    """ "" where the cluster knows no such kind, or need not: `team/x` may be a run's name."""
    try:
        thing = kubectl.get(word, *inside(kubectl.namespace))
    except NoKind:
        return ""
    except NotFound as error:
        if not must_be or _has_run_called(head, word):
            return ""
        raise NotFound(f"{error} (in another namespace? -n says which)") from error
    for uid in _uids(thing, kubectl):
        runs: list[dict[str, Any]] = head.get("/runs", workload=uid, limit=100)["runs"]
        if runs:
            newest = max(runs, key=lambda run: (run["state"] in _LIVE, run["started_ns"] or 0))
            others = f", the newest of {len(runs)}" if len(runs) > 1 else ""
            said = f"runwatch: {word} is run {newest['name']} ({newest['run']}{others})"
            print(shown(said), file=sys.stderr)
            return str(newest["run"])
    raise NotFound(
        f"the head has no run of {word}: `kubectl runwatch status` says whether its pods are "
        "watched, and why not; `kubectl runwatch runs` lists all"
    )


_LIVE: Final = ("running", "stalled")


def _has_run_called(head: Source, word: str) -> bool:
    return any(run["name"] == word for run in head.get("/runs", limit=10_000)["runs"])


def _uids(thing: Thing, kubectl: Kubectl) -> Iterator[str]:
    """Its own, then those of what controls it.  A watched pod has the last one written on it."""
    for _ in range(_MOST_OWNERS):
        yield text(part(thing, "metadata"), "uid")
        if told := _told(thing):
            yield told
            return
        owner = next(owners(thing), None)
        if owner is None:
            return
        kind = f"{owner.kind.lower()}.{owner.group}" if owner.group else owner.kind.lower()
        where = inside(text(part(thing, "metadata"), "namespace"))
        try:
            thing = kubectl.get(f"{kind}/{owner.name}", *where)
        except RunwatchError:  # who may see a pod need not be allowed to see its owner
            yield owner.uid
            return


def _told(thing: Thing) -> str:
    try:
        workload = json.loads(text(notes(thing), WORKLOAD) or "{}")
    except ValueError:
        return ""
    return text(workload, "uid") if isinstance(workload, dict) else ""
