"""Commands of a head, carried out on this node.

They come down the shipper's stream, or lie as files in the Runwatch directory when the head (or
a command line) shares the directory with us.  Each is carried out once, in a thread of its own; an
event `command_result` says how it went.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from runwatch.agent.collectors.base import Target
from runwatch.clock import Clock
from runwatch.errors import WireError
from runwatch.files import Folder, safe_name, shelf
from runwatch.record import Command
from runwatch.record.captures import FAILED
from runwatch.record.commands import CommandResult
from runwatch.record.message import Message
from runwatch.wire.commands import FOLDER, command_from_json

AT_ONCE: Final = 4
REMEMBERED: Final = 1_000
MOST_BYTES: Final = 1 << 20
"""Of a command in a file."""
logger = logging.getLogger("runwatch.agent")


class Tell(Protocol):
    """Records an event in the agent's journal; it goes up like any other record."""

    def __call__(self, kind: str, body: Mapping[str, Any], scope: int = 0) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """What an errand may use."""

    root: Path
    host: str
    clock: Clock
    targets: Callable[[], Sequence[Target]]
    """Live processes of runs on this node."""
    event: Tell

    def tell(self, message: Message, scope: int = 0) -> None:
        self.event(message.KIND, message.body(), scope)

    def journal(self, target: Target) -> Path:
        return self.root / "journals" / target.labels["journal"]


Errand = Callable[[Command, Context], CommandResult]
"""Fills in what only it knows; whose result it is, `Errands` adds."""


class Errands:
    """`take` from any thread; `look` now and then for those that came as files."""

    def __init__(
        self,
        context: Context,
        errands: Mapping[str, Errand],
        run: Callable[[Errand, Command, Context], CommandResult],
    ) -> None:
        """`run` carries one out and never raises: the agent's edge."""
        self.kinds: Final = tuple(sorted(errands))
        self._context = context
        self._errands = errands
        self._run = run
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._room = threading.Semaphore(AT_ONCE)
        self._name = safe_name(context.host)
        self._looked_ns = -1
        self._warned: set[str] = set()

    def take(self, command: Command) -> None:
        if not self._is_new(command.id):
            return
        thread = threading.Thread(
            target=self._carry_out, args=(command,), name=f"runwatch-{command.kind}", daemon=True
        )
        thread.start()

    def look(self) -> None:
        """Files are taken away before they are carried out: at most once.

        Who may write them commands us: only our own user may, root, and whose the directory is.
        """
        place = self._context.root / FOLDER / self._name
        try:
            changed_ns = os.stat(place).st_mtime_ns
        except OSError:
            return
        if changed_ns == self._looked_ns:
            return
        # Read again next time if something may have come since, within the clock's coarseness.
        self._looked_ns = changed_ns
        try:
            with Folder.at(self._context.root) as root:
                trusted = root.trusted()
            with shelf(self._context.root, FOLDER) as commands, commands.below(self._name) as ours:
                self._look_in(ours, trusted)
        except OSError as error:
            self._warn_once(f"commands in files cannot be read: {error}")

    def _look_in(self, folder: Folder, trusted: Collection[int]) -> None:
        if folder.uid not in trusted:
            self._warn_once(f"{folder.path} is user {folder.uid}'s: no commands are taken from it")
            return
        for name in sorted(folder.names()):
            if name.endswith(".json") and self._take_file(folder, name, trusted):
                self._looked_ns = -1

    def _take_file(self, folder: Folder, name: str, trusted: Collection[int]) -> bool:
        """Whether it was taken away."""
        try:
            text = folder.text(name, MOST_BYTES, owners=trusted)
            folder.remove(name)
        except OSError as error:
            self._warn_once(f"cannot take the command {name!r}: {error}")
            return False
        try:
            self.take(command_from_json(text))
        except WireError as error:
            logger.warning("%r: %s", name, error)
        return True

    def _warn_once(self, problem: str) -> None:
        if problem not in self._warned and len(self._warned) < REMEMBERED:
            self._warned.add(problem)
            logger.warning("%s", problem)

    def _is_new(self, id: str) -> bool:
        with self._lock:
            if id in self._seen:
                return False
            self._seen[id] = None
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
            return True

    def _carry_out(self, command: Command) -> None:
        context = self._context
        with self._room:
            result = self._result(command)
            context.tell(replace(result, command=command.id, kind=command.kind, host=context.host))

    def _result(self, command: Command) -> CommandResult:
        now_ns = self._context.clock.wall_ns()
        if command.expires_ns and now_ns > command.expires_ns:
            late = (now_ns - command.expires_ns) / 1e9
            return CommandResult(state=FAILED, why=f"it came {late:.1f} s too late")
        errand = self._errands.get(command.kind)
        if errand is None:
            why = f"this agent cannot {command.kind!r}; it knows {', '.join(self.kinds)}"
            return CommandResult(state=FAILED, why=why)
        return self._run(errand, command, self._context)
