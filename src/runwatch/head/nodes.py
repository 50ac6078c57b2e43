"""Which agent speaks for a host: its own, or that of the node whose container the host is.

A pod has a host name of its own and no agent; the agent of its node (`--all-hosts`) sends its
journals, watches its processes and takes the commands for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from runwatch.clock import Clock, system_clock
from runwatch.head.local import LocalTail
from runwatch.record import JournalId
from runwatch.store.store import Store

if TYPE_CHECKING:  # it needs gRPC
    from runwatch.head.stream import AgentState

ASK_SECONDS: Final = 1.0
"""How often the store is asked where an unknown journal comes from."""


class Nodes:
    def __init__(
        self,
        agents: Callable[[], Mapping[str, AgentState]],
        tail: LocalTail,
        store: Store,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._agents = agents
        self._tail = tail
        self._store = store
        self._clock = clock
        self._hosts: dict[JournalId, str] = {}
        self._asked_ns: int | None = None

    def agents(self) -> list[AgentState]:
        """The connected agents."""
        return list(self._agents().values())

    def names(self) -> set[str]:
        """The names of the nodes whose agents can be asked."""
        return {agent.host for agent in self.agents()} | self._tail.agents()

    def agent_of(self, host: str) -> AgentState | None:
        """The connected agent that speaks for a host."""
        agents = self.agents()
        found = [a for a in agents if a.host == host] or [a for a in agents if host in self._of(a)]
        # Of a program that only sends OTLP, the address may be all that is known of its host.
        found = found or [a for a in agents if a.client and a.client == host]
        return max(found, key=lambda agent: agent.heard_ns, default=None)

    def node_of(self, host: str) -> str:
        """The node to ask about a host's processes; the host itself if no other is known."""
        agent = self.agent_of(host)
        if agent is not None:
            return agent.host
        return self._tail.agent_beside(host) or host

    def clock_offsets(self) -> dict[str, int]:
        """How far hosts' clocks are ahead of ours, in nanoseconds."""
        agents = self.agents()
        ahead = {agent.host: int(agent.clock_offset_seconds * 1e9) for agent in agents}
        for agent in agents:
            for host in self._of(agent):
                ahead.setdefault(host, ahead[agent.host])
        return ahead

    def _of(self, agent: AgentState) -> set[str]:
        """The hosts of the processes that an agent says are alive."""
        if not agent.alive <= self._hosts.keys():
            self._learn()
        hosts = self._hosts
        return {hosts[journal] for journal in agent.alive if journal in hosts}

    def _learn(self) -> None:
        now_ns = self._clock.mono_ns()
        if self._asked_ns is None or now_ns - self._asked_ns >= ASK_SECONDS * 1e9:
            self._asked_ns = now_ns
            self._hosts = {row.journal: row.host for row in self._store.processes()}
