"""The outbox: commands to agents, and their results.

A connected agent gets a command down its stream.  A node whose journals we read from the
directory itself finds it there as a file.  Results are ordinary records; `stored` looks for them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from runwatch.clock import Clock, system_clock
from runwatch.files import safe_name, shelf
from runwatch.record import Batch, Command, RunId
from runwatch.record.captures import FAILED
from runwatch.record.commands import CommandResult
from runwatch.record.message import Message
from runwatch.wire.commands import FOLDER, command_to_json

REMEMBERED: Final = 1_000
R = TypeVar("R", bound=CommandResult)


class Reach(Protocol):
    """A connected agent."""

    @property
    def host(self) -> str: ...
    @property
    def commands(self) -> Sequence[str]: ...
    @property
    def clock_offset_seconds(self) -> float: ...
    @property
    def projects(self) -> Sequence[str]: ...
    def send(self, command: Command) -> None: ...


MessageOf = Callable[[str, int], Message]
"""What to ask of a host, given how far its clock is ahead of ours in nanoseconds."""


@dataclass(slots=True)
class Sent(Generic[R]):
    """A command that was sent, and its results so far, by host."""

    id: str
    kind: str
    result: type[R]
    hosts: tuple[str, ...]
    """Those that were asked."""
    unreachable: Mapping[str, str]
    """The others, and why."""
    issued_ns: int
    results: dict[str, R] = field(default_factory=dict)
    run: RunId | None = None
    """What it is about; None: programs of no run."""

    @property
    def is_done(self) -> bool:
        return set(self.hosts) <= set(self.results)


class Outbox:
    """Any thread may send, wait and ask."""

    def __init__(
        self,
        root: Path | None,
        agents: Callable[[], Iterable[Reach]],
        local_hosts: Callable[[], Iterable[str]] = tuple,
        node_of: Callable[[str], str] = str,
        *,
        project_of: Callable[[RunId], str | None] = lambda _: None,
        clock: Clock = system_clock,
    ) -> None:
        """`local_hosts`: nodes whose agents see our directory.  Without a root there are none.
        `node_of`: the node whose agent speaks for a host."""
        self._project_of = project_of
        self._root = root
        self._agents = agents
        self._local_hosts = local_hosts
        self.node_of = node_of
        self._clock = clock
        self._changed = threading.Condition()
        self._sent: OrderedDict[str, Sent[Any]] = OrderedDict()

    def send(
        self,
        message: Message | MessageOf,
        result: type[R],
        hosts: Iterable[str],
        seconds: float,
        run: RunId | None = None,
        *,
        first: Callable[[Sent[R]], None] = lambda _: None,
    ) -> Sent[R]:
        """Ask `hosts`.  Not carried out by an agent that learns of it more than `seconds` later.
        An agent whose token is for other projects than the run's is told nothing of it.  `first` is
        called before anybody is asked; if it raises, nobody is."""
        now_ns = self._clock.wall_ns()
        id = f"{now_ns:x}-{os.urandom(4).hex()}"
        deliveries: list[tuple[str, Callable[[Command], None], Message, int]] = []
        unreachable: dict[str, str] = {}
        reachable = self._reachable(run)
        local = frozenset(self._local_hosts()) if self._root is not None else frozenset()
        kind = ""
        for host in dict.fromkeys(hosts):
            agent = reachable.get(host)
            ahead_ns = int(agent.clock_offset_seconds * 1e9) if agent else 0
            asked = message if isinstance(message, Message) else message(host, ahead_ns)
            kind = asked.KIND
            if agent is not None and kind not in agent.commands:
                unreachable[host] = f"its agent is too old to take the command {kind!r}"
            elif agent is not None:
                deliveries.append((host, agent.send, asked, ahead_ns))
            elif host in local:
                deliveries.append((host, partial(self._write, host), asked, ahead_ns))
            else:
                unreachable[host] = "no agent of it is connected"
        asked_hosts = tuple(host for host, *_ in deliveries)
        sent = Sent(id, kind, result, asked_hosts, unreachable, now_ns, run=run)
        first(sent)
        self._remember(sent)
        until_ns = self._clock.wall_ns() + int(seconds * 1e9)
        for _, deliver, asked, ahead_ns in deliveries:
            deliver(Command(id, kind, asked.body(), now_ns, until_ns + ahead_ns))
        return sent

    def _reachable(self, run: RunId | None) -> dict[str, Reach]:
        project = None if run is None else self._project_of(run)
        return {
            agent.host: agent
            for agent in self._agents()
            if not agent.projects or project in agent.projects
        }

    def _remember(self, sent: Sent[R]) -> None:
        with self._changed:
            self._sent[sent.id] = sent
            while len(self._sent) > REMEMBERED:
                self._sent.popitem(last=False)

    def _write(self, host: str, command: Command) -> None:
        assert self._root is not None
        try:
            with (
                shelf(self._root, FOLDER, make=True) as commands,
                commands.below(safe_name(host), make=True) as folder,
            ):
                folder.write(f"{command.id}.json", command_to_json(command).encode())
        except OSError as error:
            why = f"its command cannot be left for it: {error}"
            failed = CommandResult(command.id, command.kind, host, FAILED, why)
            self._note(host, failed.body())

    def find(self, id: str) -> Sent[Any] | None:
        return self._sent.get(id)

    def wait(self, sent: Sent[R], seconds: float) -> bool:
        """Whether every host has answered, within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: sent.is_done, seconds)

    def stored(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            for event in batch.events:
                if event.kind == CommandResult.KIND:
                    self._note(batch.origin.host, event.body)

    def _note(self, host: str, body: Mapping[str, Any]) -> None:
        id = CommandResult.of(body).command
        with self._changed:
            sent = self._sent.get(id)
            if sent is not None:
                sent.results[host] = sent.result.of(body)
                self._changed.notify_all()
