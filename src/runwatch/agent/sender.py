"""Sends journals and files to one head, with the tokens that journals offer for it."""

from __future__ import annotations

import logging
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runwatch.address import Address, token_for
from runwatch.errors import HeadUnreachable, UsageError
from runwatch.files import SMALL_BYTES, journal_folder, read_followed
from runwatch.journal.heads import NamedHead
from runwatch.journal.stored import note_head
from runwatch.record import Command
from runwatch.settings import TOKEN_FILE_BYTES, read_token
from runwatch.ship.client import Shipper, ShipSettings
from runwatch.ship.courier import NOTES, Courier
from runwatch.ship.finding import Found, find
from runwatch.ship.sieve import Sieve

if TYPE_CHECKING:
    from runwatch.agent.senders import Senders

END_SECONDS: Final = 5.0
MOST_TOKENS: Final = 32
_REFUSED: Final = ("unauthenticated", "permission denied")
logger = logging.getLogger("runwatch.agent")

Key = tuple[str, int]
"""A head's place, and the user whose journals go there."""


def _nothing(_: Command) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Orders:
    """What the agent does at a head's command."""

    kinds: Sequence[str] = ()
    take: Callable[[Command], None] = _nothing


class Sender:
    def __init__(self, senders: Senders, key: Key, head: NamedHead, *, is_own: bool) -> None:
        settings = senders.settings
        self.key = key
        self.head = head
        self.is_own = is_own
        self.found: Found | None = None
        """Where the head was found last."""
        self.has_moved = False
        """Whether the head was found at another address than its own."""
        self._senders = senders
        self._settings = settings
        self._clock = senders.clock
        self._away_ns: int | None = senders.clock.mono_ns()
        """Since when the head does not answer; None while it does."""
        self._offers: dict[tuple[str, str], Path] = {}
        """Token and token's file → the journal that offers them; the newest last."""
        self._turn = 0
        self._ca: bytes | None = None
        if is_own and settings.ca:
            self._ca = settings.ca.read_bytes()
        self.shipper = Shipper(
            settings.root,
            self._locate,
            token=self._token,
            ca=lambda: self._ca,
            host=senders.host,
            all_hosts=settings.all_hosts,
            inherit_seconds=settings.inherit_seconds,
            takes=lambda journal: senders.is_for(self, journal),
            sift=Sieve(settings.root, lambda journal, scope: senders.owns(self, journal, scope)),
            settings=ShipSettings(longest_delay_seconds=settings.retry_seconds),
            commands=senders.orders.kinds if key[1] == os.geteuid() else (),
            on_command=senders.orders.take,
            on_head=self._heard,
            clock=senders.clock,
        )
        self.courier = Courier(
            settings.root,
            self.shipper.channel,
            host=senders.host,
            token=self._token,
            takes=lambda run: senders.owns_folder(self, run),
            notes=NOTES if is_own else f".brought-{zlib.crc32(key[0].encode()):08x}.json",
            clock=senders.clock,
        )
        self._threads = [
            threading.Thread(target=self.shipper.run, name="runwatch-ship", daemon=True),
            threading.Thread(target=self.courier.run, name="runwatch-courier", daemon=True),
        ]

    @property
    def address(self) -> str:
        return self.head.address

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def halt(self) -> None:
        self.courier.stop()
        self.shipper.stop()

    def join(self) -> None:
        if self._threads[0].is_alive():
            self._threads[0].join(timeout=END_SECONDS)

    def is_settled(self, give_up_seconds: float) -> bool:
        shipper = self.shipper
        if shipper.all_acknowledged() and not shipper.expects_more() and self.courier.settled:
            return True
        away_ns = 0 if self._away_ns is None else self._clock.mono_ns() - self._away_ns
        return not self.is_own and away_ns > give_up_seconds * 1e9

    # ── where it is, and with which token ─────────────────────────────────────────────────────

    def offer(self, head: NamedHead, journal: Path) -> None:
        """A journal brings a token, or names its file: tokens are renewed."""
        offered = (head.token, head.token_file)
        self._offers.pop(offered, None)
        while len(self._offers) >= MOST_TOKENS:
            del self._offers[next(iter(self._offers))]
        self._offers[offered] = journal
        if head.ca and not self.is_own and self._ca is None:
            self._ca = self._file(head.ca, journal, SMALL_BYTES)

    def _locate(self) -> Address:
        try:
            self.found = find(self.address, self._ca)
        except HeadUnreachable:
            moved = self._senders.moved(self)
            self.has_moved = moved is not None
            if moved is None:
                raise
            return moved
        self.has_moved = False
        self._senders.remember(self, self.found)
        return self.found.address

    def _token(self) -> str:
        """One that is offered, the newest first; after a refusal the next one."""
        if self.shipper.problem.startswith(_REFUSED):
            self._turn += 1
        words = self._words()
        return words[self._turn % len(words)] if words else ""

    def _words(self) -> list[str]:
        words: list[str] = []
        if self.is_own:
            words.append(self._own_token())
        for (token, file), journal in reversed(list(self._offers.items())):
            words.append(self._in_file(file, journal) if file else token)
        words = [word for word in dict.fromkeys(words) if word]
        if not words and self.key[1] == os.geteuid():  # one that a head of this user left in a note
            words.append(token_for(self.address, self._settings.root))
        return words

    def _own_token(self) -> str:
        """Of the settings; a file is read again, since tokens are renewed."""
        file = self._settings.token_file
        if file is None:
            return self._settings.token
        try:
            return read_token(file)
        except UsageError:
            return self._settings.token

    def _in_file(self, file: str, journal: Path) -> str:
        read = self._file(file, journal, TOKEN_FILE_BYTES)
        return read.decode(errors="replace").strip() if read is not None else ""

    def _file(self, file: str, journal: Path, most: int) -> bytes | None:
        """Read as the user whose journal names it: a user could name a file that only we may
        read."""
        try:
            if self.key[1] == os.geteuid():
                return read_followed(Path(file), most)
            with journal_folder(journal) as folder:
                if folder.user is None and folder.uid != os.geteuid():
                    return None
                with folder.as_user():
                    return read_followed(Path(file), most)
        except OSError as error:
            logger.info("%a, which a journal names, cannot be read: %s", file, error)
            return None

    def _heard(self, answers: bool) -> None:
        if answers:
            self._away_ns = None
        elif self._away_ns is None:
            self._away_ns = self._clock.mono_ns()
        senders = self._senders
        note_head(senders.settings.root, senders.host, answers, self.key[0])
        if self.is_own:
            note_head(senders.settings.root, senders.host, answers)
