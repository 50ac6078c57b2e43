"""Incidents: asks the nodes of a run for stacks, compares them, and records what they show.

First come the Python frames of all ranks, a few times: that takes little more than the gaps between
the looks, and names the incident.  Native frames cost a second or more per process with a
framework's libraries loaded: they are read afterwards, and the incident is recorded again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound, RunwatchError
from runwatch.head.outbox import Outbox, Sent
from runwatch.head.own_journal import OwnJournal
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.record.commands import StacksResult, StacksWanted
from runwatch.record.stacks import Incident, Severity, Stacks
from runwatch.store.store import OF_EACH
from runwatch.views.diagnosis.evidence import RankEvidence, gather
from runwatch.views.diagnosis.hang import HangReport, diagnose
from runwatch.views.diagnosis.progress import Progress, Stall
from runwatch.views.incidents import incidents_of
from runwatch.views.runs import of_last_attempt

GAP_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 15.0
"""So long we wait for the nodes' answers; the report is made of those that came in time."""
WAIT_SECONDS: Final = 0.25
LONG_AGO_SECONDS: Final = 120.0
"""A look at an incident ends within this time, also by a node's clock that is off."""
KEPT_ROUNDS: Final = 24
"""The newest say where ranks are, the others whether they moved."""
MOST_STACK_BYTES: Final = 256 << 20
"""Of stacks, in one look: 10,000 ranks have some 20 kB each."""
MOST_GROUPS: Final = 32
MOST_FRAMES: Final = 60
logger = logging.getLogger("runwatch.head")


QUICK: Final = StacksWanted(rounds=3, gap_seconds=GAP_SECONDS, native=False)
THOROUGH: Final = StacksWanted(rounds=1, gap_seconds=GAP_SECONDS, native=True)


def evidence_of(
    stacks: Iterable[Stacks], progress: Progress | None = None, now_ns: int | None = None
) -> dict[int, RankEvidence]:
    """The diagnosis reads plain bodies."""
    return gather(stacks, progress, now_ns)


class StackTaker:
    """Has nodes look at a run's processes, and reads what they saw."""

    def __init__(self, reading: Reading, outbox: Outbox | None = None) -> None:
        self.reading = reading
        self.outbox = outbox

    def hosts(self, run: RunId, ranks: Sequence[int] | None = None) -> list[str]:
        """Where processes of the newest attempt live."""
        states = of_last_attempt(self.reading.processes(run))
        chosen = None if ranks is None else set(ranks)
        living = (s for s in states if s.state == "running" and (not chosen or s.rank in chosen))
        return list(dict.fromkeys(state.host for state in living))

    def node_of(self, host: str) -> str:
        """Whom to ask about a host's processes."""
        return host if self.outbox is None else self.outbox.node_of(host)

    def ask(self, run: RunId, wanted: StacksWanted, hosts: Iterable[str]) -> Sent[StacksResult]:
        """Ask the agents that speak for these hosts."""
        if self.outbox is None:
            raise NotFound("nobody can be asked here: this head has no way to the nodes")
        command = replace(wanted, run=run)
        nodes = map(self.node_of, hosts)
        return self.outbox.send(command, StacksResult, nodes, ANSWER_SECONDS, run)

    def wait(
        self, sent: Sent[StacksResult], seconds: float, stopping: Callable[[], bool] = lambda: False
    ) -> bool:
        """Whether all have answered within this time."""
        assert self.outbox is not None
        clock = self.reading.clock
        deadline_ns = clock.mono_ns() + int(seconds * 1e9)
        while not stopping():
            left = (deadline_ns - clock.mono_ns()) / 1e9
            if self.outbox.wait(sent, min(max(left, 0.0), WAIT_SECONDS)):
                return True
            if left <= 0:
                return False
        return False

    def taken(
        self,
        run: RunId,
        *,
        command: str | None = None,
        incident: str | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        limit: int | None = None,
    ) -> list[Stacks]:
        """The stacks that the store has, oldest first."""
        rows = self.reading.store.events(
            run,
            kinds=[Stacks.KIND],
            start_ns=start_ns,
            end_ns=end_ns,
            limit=limit,
            newest_first=True,
            most_bytes=MOST_STACK_BYTES,
            of_each=OF_EACH,
        )
        return [
            Stacks.of(row.body)
            for row in sorted(rows, key=lambda row: row.time_ns)
            if Stacks.was_for(row.body, command=command, incident=incident)
        ]


Evidence = Callable[[Iterable[Stacks]], Mapping[int, RankEvidence]]
"""From stacks, with what is known of the run's progress."""


@dataclass(frozen=True, slots=True)
class Look:
    report: HangReport
    notes: Mapping[str, Any]
    """What could not be done."""
    wanted: StacksWanted


class Incidents:
    """Any thread may call.  The caller begins no second investigation of a run."""

    def __init__(
        self, taker: StackTaker, journal: OwnJournal | None = None, *, clock: Clock = system_clock
    ) -> None:
        """Without a journal they can only be read."""
        self.taker = taker
        self._journal = journal or OwnJournal(None)
        self._clock = clock

    def all(self, run: RunId | None = None) -> list[tuple[RunId, Incident]]:
        """Each with its run, the newest first."""
        events = self.taker.reading.store.events(run, kinds=[Incident.KIND], of_each=OF_EACH)
        return incidents_of(events)

    def of(self, run: RunId) -> list[Incident]:
        """The newest first."""
        return [incident for _, incident in self.all(run)]

    def new_id(self) -> str:
        return f"{self._clock.wall_ns():x}-{os.urandom(2).hex()}"

    def look(
        self,
        run: RunId,
        wanted: StacksWanted,
        hosts: Sequence[str],
        evidence: Evidence,
        world_size: int,
        stopping: Callable[[], bool],
    ) -> Look:
        """Take stacks of everyone and say who is to blame, by all that was taken for it."""
        begun_ns = self._clock.wall_ns()
        sent = self.taker.ask(run, wanted, hosts)
        self.taker.wait(sent, ANSWER_SECONDS, stopping)
        earlier_ns = int(LONG_AGO_SECONDS * 1e9)
        stacks = self.taker.taken(run, incident=wanted.incident, start_ns=begun_ns - earlier_ns)
        ranks = _with_reasons(evidence(_latest(stacks)), sent, self._hosts_of(run))
        notes = {
            "unreachable": dict(sent.unreachable),
            "silent_hosts": sorted(set(sent.hosts) - set(sent.results)),
            "looked_at": len({each.rank for each in stacks if each.threads}),
        }
        return Look(diagnose(ranks, world_size=world_size), notes, wanted)

    def _hosts_of(self, run: RunId) -> dict[int, str]:
        states = of_last_attempt(self.taker.reading.processes(run))
        nodes = {host: self.taker.node_of(host) for host in {s.host for s in states}}
        return {s.rank: nodes[s.host] for s in states}

    def opened(
        self,
        run: RunId,
        id: str,
        stall: Stall,
        look: Look,
        detected_ns: int,
        before: Incident | None = None,
        severity: Severity = "incident",
    ) -> Incident:
        """Record it; `before` is the same incident as it was recorded last.

        It was named when it first became an alarm; one that is no alarm, when it was first told.
        """
        report = look.report
        louder = before is not None and not before.is_alarm and severity != "note"
        incident = Incident(
            id=id,
            kind="hang",
            state="open",
            since_ns=stall.since_ns,
            detected_ns=before.detected_ns if before else detected_ns,
            named_ns=before.named_ns if before and not louder else self._clock.wall_ns(),
            text=report.text,
            confidence=report.confidence,
            ranks=report.ranks,
            rounds=look.wanted.first_round + look.wanted.rounds,
            report={**_bounded(report), **look.notes, "stall": stall.to_json()},
            severity=severity,
        )
        return self._record(run, incident)

    def crashed(self, run: RunId, evidence: Mapping[int, RankEvidence], first_ns: int) -> Incident:
        """Ranks ended badly and none is left: which went down first, and which because of it."""
        report = diagnose(evidence)
        now_ns = self._clock.wall_ns()
        return self._record(
            run,
            Incident(
                id=self.new_id(),
                kind="crash",
                state="closed",
                since_ns=first_ns,
                detected_ns=now_ns,
                named_ns=now_ns,
                closed_ns=now_ns,
                why="the run ended",
                text=report.text,
                confidence=report.confidence,
                ranks=report.ranks,
                report=_bounded(report),
            ),
        )

    def close(self, run: RunId, incident: Incident, why: str) -> Incident:
        return self._record(run, incident.closed(self._clock.wall_ns(), why))

    def _record(self, run: RunId, incident: Incident) -> Incident:
        try:
            self._journal.record([incident], run)
        except RunwatchError as error:
            logger.error("the incident %s of %s is not stored: %s", incident.id, run, error)
        return incident


def _latest(stacks: Iterable[Stacks]) -> list[Stacks]:
    """Of the last few rounds: what was true an hour ago is no evidence."""
    by_round = [(each.round, each) for each in stacks if each.round is not None]
    last = max((number for number, _ in by_round), default=0)
    return [each for number, each in by_round if number > last - KEPT_ROUNDS]


def _with_reasons(
    evidence: Mapping[int, RankEvidence], sent: Sent[StacksResult], hosts: Mapping[int, str]
) -> dict[int, RankEvidence]:
    """With the reason, for each rank that nobody looked at."""
    return {rank: _reasoned(each, sent, hosts.get(rank, "")) for rank, each in evidence.items()}


def _reasoned(evidence: RankEvidence, sent: Sent[StacksResult], host: str) -> RankEvidence:
    if evidence.rounds or evidence.ended is not None or evidence.problems:
        return evidence
    if (why := sent.unreachable.get(host)) is not None:
        return replace(evidence, problems=(f"host {host}: {why}",))
    result = sent.results.get(host)
    if result is None:
        return replace(evidence, problems=(f"host {host} has not answered",))
    if result.state == "failed":
        return replace(evidence, problems=(f"host {host}: {result.why}",))
    return evidence


def _bounded(report: HangReport) -> dict[str, Any]:
    plain = report.to_json()
    groups = plain["groups"]
    plain["groups"] = [{**g, "frames": g["frames"][:MOST_FRAMES]} for g in groups[:MOST_GROUPS]]
    plain["groups_left_out"] = max(0, len(groups) - MOST_GROUPS)
    return plain
