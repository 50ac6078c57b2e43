"""Sending journals to a head over one gRPC stream.

The head's store decides how far each journal has got.  On connecting we ask the head, send from
there, and count a stretch as shipped only when the head says it is stored.  Memory holds only a
bounded number of unacknowledged batches.  The journal is the queue: an outage of any length costs
disk, not memory.
"""

from __future__ import annotations

import logging
import queue
import random
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from runwatch._version import __version__
from runwatch.address import Address as Address
from runwatch.clock import Clock, system_clock
from runwatch.errors import HeadUnreachable, WireError
from runwatch.journal.liveness import this_host
from runwatch.journal.stored import note_stored
from runwatch.record import Batch, Command, JournalId, Position
from runwatch.record.life import RunEnd
from runwatch.ship.credentials import Token, metadata
from runwatch.ship.estates import Estates
from runwatch.ship.tail import FAILURES, Aside, Followed, NotTaken, Tail
from runwatch.wire import spine_pb2 as pb
from runwatch.wire.commands import command_from_message
from runwatch.wire.convert import (
    MAX_MESSAGE_BYTES,
    NEWEST_VERSION,
    OLDEST_VERSION,
    SEVERAL_AT_ONCE,
    batch_to_message,
)

METHOD: Final = "/runwatch.v1.Spine/Stream"
GOODBYE: Final = RunEnd.KIND
"""The event by which a process says that it will record nothing more for a run."""
logger = logging.getLogger("runwatch.ship")


@dataclass(frozen=True, slots=True)
class ShipSettings:
    poll_seconds: float = 0.5
    """How long new records may wait, so that they are sent in fewer messages."""
    hurry_bytes: int = 256 << 10
    """If one journal had this many new bytes, the next round follows at once."""
    answer_seconds: float = 10.0
    """A head that has not answered for this long counts as unreachable."""
    ping_seconds: float = 3.0
    first_delay_seconds: float = 1.0
    longest_delay_seconds: float = 60.0
    probe_seconds: float = 1.0
    """How often a waiting shipper looks whether the head is back."""
    unacknowledged_bytes: int = 16 << 20
    message_bytes: int = 1 << 20
    """Batches of several journals share one message of up to this size."""


class Backoff:
    """1, 2, 4 … 60 seconds, with jitter, so that a thousand agents do not return at once."""

    def __init__(self, first: float, longest: float, draw: Callable[[], float]) -> None:
        self._first, self._longest, self._draw = min(first, longest), longest, draw
        self._next = self._first

    def reset(self) -> None:
        self._next = self._first

    def delay(self) -> float:
        delay = self._next * (0.5 + self._draw())
        self._next = min(self._next * 2, self._longest)
        return min(delay, self._longest)


class Shipper:
    """Keeps one stream to the head open.  `run` returns after `stop` was called."""

    def __init__(
        self,
        root: Path,
        address: Address | Callable[[], Address],
        *,
        token: Token = "",
        ca: bytes | None | Callable[[], bytes | None] = None,
        host: str | None = None,
        all_hosts: bool = False,
        inherit_seconds: float = 0.0,
        takes: Callable[[JournalId], bool] = lambda _: True,
        sift: Callable[[Batch], Batch] = lambda batch: batch,
        settings: ShipSettings | None = None,
        commands: Sequence[str] = (),
        on_command: Callable[[Command], None] = lambda _: None,
        on_head: Callable[[bool], None] = lambda _: None,
        clock: Clock = system_clock,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`address`: where the head listens, or a function that finds out, for each connection
        anew; it may raise HeadUnreachable.  `inherit_seconds`: also send journals that other hosts
        left here, once those hosts have been still for this long; 0: never.  `takes`: whether a
        journal is for this head.  `sift` leaves out of a batch what is not for this head.
        `on_command` gets each command of the kinds `commands`, in the receiving thread; it must
        return quickly.  `on_head` gets whether the head answers."""
        self._locate = address if callable(address) else lambda: address
        self.host = host or this_host()
        self.acknowledged: dict[JournalId, Position] = {}
        self.connected = False
        self.problem = "not yet connected"
        """Why nothing is acknowledged at the moment; empty when all is well."""
        of_host = None if all_hosts else self.host
        self._estates: Estates | None = None
        if of_host is not None and inherit_seconds > 0:
            self._estates = Estates(root, still_seconds=inherit_seconds, clock=clock)
        self._tail = Tail(
            root,
            of_host=of_host,
            estates=self._estates,
            takes=takes,
            start=self._cursor,
            clock=clock,
        )
        self._sift = sift
        self._token = token
        self._ca = ca if callable(ca) else lambda: ca
        self._commands, self._on_command = tuple(commands), on_command
        self._on_head = on_head
        self._settings = settings or ShipSettings()
        self._clock = clock
        self._backoff = Backoff(
            self._settings.first_delay_seconds, self._settings.longest_delay_seconds, draw
        )
        self._draw = draw
        self._looked_ns = 0
        """When the last look at all journals began, monotonic; 0: none did on this connection."""
        self._was_away = True
        """The head went away since we last came early: when it is back we come early again."""
        self._stop = threading.Event()
        self._cursors: dict[JournalId, Position] = {}
        self._ending: set[JournalId] = set()
        """Journals of ending processes, which may wait for their last records to be stored."""

    def _cursor(self, journal: JournalId) -> Position | None:
        return self._cursors.get(journal)

    def stop(self) -> None:
        self._stop.set()

    def all_acknowledged(self) -> bool:
        """Whether every journal seen so far was read to its end and is stored."""
        return self.connected and all(
            followed.started and self.acknowledged.get(name, -1) >= followed.reader.position
            for name, followed in list(self._tail.journals.items())
        )

    def has_all_of(self, journal: JournalId, since_ns: int) -> bool:
        """Whether a journal that has not grown since then (monotonic) is stored to its end."""
        followed = self._tail.journals.get(journal)
        return (
            followed is not None
            and followed.idle_ns >= since_ns
            and self.acknowledged.get(journal, -1) >= followed.reader.position
        )

    def has_everything(self, since_ns: int) -> bool:
        """Whether every journal was read to its end since then (monotonic), and is stored."""
        if not self.connected or self._looked_ns < since_ns:
            return False
        return all(
            (followed.done or followed.idle_ns >= since_ns)
            and self.acknowledged.get(name, -1) >= followed.reader.position
            for name, followed in list(self._tail.journals.items())
        )

    def unfinished(self, but: Collection[JournalId] = ()) -> int:
        """How many journals of agents that have ended are not stored to their ends.  `but`: those
        that are written now.  A shipper that has not looked yet counts as one."""
        if not self.connected or not self._looked_ns:
            return 1
        return sum(
            followed.origin.role == "agent" and name not in but and not self._is_done(followed)
            for name, followed in list(self._tail.journals.items())
        )

    def _is_done(self, followed: Followed) -> bool:
        if not followed.started:
            return False
        stored = self.acknowledged.get(followed.origin.journal, -1)
        return not followed.dead or followed.done and stored >= followed.reader.position

    def look_again(self) -> None:
        """`takes` may say something else now."""
        self._tail.look_again()

    def follows(self, journal: JournalId) -> bool:
        return journal in self._tail.journals

    def expects_more(self) -> bool:
        """Whether we may soon have to send journals of a host that seems to be gone."""
        return self._estates is not None and self._estates.is_waiting

    def aside(self) -> list[Aside]:
        """Journals that are not sent, and why."""
        return self._tail.aside()

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                with self.channel() as channel:
                    _Session(self, channel).run()
            except (grpc.RpcError, HeadUnreachable) as error:
                self.problem = _reason(error)
                delay = self._backoff.delay()
                logger.info("no head takes records: %s; again in %.1f s", self.problem, delay)
                self._was_away = self._was_away or self.connected
                self.connected = False
                self._on_head(False)
                self._wait(delay)
        self._tail.close()

    def _wait(self, seconds: float) -> None:
        """Wait, but not longer than until the head is back.

        A port that opens is told by a cheap look.  A head that is there and refuses us, or a proxy
        without a head behind it, ends the wait once and not again: so the pauses grow as before.
        Looks and returns are spread: a thousand agents wait for the same head.
        """
        until_ns = self._clock.mono_ns() + int(seconds * 1e9)
        probe = self._settings.probe_seconds
        while (left := (until_ns - self._clock.mono_ns()) / 1e9) > 0:
            if self._stop.wait(min(left, probe * (0.5 + self._draw()))):
                return
            if not self._is_there():
                self._was_away = True
            elif self._was_away:
                self._was_away = False
                self._stop.wait(min(left, probe * self._draw()))
                return

    def _is_there(self) -> bool:
        """Whether somebody takes connections where the head listens."""
        try:
            host, _, port = self._locate().target.rpartition(":")
            place = (host.strip("[]"), int(port))
            with socket.create_connection(place, timeout=self._settings.probe_seconds):
                return True
        except (OSError, ValueError, HeadUnreachable):
            return False

    def channel(self) -> grpc.Channel:
        """A new connection to the head.  Raises HeadUnreachable if nobody says where it is."""
        address = self._locate()
        options = [
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.enable_retries", 0),
        ]
        if not address.tls:
            return grpc.insecure_channel(address.target, options=options)
        credentials = grpc.ssl_channel_credentials(root_certificates=self._ca())
        return grpc.secure_channel(address.target, credentials, options=options)


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "unimplemented: what answers there is no head of Runwatch"
    if isinstance(error, grpc.Call):
        return f"{error.code().name.lower().replace('_', ' ')}: {error.details()}"
    return str(error)


class _Session:
    """One connection, from Hello to the end."""

    def __init__(self, shipper: Shipper, channel: grpc.Channel) -> None:
        self._shipper = shipper
        self._settings = shipper._settings
        self._clock = shipper._clock
        self._outgoing: queue.SimpleQueue[pb.Up | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._welcome = False
        self._wire_version = OLDEST_VERSION
        self._ended = False
        self._unacknowledged: dict[JournalId, list[tuple[Position, int]]] = {}
        self._refused: list[tuple[JournalId, str]] = []
        """Journals to send again from their cursors; with a reason, journals to set aside."""
        self._taken: list[JournalId] = []
        """Journals that were set aside and that the head takes again."""
        self._in_flight = 0
        self._heard_ns = self._clock.mono_ns()
        self._pinged_ns = 0
        stream = channel.stream_stream(
            METHOD,
            request_serializer=pb.Up.SerializeToString,
            response_deserializer=pb.Down.FromString,
        )
        self._call = stream(self._requests(), metadata=metadata(shipper._token))

    def run(self) -> None:
        shipper = self._shipper
        shipper._cursors.clear()
        shipper._looked_ns = 0
        shipper._tail.try_again()
        for followed in shipper._tail.journals.values():
            followed.started = followed.done = False
        receiver = threading.Thread(target=self._receive, name="runwatch-receive", daemon=True)
        receiver.start()
        try:
            self._greet()
            for followed in shipper._tail.journals.values():
                self._open(followed)
            while not shipper._stop.is_set():
                self._round()
        finally:
            self._outgoing.put(None)
            if shipper._stop.is_set():
                receiver.join(timeout=1.0)
            self._call.cancel()
            receiver.join()

    def _greet(self) -> None:
        self._send(
            pb.Up(
                hello=pb.Hello(
                    oldest_wire_version=OLDEST_VERSION,
                    newest_wire_version=NEWEST_VERSION,
                    host=self._shipper.host,
                    runwatch_version=__version__,
                    wall_ns=self._clock.wall_ns(),
                    commands=self._shipper._commands,
                )
            )
        )
        with self._changed:
            self._changed.wait_for(
                lambda: self._welcome or self._ended or self._shipper._stop.is_set(),
                self._settings.answer_seconds,
            )
            self._check()
            if not self._welcome and not self._shipper._stop.is_set():
                seconds = self._settings.answer_seconds
                raise HeadUnreachable(f"connected, but no answer within {seconds:g} s")
        self._shipper.connected = True
        self._shipper._on_head(True)
        self._shipper.problem = ""
        self._shipper._backoff.reset()

    def _round(self) -> None:
        """Send what is new, then wait a little unless there is much more."""
        tail, looked_ns = self._shipper._tail, self._clock.mono_ns()
        for followed in tail.discover():
            self._open(followed)
            self._pinged_ns = 0  # the head learns at once whose commands to send here
        self._forget()
        self._go_back()
        hurry = False
        together: list[pb.Batch] = []
        room = 0
        for _, batch in tail.read():
            if any(event.kind == GOODBYE for event in batch.events):
                self._shipper._ending.add(batch.origin.journal)
            try:
                message = batch_to_message(self._shipper._sift(batch))
            except FAILURES as error:
                tail.set_aside(batch.origin.journal, error)
                continue
            size = message.ByteSize()
            if size > room or self._wire_version < SEVERAL_AT_ONCE:
                self._send_batches(together)
                together, room = [], self._settings.message_bytes
            together.append(message)
            room -= size
            hurry = hurry or batch.end - batch.start >= self._settings.hurry_bytes
        self._send_batches(together)
        self._shipper._looked_ns = looked_ns
        self._ping()
        if not hurry:
            self._shipper._stop.wait(self._settings.poll_seconds)
        with self._changed:
            self._check()

    def _forget(self) -> None:
        """Drop the state of journals that were removed: over months there would be many."""
        journals, acknowledged = self._shipper._tail.journals, self._shipper.acknowledged
        if len(acknowledged) <= len(journals):
            return
        with self._changed:
            for journal in acknowledged.keys() - journals.keys():
                del acknowledged[journal]
                self._shipper._cursors.pop(journal, None)
                self._shipper._ending.discard(journal)
                self._in_flight -= sum(size for _, size in self._unacknowledged.pop(journal, ()))

    def _go_back(self) -> None:
        with self._changed:
            refused, self._refused = self._refused, []
            taken, self._taken = self._taken, []
        tail = self._shipper._tail
        for journal in taken:
            tail.taken(journal)
        for journal, why in refused:
            if (followed := tail.journals.get(journal)) is None:
                continue
            if why:
                tail.set_aside(journal, NotTaken(why))
            else:
                followed.started = followed.done = False

    def _send_batches(self, batches: Sequence[pb.Batch]) -> None:
        with self._changed:
            for batch in batches:
                size, journal = batch.ByteSize(), JournalId(batch.origin.journal)
                pending = self._unacknowledged.setdefault(journal, [])
                pending.append((Position(batch.end), size))
                self._in_flight += size
        if len(batches) == 1:
            self._send(pb.Up(batch=batches[0]))
        elif batches:
            self._send(pb.Up(batches=pb.Batches(batches=batches)))
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        with self._changed:
            while (
                self._in_flight > self._settings.unacknowledged_bytes
                and not self._ended
                and not self._shipper._stop.is_set()
            ):
                self._changed.wait(self._settings.poll_seconds)
                self._ping()
                self._check()

    def _check(self) -> None:
        """Raise when the stream has ended or the head has gone silent."""
        if self._ended:
            # If the head ended the stream with a status, the call itself is the error.
            if self._call.code() not in (None, grpc.StatusCode.OK):
                raise self._call
            raise HeadUnreachable("the head closed the stream")
        silent = (self._clock.mono_ns() - self._heard_ns) / 1e9
        if self._welcome and silent > self._settings.answer_seconds + self._settings.ping_seconds:
            raise HeadUnreachable(f"the head has sent nothing for {silent:.0f} s")

    def _open(self, followed: Followed) -> None:
        self._send(pb.Up(open=pb.Open(journal=followed.origin.journal)))

    def _ping(self) -> None:
        now = self._clock.mono_ns()
        if now - self._pinged_ns > self._settings.ping_seconds * 1e9:
            self._pinged_ns = now
            ping = pb.Ping(wall_ns=self._clock.wall_ns(), alive=self._shipper._tail.alive())
            self._send(pb.Up(ping=ping))

    def _send(self, message: pb.Up) -> None:
        self._outgoing.put(message)

    def _requests(self) -> Iterator[pb.Up]:
        while (message := self._outgoing.get()) is not None:
            yield message

    # ── in the receiving thread ───────────────────────────────────────────────────────────────

    def _receive(self) -> None:
        try:
            for down in self._call:
                with self._changed:
                    self._heard_ns = self._clock.mono_ns()
                    self._take(down)
                    self._changed.notify_all()
        except grpc.RpcError:
            logger.debug("the stream to the head ended")
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, down: pb.Down) -> None:
        kind = down.WhichOneof("message")
        if kind == "welcome":
            self._wire_version = down.welcome.wire_version
            self._welcome = True
        elif kind == "pong":
            self._shipper.problem = down.pong.problem
        elif kind == "cursor":
            self._take_cursor(down.cursor)
        elif kind == "cursors":
            for cursor in down.cursors.cursors:
                self._take_cursor(cursor)
        elif kind == "command":
            self._take_command(down.command)

    def _take_command(self, message: pb.Command) -> None:
        try:
            self._shipper._on_command(command_from_message(message))
        except WireError as error:
            logger.warning("the head sent an invalid command: %s", error)

    def _take_cursor(self, cursor: pb.Cursor) -> None:
        shipper, journal = self._shipper, JournalId(cursor.journal)
        reached = Position(cursor.position)
        pending = self._unacknowledged.get(journal, [])
        was_sent = bool(pending)
        while pending and (cursor.refused or pending[0][0] <= reached):
            self._in_flight -= pending.pop(0)[1]
        shipper.acknowledged[journal] = reached
        if journal in shipper._ending:
            note_stored(shipper._tail.root / "journals" / journal, reached, exactly=True)
        if cursor.refused or journal not in shipper._cursors:
            shipper._cursors[journal] = reached
        if cursor.refused:
            self._refused.append((journal, cursor.why))
        elif was_sent and shipper._tail.is_aside(journal):
            self._taken.append(journal)
