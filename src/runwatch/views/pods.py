"""The pods of a run, as the cluster tells of them: a fold of `pod` events.

Events come in any order and may come twice.  Whatever is kept is the least or the greatest of what
was told, so neither changes anything.  Times are the API server's, in whole seconds.

`end_of` says how a process ended in whose pod something happened; `life.py` asks it where nobody
saw the process end.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from runwatch.record.pods import PodTold, What
from runwatch.rows import EventRow

Range = tuple[int, int]
Phase = Literal["waiting", "starting", "running", "ended", "unknown"]
How = Literal["", "completed", "failed", "evicted", "preempted", "deleted", "node_lost"]

_SECOND_NS: Final = 1_000_000_000
# A time of the cluster is cut to the second, and clocks are a little apart.
_APART_NS: Final = 5 * _SECOND_NS
# From the word that a pod must go to the silence of its processes, and from that silence to the
# word; a node is given up a while after its last sign of life.
_NEAR_NS: Final = 120 * _SECOND_NS
_NODE_NS: Final = 400 * _SECOND_NS
# A pod may be made in place of one that has still to stop.
_EARLY_NS: Final = 60 * _SECOND_NS
_LOOPS: Final = 2
_LONGEST: Final = 1_000
_SENT_AWAY: Final[Mapping[What, How]] = {
    "evicted": "evicted", "preempted": "preempted", "deleted": "deleted",
}  # fmt: skip


class Word(NamedTuple):
    """What the cluster said of something, and when."""

    time_ns: int
    reason: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        """The cluster's sentence, or else its one word."""
        return self.message or self.reason


class Ended(NamedTuple):
    """How a container ended."""

    time_ns: int
    exit_code: int = -1
    """-1: not told."""
    signal: int = 0
    """0: none was told."""
    reason: str = ""

    @property
    def code(self) -> int | None:
        return None if self.exit_code < 0 else self.exit_code

    @property
    def by_signal(self) -> int | None:
        """Shells and runtimes add 128 to the number of a signal."""
        return self.signal or (self.exit_code - 128 if 128 < self.exit_code <= 192 else None)


class End(NamedTuple):
    """How a process ended, as far as its pod says."""

    time_ns: int
    exit_code: int | None
    signal: int | None
    out_of_memory: bool
    how: How
    """What happened to the pod, if that is why."""
    why: str
    """In words; "" if the exit code says it all."""


@dataclass(slots=True)
class Container:
    """One life of a container: it may be started again in its pod."""

    started_ns: int | None = None
    ended: Ended | None = None
    out_of_memory: bool = False


@dataclass(slots=True)
class Pod:
    uid: str
    pod: str = ""
    namespace: str = ""
    node: str = ""
    workload: str = ""
    workload_uid: str = ""
    created_ns: int | None = None
    told_scheduled_ns: int | None = None
    at_work_ns: int | None = None
    """The first that its node was seen to do for it."""
    containers: dict[str, dict[int, Container]] = field(default_factory=dict)
    """By name, and by how often it had been started again."""
    started: set[str] = field(default_factory=set)
    """Those that are neither init containers nor sidecars."""
    words: dict[What, Word] = field(default_factory=dict)
    """The first of what ends it, and the last of what keeps it waiting."""
    node_words: dict[int, tuple[bool, str]] = field(default_factory=dict)

    # ── what was told ─────────────────────────────────────────────────────────────────────────

    def tell(self, time_ns: int, told: PodTold) -> None:
        for name in ("pod", "namespace", "node", "workload", "workload_uid"):
            if value := getattr(told, name):
                setattr(self, name, max(value, getattr(self, name)))
        what = told.what
        word = Word(time_ns, told.reason[:_LONGEST], told.message[:_LONGEST])
        if what == "created":
            self.created_ns = _first(self.created_ns, time_ns)
        elif what == "scheduled":
            self.told_scheduled_ns = _first(self.told_scheduled_ns, time_ns)
        elif what in ("unschedulable", "pulling", "pull_failed"):
            self.words[what] = max(word, self.words.get(what, word), key=_telling)
        elif what in ("evicted", "preempted", "deleted", "ended"):
            self.words[what] = min(word, self.words.get(what, word))
        elif what in ("node_not_ready", "node_ready"):
            known = self.node_words.get(time_ns, (False, ""))
            self.node_words[time_ns] = max(known, (what == "node_not_ready", word.text))
        elif what in ("started", "container_ended", "oom_killed"):
            self._tell_container(time_ns, told)
        if what in ("pulling", "pull_failed", "started", "container_ended", "oom_killed"):
            self.at_work_ns = _first(self.at_work_ns, time_ns)

    def _tell_container(self, time_ns: int, told: PodTold) -> None:
        lives = self.containers.setdefault(told.container, {})
        life = lives.setdefault(told.restarts, Container())
        if told.what == "started":
            self.started.add(told.container)
            life.started_ns = _first(life.started_ns, time_ns)
            return
        life.out_of_memory |= told.what == "oom_killed"
        code = -1 if told.exit_code is None else told.exit_code
        ended = Ended(time_ns, code, told.signal or 0, told.reason[:_LONGEST])
        if life.ended is None:
            life.ended = ended
        else:  # the same end in two words: the first time, and what either knows
            least, most = sorted((life.ended, ended))
            life.ended = Ended(
                least.time_ns,
                max(least.exit_code, most.exit_code),
                max(least.signal, most.signal),
                max(least.reason, most.reason),
            )

    # ── its way to a running container ────────────────────────────────────────────────────────

    @property
    def scheduled_ns(self) -> int | None:
        """When it got its node, or was at work there, if nobody said when."""
        told = self.told_scheduled_ns
        return self.at_work_ns if told is None else told

    @property
    def started_ns(self) -> int | None:
        """When the last of its containers began for the first time."""
        first = [
            min(life.started_ns for life in lives.values() if life.started_ns is not None)
            for name, lives in self.containers.items()
            if name in self.started
        ]
        return max(first, default=None)

    @property
    def gone_ns(self) -> int | None:
        """When it was over, or was sent away."""
        ends = [word.time_ns for what, word in self.words.items() if what in _OVER]
        return min(ends, default=None)

    def waiting(self, now_ns: int) -> Range | None:
        """When it waited for a node."""
        return _range(self.created_ns, now_ns, self.scheduled_ns, self.gone_ns)

    def starting(self, now_ns: int) -> Range | None:
        """When it had a node, and its images, volumes and init containers were waited for."""
        return _range(self.scheduled_ns, now_ns, self.started_ns, self.gone_ns)

    def is_coming(self, since_ns: int) -> bool:
        """Whether it was made in place of one that was there until then."""
        return self.created_ns is not None and self.created_ns >= since_ns - _EARLY_NS

    def phase(self) -> Phase:
        if self.gone_ns is not None:
            return "ended"
        if self.started_ns is not None:
            return "running"
        if self.scheduled_ns is not None:
            return "starting"
        return "unknown" if self.created_ns is None else "waiting"

    @property
    def out_of_memory(self) -> bool:
        return any(c.out_of_memory for lives in self.containers.values() for c in lives.values())

    def ended(self) -> End | None:
        """How it ended as a whole, whatever ran in it."""
        gone_ns = self.gone_ns
        if gone_ns is None:
            return None
        mine = [self.containers[name] for name in self.started]
        last = [life for lives in mine for at, life in lives.items() if at == max(lives)]
        bad = [life for life in last if life.ended is not None and life.ended.exit_code != 0]
        life = min(bad or last, key=lambda c: c.ended or Ended(gone_ns), default=Container())
        return self._end(life, life.ended, 0, gone_ns)

    # ── how a process in it ended ─────────────────────────────────────────────────────────────

    def end_of(self, container: str, start_ns: int, last_ns: int) -> End | None:
        """How a process ended that began at `start_ns` and was last heard of at `last_ns`; None if
        the pod does not say, or the process was heard of after what it says."""
        life = self._life(container, start_ns, last_ns)
        if life is not None and life.ended is not None:
            return self._end(life, life.ended, start_ns, last_ns)
        return self._end_unseen(start_ns, last_ns)

    def _end(self, life: Container, ended: Ended | None, start_ns: int, last_ns: int) -> End | None:
        if ended is None:
            return self._end_unseen(start_ns, last_ns)
        how, why = self._sent_away(start_ns, ended.time_ns + _APART_NS)
        by_signal = ended.by_signal
        if life.out_of_memory or (how == "deleted" and by_signal not in _ASKED_TO_GO):
            how, why = "", ""  # who ended by itself is cleared away then
        time_ns = max(ended.time_ns, min(last_ns, ended.time_ns + _APART_NS))
        return End(time_ns, ended.code, by_signal, life.out_of_memory, how, why)

    def _end_unseen(self, start_ns: int, last_ns: int) -> End | None:
        """Nobody told of its container's end: of the pod as a whole something may be known."""
        over, lost = self.words.get("ended"), self._node_lost(last_ns)
        until_ns = last_ns + (_NODE_NS if lost else _NEAR_NS)
        how, why = self._sent_away(start_ns, until_ns)
        if how and lost:
            how, why = "node_lost", lost
        if not how and over is not None and over.time_ns >= last_ns - _APART_NS:
            how, why = _of_phase(over)
        at_ns = last_ns if over is None else min(max(over.time_ns, last_ns), until_ns)
        return End(at_ns, None, None, False, how, why) if how else None

    def _life(self, container: str, start_ns: int, last_ns: int) -> Container | None:
        """The container's life in which the process ran.  If the process did not say in which
        container: of those that may be, the first to end after it was last heard of."""
        if container:
            return self._life_of(container, start_ns, last_ns)
        names = self.started or self.containers.keys()
        found = [life for name in names if (life := self._life_of(name, start_ns, last_ns))]
        over = [life for life in found if life.ended is not None]
        if len(over) < len(found) and len(names) > 1:
            return None  # which of them it ran in is not known, and one goes on
        return min(over or found, key=lambda c: c.ended or Ended(0), default=None)

    def _life_of(self, name: str, start_ns: int, last_ns: int) -> Container | None:
        lives = self.containers.get(name, {})
        for number in sorted(lives, reverse=True):
            life, before = lives[number], lives.get(number - 1)
            begun_ns = life.started_ns
            if begun_ns is None and before is not None and before.ended is not None:
                begun_ns = before.ended.time_ns
            if begun_ns is not None and begun_ns > start_ns + _SECOND_NS:
                continue
            if life.ended is not None:
                heard_after = last_ns > life.ended.time_ns + _APART_NS
                if heard_after or life.ended.time_ns + _SECOND_NS < start_ns:
                    return None
            return life
        return None

    def _sent_away(self, start_ns: int, until_ns: int) -> tuple[How, str]:
        """What sent the pod away while the process was there, and the cluster's words."""
        for what, how in _SENT_AWAY.items():
            word = self.words.get(what)
            if word is not None and start_ns - _SECOND_NS <= word.time_ns <= until_ns:
                return how, word.text
        return "", ""

    def _node_lost(self, last_ns: int) -> str:
        """In words, if its node was not heard of any more when the process was not."""
        found = ""
        for time_ns, (is_lost, text) in sorted(self.node_words.items()):
            if is_lost and last_ns - _NEAR_NS <= time_ns <= last_ns + _NODE_NS:
                found = found or text or "the node is not ready"
            elif not is_lost and time_ns <= last_ns:
                found = ""  # it had come back, and the process was there
        return found

    def silent_node(self, last_ns: int) -> str:
        """Words about a process that was last heard of then, if its node is not heard of either."""
        lost = self._node_lost(last_ns)
        return f"its node {self.node or 'has no name'} is not heard of: {lost}" if lost else ""

    # ── why nothing runs ──────────────────────────────────────────────────────────────────────

    def trouble(self) -> str:
        """What keeps it from running, in the cluster's words; "" while it just starts."""
        phase = self.phase()
        if phase == "waiting" and (word := self.words.get("unschedulable")):
            return f"waiting for a node: {word.text or 'no node has room'}"
        failed, pulling = self.words.get("pull_failed"), self.words.get("pulling")
        if phase == "starting" and failed and not (pulling and pulling.time_ns > failed.time_ns):
            return f"cannot get its image: {failed.text or 'the pull failed'}"
        if phase in ("starting", "running") and (looping := self._looping()):
            return looping
        return ""

    def _looping(self) -> str:
        for name, lives in sorted(self.containers.items()):
            number = max(lives)
            ended = lives[number].ended
            if number >= _LOOPS and ended is not None:
                code = "" if ended.code is None else f", the last time with exit code {ended.code}"
                return f"container {name} ends again and again{code}"
        return ""


_OVER: Final = ("evicted", "preempted", "deleted", "ended")
_ASKED_TO_GO: Final = (signal.SIGTERM, signal.SIGKILL)


def _telling(word: Word) -> tuple[bool, Word]:
    """That a node waits before it pulls again says less than why the pull failed."""
    return word.reason != "ImagePullBackOff", word


def _first(known: int | None, time_ns: int) -> int:
    return time_ns if known is None else min(known, time_ns)


def _range(since_ns: int | None, now_ns: int, *ends: int | None) -> Range | None:
    if since_ns is None:
        return None
    until_ns = min([now_ns, *(end for end in ends if end is not None)])
    return (since_ns, until_ns) if since_ns < until_ns else None


def _of_phase(over: Word) -> tuple[How, str]:
    """`ended` says Succeeded or Failed, or why."""
    if over.reason in ("Succeeded", "Completed"):
        return "completed", ""
    return "failed", over.message if over.reason == "Failed" else over.text


# ── all of them ────────────────────────────────────────────────────────────────────────────────


class Pods:
    """By their uids: a pod that is made again under the same name is another."""

    def __init__(self, rows: Iterable[EventRow] = ()) -> None:
        self._pods: dict[str, Pod] = {}
        for row in rows:
            self.add(row)

    def add(self, row: EventRow) -> None:
        if row.kind == PodTold.KIND:
            told = PodTold.of(row.body)
            if told.uid:
                self._pods.setdefault(told.uid, Pod(told.uid)).tell(row.time_ns, told)

    def get(self, uid: str) -> Pod | None:
        return self._pods.get(uid) if uid else None

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def __len__(self) -> int:
        return len(self._pods)

    def coming(self, since_ns: int, known: Collection[str]) -> list[Pod]:
        """Those in which no process is known yet, made since what was there before went down."""
        return [pod for pod in self if pod.uid not in known and pod.is_coming(since_ns)]


NO_PODS: Final = Pods()


def trouble(pods: Iterable[Pod]) -> str:
    """Why these do not run, in one line: what most of them say; "" if they just start."""
    by_words: dict[str, list[str]] = {}
    for pod in pods:
        if words := pod.trouble():
            by_words.setdefault(words, []).append(pod.pod)
    if not by_words:
        return ""
    words, names = max(by_words.items(), key=lambda item: (len(item[1]), item[0]))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"pod {min(names)}{more}: {words}"
