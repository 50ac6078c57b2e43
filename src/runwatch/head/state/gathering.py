"""Whose records of a session have not all come, and asking for them.

An agent records first and sends later, so a session's last samples are on their way when it stops,
and those of a client that found no head may be hours behind.  Records come in the order in which
they were recorded.  So the head has all of a client up to its newest record; and of a client that
was killed and began again, all once the new one says that it holds nothing old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from runwatch.clock import Clock
from runwatch.exports.fleet import UNHEALTHY_SECONDS
from runwatch.exports.session import Absent
from runwatch.head.outbox import Outbox, Sent
from runwatch.head.state.clients import FORGOTTEN_SECONDS, Clients, Process
from runwatch.record.commands import Holdings, HoldingsResult
from runwatch.views.sessions import Session

MARGIN_NS: Final = 500_000_000
"""A sample is written a little after its time, and others may be written before it."""
ASK_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 30.0
GUEST_NS: Final = 3_000_000_000
"""gswarm's clients send at once and cannot be asked: one heard this late has said all."""


class Missing(NamedTuple):
    """A client of which records of a session may still come."""

    absent: Absent
    is_lost: bool
    """It has been silent for so long that nobody waits for it."""


class Gathering:
    """Any thread may ask `missing`; one thread calls `ask`."""

    def __init__(
        self,
        clients: Clients,
        outbox: Outbox | None = None,
        read_until: Callable[[str], int | None] = lambda _: None,
        *,
        clock: Clock,
    ) -> None:
        """`read_until`: up to when the head itself has read the journals of a host."""
        self._clients = clients
        self._outbox = outbox
        self._read_until = read_until
        self._clock = clock
        self._begun_ns = clock.wall_ns()
        self._sent: list[tuple[Sent[HoldingsResult], dict[str, list[str]]]] = []
        self._asked_ns: dict[str, int] = {}
        self._empty_ns: dict[str, int] = {}
        """Host -> when it held nothing that the head had not, by our clock."""

    def missing(self, session: Session) -> list[Missing]:
        """Of a session that goes on: those that are behind by more than is usual."""
        if session.saved is not None and session.saved.state == "complete":
            return []
        self._hear()
        now_ns = self._clock.wall_ns()
        until_ns = session.end_ns
        if until_ns is None:
            until_ns = now_ns - int(UNHEALTHY_SECONDS * 1e9) - MARGIN_NS
        processes = self._clients.processes()
        of_host: dict[str, list[Process]] = {}
        for process in processes:
            of_host.setdefault(process.host, []).append(process)
        return [
            self._missing(session, process, now_ns)
            for process in processes
            if self._is_expected(session, process)
            and not self._has_all(session, process, of_host[process.host], until_ns)
        ]

    def _missing(self, session: Session, process: Process, now_ns: int) -> Missing:
        known_ns = process.newest_ns - session.clocks.get(process.host, 0)
        silent_ns = now_ns - max(process.heard_ns, self._begun_ns)
        is_lost = silent_ns > UNHEALTHY_SECONDS * 1e9
        return Missing(Absent(process.id, process.host, process.labels, known_ns), is_lost)

    def _is_expected(self, session: Session, process: Process) -> bool:
        """Whether it may have recorded anything in the session."""
        if process.ended:
            return False
        seconds = UNHEALTHY_SECONDS if process.is_guest else FORGOTTEN_SECONDS
        newest_ns = process.newest_ns - session.clocks.get(process.host, 0)
        return newest_ns > session.start_ns - int(seconds * 1e9)

    def _has_all(
        self, session: Session, process: Process, beside: Iterable[Process], until_ns: int
    ) -> bool:
        """`beside`: all of its host."""
        ahead_ns = session.clocks.get(process.host, 0)
        newest_ns = process.newest_ns - ahead_ns
        after = [other for other in beside if other.took_over(process)]
        if process.is_guest:
            late_ns = max(GUEST_NS, 3 * session.period_ns)
            return bool(after) or newest_ns >= until_ns - late_ns
        if newest_ns >= until_ns + MARGIN_NS:
            return True
        if (read_ns := self._read_until(process.host)) is not None:
            return read_ns >= until_ns + MARGIN_NS
        empty_ns = self._empty_ns.get(process.host, 0)
        if after:
            began_ns = min(other.start_ns for other in after) - ahead_ns
            return began_ns <= session.start_ns or empty_ns > newest_ns
        return empty_ns >= until_ns + MARGIN_NS

    # ── asking ────────────────────────────────────────────────────────────────────────────────

    def ask(self, session: Session, missing: Sequence[Missing]) -> None:
        """Ask the agents of these clients what they hold; each now and then."""
        now_ns = self._clock.wall_ns()
        if self._outbox is None or now_ns < (session.end_ns or now_ns) + MARGIN_NS:
            return
        due: dict[str, list[str]] = {}
        for host in {each.absent.host for each in missing}:
            if now_ns - self._asked_ns.get(host, 0) >= ASK_SECONDS * 1e9:
                self._asked_ns[host] = now_ns
                due.setdefault(self._outbox.node_of(host), []).append(host)
        if due:
            sent = self._outbox.send(Holdings(), HoldingsResult, due, ANSWER_SECONDS)
            self._sent.append((sent, due))
        recent_ns = now_ns - int(ANSWER_SECONDS * 1e9)
        self._sent = [(sent, hosts) for sent, hosts in self._sent if sent.issued_ns > recent_ns]

    def _hear(self) -> None:
        for sent, hosts in self._sent:
            for node, result in list(sent.results.items()):
                if result.waiting == 0 and result.state == "done":
                    for host in hosts.get(node, ()):
                        known_ns = self._empty_ns.get(host, 0)
                        self._empty_ns[host] = max(known_ns, sent.issued_ns)
