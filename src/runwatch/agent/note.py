"""What an agent says of itself in `<root>/agent/<host>.status`, for `runwatch status`.

An agent knows which head it sends to, why it is not connected, how far each journal is sent and
which journals it leaves alone.  Nobody can ask it: it listens to nobody.  So it writes that down
when it changes.  The file stays when the agent ends or is killed: then it says how things stood.
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

if TYPE_CHECKING:  # who only reads the note need not wait for gRPC to be imported
    from runwatch.agent.settings import AgentSettings
    from runwatch.ship.client import Shipper
    from runwatch.ship.tail import Tail

VERSION: Final = 1
PROGRESS_SECONDS: Final = 10.0
"""How far journals are sent changes all the time: it is written so often at most."""
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
    """The head did not take it: a limit was reached."""


@dataclass(frozen=True, slots=True)
class AgentNote:
    pid: int
    pid_namespace: int
    runwatch: str
    """Its version."""
    since_ns: int
    """When it began, wall clock."""
    head: str = ""
    """Where it sends to; empty: nowhere."""
    all_hosts: bool = False
    """It serves every host that records in its directory."""
    connected: bool = False
    problem: str = ""
    """Why the head takes nothing at the moment; it may be connected all the same."""
    changed_ns: int = 0
    """Since when it is, or is not, connected."""
    aside: Sequence[LeftAside] = ()
    aside_count: int = 0
    dropped_records: int = 0
    """Records that no head had when they were deleted for want of space, since it began."""
    dropped_ns: int = 0
    """When that was noticed last."""
    ended_ns: int = 0
    """0 while it runs, and if it was killed."""
    written_ns: int = 0
    reached: Mapping[JournalId, Position] = field(default_factory=dict)
    """How far the head has each journal."""


def note_name(host: str) -> str:
    return f"{safe_name(host)}.status"


class StatusNote:
    """Writes it: at once when something is different, now and then when only more was sent."""

    def __init__(self, settings: AgentSettings, host: str, clock: Clock = system_clock) -> None:
        self._root, self._name, self._clock = settings.root, note_name(host), clock
        now = clock.wall_ns()
        self._said = AgentNote(
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
        self, tail: Tail, sender: Shipper | None, dropped_records: int, *, ended: bool = False
    ) -> None:
        """`sender`: None if there is no head to send to."""
        both = tail.aside() + (sender.aside() if sender else [])
        # What waits for a host that is gone has again_ns 0: nothing is wrong with it.
        aside = list({each.journal: each for each in both if each.again_ns != 0}.values())
        self.write(
            connected=sender is not None and sender.connected,
            problem=sender.problem[:MOST_WORDS] if sender else "",
            aside=tuple(
                LeftAside(each.journal, each.why, each.since_ns, each.by_head)
                for each in aside[:MOST_ASIDE]
            ),
            aside_count=len(aside),
            dropped_records=dropped_records,
            reached=dict(sender.acknowledged) if sender else {},
            ended_ns=self._clock.wall_ns() if ended else 0,
        )

    def write(self, *, reached: Mapping[JournalId, Position], **facts: Any) -> None:
        said, now_ns, wall_ns = self._said, self._clock.mono_ns(), self._clock.wall_ns()
        now = replace(said, **facts)
        if now.connected != said.connected:
            now = replace(now, changed_ns=wall_ns)
        if now.dropped_records > said.dropped_records:
            now = replace(now, dropped_ns=wall_ns)
        is_due = reached != said.reached and now_ns >= self._progress_ns
        if self._is_written and now == said and not is_due:
            return
        # What does not fit is no reason to write it again.
        self._said, self._is_written = replace(now, reached=reached), True
        self._progress_ns = now_ns + int(PROGRESS_SECONDS * 1e9)
        newest = sorted(reached, reverse=True)[:MOST_JOURNALS]
        kept = {name: reached[name] for name in newest}
        told = {"version": VERSION, **asdict(replace(now, reached=kept, written_ns=wall_ns))}
        with suppress(OSError), shelf(self._root, FOLDER) as folder:
            folder.write(self._name, json.dumps(told).encode())


def read_note(folder: Folder, host: str, owners: Collection[int]) -> AgentNote | None:
    """What the host's agent said last; None if it said nothing, or nothing that makes sense."""
    try:
        said = json.loads(folder.read(note_name(host), MOST_BYTES, owners=owners))
        return _note(said) if isinstance(said, dict) else None
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
        return None


def _note(said: Mapping[str, Any]) -> AgentNote:
    """Fields that a later version added are left out."""
    known = {
        name: type(fresh)(said.get(name, fresh))
        for name, fresh in asdict(_EMPTY).items()
        if name not in ("aside", "reached")
    }
    aside = tuple(
        LeftAside(
            str(each["journal"]),
            str(each["why"]),
            int(each["since_ns"]),
            bool(each.get("by_head", False)),
        )
        for each in _objects(said.get("aside", ()))
    )
    reached = dict(said.get("reached", {}))
    return AgentNote(
        **known,
        aside=aside,
        reached={JournalId(str(name)): Position(int(at)) for name, at in reached.items()},
    )


_EMPTY: Final = AgentNote(0, 0, "", 0)


def _objects(said: Any) -> list[dict[str, Any]]:
    return [each for each in said if isinstance(each, dict)]
