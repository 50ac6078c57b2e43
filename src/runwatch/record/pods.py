"""What the cluster says of the pods of a run.  The operator writes it into a journal of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, get_args

from runwatch.record.checks import COUNT, NAME, OFFSET, TEXT
from runwatch.record.message import Message, checked, one_of

What = Literal[
    "", "created", "unschedulable", "scheduled", "pulling", "pull_failed", "started",
    "container_ended", "oom_killed", "evicted", "preempted", "deleted", "ended", "node_not_ready",
    "node_ready",
]  # fmt: skip
"""What happened.  "": something that only a newer reader knows.

* `created`: the pod is wanted;
* `unschedulable`: no node has room, and the message is the scheduler's; `scheduled`: it has a node;
* `pulling`, `pull_failed`: an image comes, or does not;
* `started`: one of its containers began.  Neither an init container nor a sidecar is told of so;
* `container_ended`: with its exit code or signal, also of init containers and sidecars;
* `oom_killed`: the same, and the kernel says that memory ran out;
* `evicted`, `preempted`: its node, or a pod of higher priority, sent it away;
* `deleted`: somebody or something deleted it;
* `ended`: it is Succeeded or Failed, and the reason is the cluster's;
* `node_not_ready`, `node_ready`: its node is not heard of, or is again.
"""
WORDS: Final = get_args(What)


@dataclass(frozen=True, slots=True)
class PodTold(Message):
    """Something happened to a pod, or to a container of it.

    The event's time is when it happened, as the API server has it.  The same may be told twice (an
    operator started again): what has the same uid, container, restarts, `what` and time is one.
    """

    KIND: ClassVar[str] = "pod"

    pod: str = checked(NAME, "")
    namespace: str = checked(NAME, "")
    uid: str = checked(NAME, "")
    """A pod that is made again under the same name has another."""
    node: str = checked(NAME, "")
    workload: str = checked(NAME, "")
    """Kind and name: JobSet/llama."""
    workload_uid: str = checked(NAME, "")
    what: What = one_of(WORDS, "")
    reason: str = checked(NAME, "")
    """The cluster's one word: OOMKilled, Evicted, ErrImagePull, NodeLost …"""
    message: str = checked(TEXT, "")
    """The cluster's sentence."""
    container: str = checked(NAME, "")
    """"": it is about the pod."""
    restarts: int = checked(COUNT, 0)
    """How often the container had been started again by then: its first life has 0."""
    exit_code: int | None = checked(OFFSET)
    signal: int | None = checked(OFFSET)
