"""An agent's status in `<root>/agent/<host>.status`, for `runwatch status`.

An agent knows which head it sends to, why it is not connected, how far each journal is sent and
which journals it leaves alone.  It listens on no port, so nobody can ask it: it writes a file when
this changes.  The file stays when the agent ends or is killed, with the last status.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from runwatch._version import __version__
from runwatch.clock import Clock, system_clock
from runwatch.files import Folder, safe_name, shelf
from runwatch.journal.agents import FOLDER
from runwatch.journal.liveness import pid_namespace
from runwatch.record import JournalId, Position

if TYPE_CHECKING:  # readers of the note need not import gRPC
    from runwatch.agent.sender import Sender
    from runwatch.agent.senders import Senders
    from runwatch.agent.settings import AgentSettings
    from runwatch.ship.tail import Tail

VERSION: Final = 1
PROGRESS_SECONDS: Final = 10.0
"""How far journals are sent changes all the time: it is written at most this often."""
MOST_ASIDE: Final = 100
MOST_JOURNALS: Final = 2_000
MOST_BYTES: Final = 1 << 20
MOST_WORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class LeftAside:
    """A journal that is not sent, and why."""

    journal: str
    why: str
    since_ns: int
    """Wall clock."""
    by_head: bool = False
    """Whether the head refused it because a limit was reached."""


@dataclass(frozen=True, slots=True)
class HeadState:
    """A head that the agent sends to."""

    address: str
    own: bool = False
    """Whether the agent's settings name it; else journals do."""
    connected: bool = False
    problem: str = ""
    changed_ns: int = 0
    """When `connected` last changed."""
    moved: bool = False
    """The head is not at this address any more, and was found at another one."""


@dataclass(frozen=True, slots=True)
class AgentNote:
    pid: int
    pid_namespace: int
    runwatch: str
    """The agent's version."""
    since_ns: int
    """When the agent began, wall clock."""
    head: str = ""
    """The address it sends to, its own head's first; empty: it has no head."""
    all_hosts: bool = False
    """Whether it serves every host that records in its directory."""
    connected: bool = False
    problem: str = ""
    """Why the head takes nothing now, though the agent may be connected."""
    changed_ns: int = 0
    """When `connected` last changed."""
    aside: Sequence[LeftAside] = ()
    aside_count: int = 0
    dropped_records: int = 0
    """How many records were deleted to free space before a head had them, since it began."""
    dropped_ns: int = 0
    """When that number last grew."""
    heads: Sequence[HeadState] = ()
    """All heads that it sends to; empty in the note of an older agent."""
    ended_ns: int = 0
    """0 while the agent runs, and if it was killed."""
    written_ns: int = 0
    reached: Mapping[JournalId, Position] = field(default_factory=dict)
    """How far every head that it is for has each journal."""
    reached_at: Mapping[str, Mapping[JournalId, Position]] = field(default_factory=dict)
    """The same by the head's address, for the journals of agents: those may be for several."""


def note_name(host: str) -> str:
    return f"{safe_name(host)}.status"


class StatusNote:
    """Writes the note: at once when a fact changes, now and then when only more was sent."""

    def __init__(self, settings: AgentSettings, host: str, clock: Clock = system_clock) -> None:
        self._root, self._name, self._clock = settings.root, note_name(host), clock
        now = clock.wall_ns()
        self._last = AgentNote(
            os.getpid(),
            pid_namespace(),
            __version__,
            now,
            head=settings.head,
            all_hosts=settings.all_hosts,
            changed_ns=now,
        )
        self._progress_ns = 0
        self._is_written = False

    def tell(
        self, tail: Tail, senders: Senders, dropped_records: int, *, ended: bool = False
    ) -> None:
        both = tail.aside() + senders.aside()
        # again_ns is 0 for journals of a host that is gone: they wait, nothing is wrong with them.
        aside = list({each.journal: each for each in both if each.again_ns != 0}.values())
        heads = tuple(self._state_of(sender) for sender in senders.all())
        first = next(iter(heads), HeadState(""))
        self.write(
            heads=heads,
            head=first.address,
            connected=first.connected,
            problem=first.problem,
            aside=tuple(
                LeftAside(each.journal, each.why, each.since_ns, each.by_head)
                for each in aside[:MOST_ASIDE]
            ),
            aside_count=len(aside),
            dropped_records=dropped_records,
            reached=senders.acknowledged(),
            reached_at=senders.acknowledged_at(),
            ended_ns=self._clock.wall_ns() if ended else 0,
        )

    def _state_of(self, sender: Sender) -> HeadState:
        """Of one head; `changed_ns` stays while `connected` does."""
        last = {each.address: each for each in self._last.heads}.get(sender.address)
        connected, problem = sender.shipper.connected, sender.shipper.problem[:MOST_WORDS]
        is_same = last is not None and last.connected == connected
        changed_ns = last.changed_ns if last is not None and is_same else self._clock.wall_ns()
        moved = sender.has_moved
        return HeadState(sender.address, sender.is_own, connected, problem, changed_ns, moved)

    def write(
        self,
        *,
        reached: Mapping[JournalId, Position],
        reached_at: Mapping[str, Mapping[JournalId, Position]] | None = None,
        **facts: Any,
    ) -> None:
        last, now_ns, wall_ns = self._last, self._clock.mono_ns(), self._clock.wall_ns()
        now = replace(last, **facts)
        if now.connected != last.connected:
            now = replace(now, changed_ns=wall_ns)
        if now.dropped_records > last.dropped_records:
            now = replace(now, dropped_ns=wall_ns)
        is_due = reached != last.reached and now_ns >= self._progress_ns
        if self._is_written and now == last and not is_due:
            return
        # Remember all of `reached`: journals that do not fit must not cause another write.
        self._last, self._is_written = replace(now, reached=reached), True
        self._progress_ns = now_ns + int(PROGRESS_SECONDS * 1e9)
        newest = sorted(reached, reverse=True)[:MOST_JOURNALS]
        kept = {name: reached[name] for name in newest}
        full = replace(now, reached=kept, reached_at=reached_at or {}, written_ns=wall_ns)
        written = {"version": VERSION, **asdict(full)}
        with suppress(OSError), shelf(self._root, FOLDER) as folder:
            folder.write(self._name, json.dumps(written).encode())


def read_note(folder: Folder, host: str, owners: Collection[int]) -> AgentNote | None:
    """The last note of the host's agent; None if there is none, or it cannot be understood."""
    try:
        written = json.loads(folder.read(note_name(host), MOST_BYTES, owners=owners))
        return _note(written) if isinstance(written, dict) else None
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
        return None


def _note(written: Mapping[str, Any]) -> AgentNote:
    """Ignores fields that a later version added."""
    known = {
        name: type(fresh)(written.get(name, fresh))
        for name, fresh in asdict(_EMPTY).items()
        if name not in ("aside", "reached", "reached_at", "heads")
    }
    aside = tuple(
        LeftAside(
            str(each["journal"]),
            str(each["why"]),
            int(each["since_ns"]),
            bool(each.get("by_head", False)),
        )
        for each in _objects(written.get("aside", ()))
    )
    heads = tuple(
        HeadState(**{n: type(v)(each.get(n, v)) for n, v in asdict(_NO_HEAD).items()})
        for each in _objects(written.get("heads", ()))
    )
    reached = dict(written.get("reached", {}))
    return AgentNote(
        **known,
        heads=heads or _only(known),
        aside=aside,
        reached=_positions(reached),
        reached_at={str(k): _positions(v) for k, v in dict(written.get("reached_at", {})).items()},
    )


def _positions(written: Mapping[str, Any]) -> dict[JournalId, Position]:
    return {JournalId(str(name)): Position(int(at)) for name, at in written.items()}


def _only(known: Mapping[str, Any]) -> tuple[HeadState, ...]:
    """The head in the note of an older agent, which had one at most."""
    if not known["head"]:
        return ()
    names = ("connected", "problem", "changed_ns")
    return (HeadState(known["head"], True, **{name: known[name] for name in names}),)


_EMPTY: Final = AgentNote(0, 0, "", 0)
_NO_HEAD: Final = HeadState("")


def _objects(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)]
