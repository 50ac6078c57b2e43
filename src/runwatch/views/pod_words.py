"""What happened to a pod, in a line for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from runwatch.record.pods import PodTold, What
from runwatch.rows import EventRow

TROUBLE: Final[tuple[What, ...]] = (
    "unschedulable", "pull_failed", "oom_killed", "evicted", "preempted", "deleted",
    "node_not_ready", "node_ready",
)  # fmt: skip
"""What people look for when a run stands or has ended; the rest is the usual way of a pod."""
Program = tuple[str, str]
_TOLD_TO_GO: Final = (137, 143)
_PLAIN: Final[dict[What, str]] = {
    "": "something happened",
    "created": "was made",
    "scheduled": "has a node",
    "pulling": "its image comes",
    "preempted": "preempted",
    "evicted": "evicted",
    "deleted": "deleted",
    "unschedulable": "waits for a node",
    "pull_failed": "cannot get its image",
    "node_not_ready": "its node is not heard of",
    "node_ready": "its node is heard of again",
}


def once(events: Iterable[EventRow]) -> Iterator[EventRow]:
    """Events of pods, each once: an operator that was started again may have told it twice."""
    seen: set[tuple[str, str, int, str, int]] = set()
    for event in events:
        told = PodTold.of(event.body)
        same = told.uid, told.container, told.restarts, told.what, event.time_ns
        if same not in seen:
            seen.add(same)
            yield event


def programs(all_told: Iterable[PodTold]) -> set[Program]:
    """The containers that are neither init containers nor sidecars, by their pod's uid."""
    return {(told.uid, told.container) for told in all_told if told.what == "started"}


def is_trouble(told: PodTold, programs: Collection[Program]) -> bool:
    """A sidecar is killed when the program beside it has ended."""
    if told.what == "container_ended":
        is_sidecar = (told.uid, told.container) not in programs
        return bool(told.exit_code) and not (is_sidecar and told.exit_code in _TOLD_TO_GO)
    return told.what in TROUBLE


def words(told: PodTold) -> str:
    """pod llama-0 evicted: The node was low on resource: memory."""
    said = told.message or told.reason
    if told.what in ("started", "container_ended", "oom_killed"):
        return f"pod {told.pod}: container {told.container} {_of_container(told)}"
    if told.what == "ended":
        well = told.reason in ("Succeeded", "Completed")
        why = "" if told.reason == "Failed" else told.message or told.reason
        return f"pod {told.pod} {'completed' if well else f'failed: {why}' if why else 'failed'}"
    if told.what == "scheduled" and told.node:
        return f"pod {told.pod} has node {told.node}"
    colon = " " if told.what in ("preempted", "evicted", "deleted") else ": "
    line = f"pod {told.pod}{colon}{_PLAIN.get(told.what, told.what)}"
    return f"{line}: {said.strip()}" if said and told.what in TROUBLE else line


def _of_container(told: PodTold) -> str:
    again = f" again ({told.restarts})" if told.restarts else ""
    if told.what == "started":
        return f"started{again}"
    if told.what == "oom_killed":
        return "was killed: out of memory"
    if told.exit_code == 0:
        return "ended"
    code = f" with exit code {told.exit_code}" if told.exit_code is not None else ""
    return f"ended{code}" if told.reason in ("", "Error") else f"ended{code}: {told.reason}"
