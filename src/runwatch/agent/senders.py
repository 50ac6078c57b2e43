"""To which heads an agent sends: its own, and every head that a journal here names.

A journal says which head it is for (`journal/heads.py`).  Each head has a sender of its own, begun
when the first journal that names it is seen, whenever the agent was started.  Journals that name no
head go to the agent's own head, if it has one.  The agent's own journal goes to each head that has
runs on this node.  Each head keeps its own cursors, so that every record is at every head once.

On a node of several users each user has senders of their own: nobody's records are sent with
another user's token, and a head that a user named gives no commands to the node's agent.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from runwatch.address import Address, here, http_address, place_of
from runwatch.agent.sender import Key, Orders, Sender
from runwatch.agent.settings import AgentSettings
from runwatch.clock import Clock
from runwatch.errors import UsageError
from runwatch.files import journal_folder, safe_name, shelf
from runwatch.journal.agents import FOLDER
from runwatch.journal.heads import Destination, NamedHead, note, note_in, read_note, write_note
from runwatch.journal.segment import indexes_among
from runwatch.journal.stored import forget_heads
from runwatch.record import JournalId, Position, RunScope
from runwatch.ship.finding import Found
from runwatch.ship.tail import Aside, Listing

MOST_SENDERS: Final = 32
MOST_RUNS: Final = 5_000
GIVE_UP_SECONDS: Final = 86_400.0
"""An idle agent does not wait longer than this for a head that only journals name."""
_MOST_BYTES: Final = 1 << 20
logger = logging.getLogger("runwatch.agent")


class Senders:
    def __init__(self, settings: AgentSettings, host: str, clock: Clock) -> None:
        self.settings, self.host, self.clock = settings, host, clock
        self.orders = Orders()
        self.own: Sender | None = None
        """For the agent's own head, if it has one."""
        self._senders: dict[Key, Sender] = {}
        self._started = False
        self._listing = Listing(settings.root / "journals", clock)
        self._seen: set[str] = set()
        self._unready: set[str] = set()
        self._heads: dict[str, NamedHead] = {}
        """Place → head, of the heads that the agent's own journal is for."""
        self._runs: dict[str, str] = {}
        """Id or name of a run → the place of its head, of runs whose journals name one."""
        self._journals: set[JournalId] = set()
        """This agent's own."""
        self._several: dict[JournalId, Destination] = {}
        """Journals of agents, which may be for several heads."""
        self._ids = self._read_ids()
        """Place → the id of the head that was there last."""

    def begin(self, orders: Orders) -> None:
        """Make the sender to the agent's own head.  Raises UsageError if its address is none."""
        self.orders = orders
        settings = self.settings
        if settings.head:
            http_address(settings.head)
            head = NamedHead(settings.head, place_of(settings.head))
            self.own = Sender(self, (head.place, os.geteuid()), head, is_own=True)
            self._senders[self.own.key] = self.own

    def start(self) -> None:
        forget_heads(self.settings.root, self.host)
        self._started = True
        for sender in self.all():
            sender.start()

    def stop(self) -> None:
        for sender in self.all():
            sender.halt()
        for sender in self.all():
            sender.join()
        forget_heads(self.settings.root, self.host)

    def all(self) -> list[Sender]:
        return list(self._senders.values())

    # ── which journals there are ──────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Begin a sender for each head that a new journal names."""
        try:
            names = self._listing.look()
        except OSError:
            return  # too many open files: the next look tries again
        if names is None:
            names = set(self._unready)
        else:
            self._seen &= names
            for gone in self._several.keys() - names:
                del self._several[JournalId(gone)]
        new, self._unready = names - self._seen, set()
        for name in sorted(new):
            try:
                is_ready = self._see(JournalId(name))
            except OSError:
                is_ready = True  # not ours to read: senders say so if it is theirs
            (self._seen if is_ready else self._unready).add(name)

    def _see(self, journal: JournalId) -> bool:
        """Whether the journal's first segment is there, and so its note, if it has one."""
        with journal_folder(self._directory(journal)) as folder:
            if not indexes_among(folder.names()):
                return False
            destination = note_in(folder)
        for head in destination.heads:
            self._sender_for(head, destination, journal)
        if len(destination.heads) > 1 or destination.runs:
            self._several[journal] = destination
            for run, place in destination.runs.items():
                self._runs.setdefault(run, place)
        return True

    def _sender_for(self, head: NamedHead, of: Destination, journal: JournalId) -> None:
        try:
            http_address(head.address)
        except UsageError as error:
            logger.warning("journal %a: %s", journal, error)
            return
        place, uid = place_of(head.address), of.uid
        sender = self._taker(place, of)
        if sender is None:
            if len(self._senders) >= MOST_SENDERS:
                logger.warning("journal %a names one head too many: %s", journal, head.address)
                return
            sender = Sender(self, (place, uid), head, is_own=False)
            self._senders[sender.key] = sender
            sender.offer(head, self._directory(journal))
            if self._started:
                sender.start()
        elif uid == sender.key[1]:
            sender.offer(head, self._directory(journal))

    def _taker(self, place: str, of: Destination) -> Sender | None:
        """Who sends a journal with this note to the head at this place."""
        if self.own is not None and place == self.own.key[0]:
            return self.own
        found = self._senders.get((place, of.uid))
        if found is None and of.runs and of.uid == os.geteuid():
            # An agent's journal, for the head of another user.
            found = next((s for s in self.all() if s.key[0] == place), None)
        return found

    def _directory(self, journal: JournalId) -> Path:
        return self.settings.root / "journals" / journal

    # ── what is for which head ────────────────────────────────────────────────────────────────

    def note(self) -> bytes:
        """The note of a journal that the agent itself begins."""
        return note(self._destination())

    def opened(self, journal: JournalId) -> None:
        """The agent goes on in this journal."""
        self._journals.add(journal)
        self._several[journal] = self._destination()

    def _destination(self) -> Destination:
        own = [self._own_head()] if self.settings.head else []
        return Destination([*own, *self._heads.values()], dict(self._runs), os.geteuid())

    def _own_head(self) -> NamedHead:
        settings = self.settings
        file = str(settings.token_file) if settings.token_file else ""
        token = "" if file else settings.token
        ca = str(settings.ca) if settings.ca else ""
        return NamedHead(settings.head, place_of(settings.head), token, file, ca)

    def learn(self, journal: JournalId, scope: RunScope, current: JournalId) -> None:
        """Before anything is recorded about a run: find out to which head its journal goes.
        `current`: the journal that the agent writes now."""
        try:
            destination = read_note(self._directory(journal))
        except OSError:
            return
        if not destination.heads:
            return
        head = destination.heads[0]
        place = place_of(head.address)
        is_own = self.own is not None and place == self.own.key[0]
        if self._runs.get(scope.run) == place and (is_own or place in self._heads):
            return
        while len(self._runs) >= MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        self._runs[scope.run] = self._runs[scope.name] = place
        if not is_own:
            # Another user's secrets stay in that user's folder.
            ours = destination.uid == os.geteuid()
            self._heads[place] = head if ours else NamedHead(head.address, place)
        self._sender_for(head, destination, journal)
        self._several[current] = self._destination()
        try:
            write_note(self._directory(current), self._several[current])
        except OSError as error:
            logger.warning("our journal cannot say that it is also for %s: %s", place, error)
        for sender in self.all():
            sender.shipper.look_again()

    def is_for(self, sender: Sender, journal: JournalId) -> bool:
        """Raises OSError if that cannot be read."""
        destination = self._several.get(journal) if journal in self._journals else None
        destination = destination or read_note(self._directory(journal))
        if not destination.heads:
            return sender.is_own
        places = {place_of(head.address) for head in destination.heads}
        return any(self._taker(place, destination) is sender for place in places)

    def owns(self, sender: Sender, journal: JournalId, scope: RunScope) -> bool:
        """Whether the run that an agent's journal tells of is one of this head's."""
        if journal in self._journals:
            place = self._runs.get(scope.run)
        else:
            known = self._several.get(journal, Destination())
            place = known.runs.get(scope.run)
        return sender.is_own if place is None else self._is_same(sender, place)

    def owns_folder(self, sender: Sender, run: str) -> bool:
        """Whether files of a run are for this head; `run` is its id or its name."""
        place = self._runs.get(run)
        return sender.is_own if place is None else self._is_same(sender, place)

    def _is_same(self, sender: Sender, place: str) -> bool:
        """Whether the head at this place is the sender's: a head may have several addresses.  What
        is about a head that was never reached is not kept from one on the same machine: it may be
        the same."""
        mine = sender.key[0]
        if place == mine:
            return True
        id = self._ids.get(place, "")
        if id:
            return id == self._ids.get(mine, "")
        others = [s.found.address for s in self.all() if s.key[0] == place and s.found is not None]
        if others:
            return sender.found is not None and sender.found.address in others
        return _host(place) == _host(mine)

    # ── where heads are ───────────────────────────────────────────────────────────────────────

    def remember(self, sender: Sender, found: Found) -> None:
        place = sender.key[0]
        if found.id and self._ids.get(place) != found.id:
            self._ids[place] = found.id
            with suppress(OSError), shelf(self.settings.root, FOLDER) as folder:
                folder.write(self._ids_name, json.dumps(self._ids).encode())

    def moved(self, sender: Sender) -> Address | None:
        """Where the head is now that used to be at the sender's address, if that is known."""
        id = self._ids.get(sender.key[0], "")
        if not id:
            return None
        for other in self.all():
            if other is not sender and other.found is not None and other.found.id == id:
                return other.found.address
        for listening in here(self.settings.root):
            if listening.id == id and listening.grpc:
                return Address.parse(listening.grpc)
        return None

    @property
    def _ids_name(self) -> str:
        return f"{safe_name(self.host)}.ids"

    def _read_ids(self) -> dict[str, str]:
        try:
            with shelf(self.settings.root, FOLDER) as folder:
                read = json.loads(folder.text(self._ids_name, _MOST_BYTES, owners=folder.ours()))
            return {str(place): str(id) for place, id in read.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    # ── how far it has got ────────────────────────────────────────────────────────────────────

    def acknowledged(self) -> dict[JournalId, Position]:
        """How far every head that a journal is for has stored it."""
        reached: dict[JournalId, Position] = {}
        for sender in self.all():
            for journal, at in dict(sender.shipper.acknowledged).items():
                reached[journal] = min(reached.get(journal, at), at)
        for journal, destination in self._several.items():
            if journal in reached and not self._all_have(journal, destination):
                del reached[journal]
        return reached

    def acknowledged_at(self) -> dict[str, dict[JournalId, Position]]:
        """By head, for the journals that may be for several."""
        reached: dict[str, dict[JournalId, Position]] = {}
        for sender in self.all():
            have = sender.shipper.acknowledged
            here = {name: have[name] for name in list(self._several) if name in have}
            reached.setdefault(sender.address, {}).update(here)
        return reached

    def _all_have(self, journal: JournalId, destination: Destination) -> bool:
        for head in destination.heads:
            sender = self._taker(place_of(head.address), destination)
            if sender is None or journal not in sender.shipper.acknowledged:
                return False
        return True

    def aside(self) -> list[Aside]:
        return [aside for sender in self.all() for aside in sender.shipper.aside()]

    def unfinished(self) -> int:
        """How many journals of agents before this one its head has not stored to their ends."""
        sender = self.own or next(iter(self.all()), None)
        return 0 if sender is None else sender.shipper.unfinished(list(self._journals))

    def is_settled(self) -> bool:
        """Whether the heads have everything.  A head that only journals name, and that has not
        answered for a day, does not count: the next agent tries it again."""
        return all(sender.is_settled(GIVE_UP_SECONDS) for sender in self.all())

    def has_shipped(self, journals: Iterable[JournalId], closed_ns: int) -> bool:
        """Whether the heads that answer have all, with the end of these journals."""
        return all(
            sender.shipper.all_acknowledged()
            and all(
                sender.shipper.has_all_of(journal, closed_ns)
                for journal in journals
                if self.is_for(sender, journal)
            )
            for sender in self.all()
            if sender.shipper.connected
        )

    def has_shipped_all(self, since_ns: int) -> bool:
        """Whether all heads have everything that was here at that time (monotonic)."""
        return all(
            sender.shipper.has_everything(since_ns) and sender.courier.has_brought_all(since_ns)
            for sender in self.all()
        )


def _host(place: str) -> str:
    return place.removeprefix("grpc://").partition("/")[0].rpartition(":")[0]
