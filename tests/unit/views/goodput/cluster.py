"""How tests tell what a cluster and schedulers said about a run, in seconds of its story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from runwatch.record import JournalId
from runwatch.record.pods import PodTold, What
from runwatch.rows import EventRow
from runwatch.views.goodput.account import Goodput
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.waiting import machines_of
from runwatch.views.pods import Pods
from runwatch.views.runs import ProcessState
from tests.unit.views.goodput.story import RUN, SECOND, Notebook, last_ns, scribe_for

OPERATOR = JournalId("operator")
Queue = tuple[int, int | None]


class PodStory(NamedTuple):
    """What the API server says of one pod, in whole seconds."""

    uid: str
    created: int | None = None
    scheduled: int | None = None
    started: int | None = None
    gone: int | None = None
    said: str = ""
    """By the scheduler, while no node had room."""

    def events(self) -> list[EventRow]:
        told: list[tuple[int | None, What, str, str]] = [
            (self.created, "created", "", ""),
            (self.created if self.said else None, "unschedulable", "", self.said),
            (self.scheduled, "scheduled", "", ""),
            (self.started, "started", "train", ""),
            (self.gone, "deleted", "", ""),
        ]
        return [
            event(at, PodTold(pod=self.uid, uid=self.uid, what=what, container=name, message=said))
            for at, what, name, said in told
            if at is not None
        ]


def event(at: int, told: PodTold) -> EventRow:
    return EventRow(OPERATOR, RUN, "cluster", 0, at * SECOND, None, PodTold.KIND, told.body())


def seated(
    books: Sequence[Notebook], seats: Mapping[JournalId, str], now_ns: int, *, world_size: int = 1
) -> list[ProcessState]:
    """The processes as they stand, in the pods with these uids, by their journals."""
    return [
        replace(book.process(now_ns), pod_uid=seats.get(book.journal, ""), world_size=world_size)
        for book in books
    ]


def told_with(
    books: Sequence[Notebook],
    pods: Sequence[PodStory] = (),
    seats: Mapping[JournalId, str] | None = None,
    *,
    now: int | None = None,
    queues: Mapping[int, Queue] | None = None,
    world_size: int = 1,
) -> Goodput:
    """The account of a story.  `seats`: in whose pod each process is; without it the pods are those
    of the processes, in order.  `queues`: from when to when each attempt was in a queue."""
    scribe = scribe_for(books)
    for book in books:
        scribe.batch(book.batch())
    scribe.ledger.settle()
    now_ns = last_ns(books) if now is None else now * SECOND
    if seats is None:
        seats = {book.journal: pod.uid for book, pod in zip(books, pods, strict=False)}
    states = seated(books, seats, now_ns, world_size=world_size)
    states = [_queued(state, (queues or {}).get(state.attempt)) for state in states]
    events = [event for pod in pods for event in pod.events() if event.time_ns <= now_ns]
    machines = machines_of(states, Pods(events))
    goodput = draw_up(scribe.ledger, scribe.lives(states), now_ns, machines)
    assert goodput is not None
    return goodput


def _queued(state: ProcessState, queue: Queue | None) -> ProcessState:
    if queue is None:
        return state
    since, until = queue
    granted_ns = None if until is None else until * SECOND
    return replace(state, queued_at_ns=since * SECOND, granted_at_ns=granted_ns)
