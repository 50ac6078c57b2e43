"""gRPC in: one stream per agent, with the messages of `wire/spine.proto`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from runwatch._version import __version__
from runwatch.clock import Clock, system_clock
from runwatch.errors import UsageError, WireError
from runwatch.head.access.admission import PROJECTS, Admission, address_of
from runwatch.head.ingest import Ingest
from runwatch.head.keeping import Keeping
from runwatch.record import Batch, Command, JournalId, Verdict
from runwatch.record.door import is_host_name
from runwatch.wire import spine_pb2 as pb
from runwatch.wire.commands import command_to_message
from runwatch.wire.convert import (
    MAX_MESSAGE_BYTES,
    OLDEST_VERSION,
    SEVERAL_AT_ONCE,
    agree_on_version,
    batch_from_message,
    check_journal_id,
)

HELLO_SECONDS: Final = 10.0
ROOM_POLL_SECONDS: Final = 0.02
ROW_BYTES: Final = 16
"""Bytes that a point or an edge of a span takes in a message."""
STOPPING: Final = "this head is stopping"
FARTHEST_CLOCK: Final = 4e9
"""Seconds.  A larger shift would leave the range of times."""
CLOCK_WORDS: Final = 20
"""How often in a minute a host tells its clock."""
_CURSORS: Final = pb.Down()
"""Stands in the queue for the cursors that are to be sent."""
logger = logging.getLogger("runwatch.head")


@dataclass(slots=True)
class AgentState:
    """An agent as the head knows it."""

    host: str
    version: str
    connected_ns: int
    heard_ns: int
    clock_offset_seconds: float = 0.0
    """How far the agent's wall clock is ahead of ours (less the message's travel time)."""
    alive: frozenset[JournalId] = frozenset()
    """Journals whose processes were alive at its last message."""
    commands: tuple[str, ...] = ()
    """The kinds of commands that it can carry out."""
    wire_version: int = OLDEST_VERSION
    client: str = ""
    """Its name as a client, for the limits."""
    projects: tuple[str, ...] = ()
    """The projects that its token is for; empty: all."""
    send: Callable[[Command], None] = lambda _: None
    """Any thread may call it."""
    _told: deque[float] = field(default_factory=lambda: deque(maxlen=CLOCK_WORDS))

    def hear_clock(self, theirs_ns: int, now_ns: int) -> None:
        """A message that waited on its way makes the agent's clock look slow, and never fast.  So
        the fastest reading of the last minute counts."""
        ahead = (theirs_ns - now_ns) / 1e9
        self._told.append(min(max(ahead, -FARTHEST_CLOCK), FARTHEST_CLOCK))
        self.clock_offset_seconds = max(self._told)


class SpineService:
    """Serves `Spine.Stream`; `agents` are those that are connected now."""

    def __init__(
        self,
        ingest: Ingest,
        *,
        keeping: Keeping | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._keeping = keeping
        self.agents: dict[str, AgentState] = {}
        self._conversations: set[_Conversation] = set()
        self._is_ending = False
        self._ingest = ingest
        self._clock = clock

    def handler(self) -> Any:
        stream = grpc.stream_stream_rpc_method_handler(
            self.stream,
            request_deserializer=pb.Up.FromString,
            response_serializer=pb.Down.SerializeToString,
        )
        keep = grpc.stream_unary_rpc_method_handler(
            self.keep,
            request_deserializer=pb.Piece.FromString,
            response_serializer=pb.Kept.SerializeToString,
        )
        methods = {"Stream": stream, "Keep": keep}
        return grpc.method_handlers_generic_handler("runwatch.v1.Spine", methods)

    async def keep(
        self, pieces: AsyncIterator[pb.Piece], context: grpc.aio.ServicerContext
    ) -> pb.Kept:
        if self._keeping is None:
            return pb.Kept(problem="this head keeps no files")
        return await self._keeping.take(pieces, PROJECTS.get())

    async def stream(
        self, requests: AsyncIterator[pb.Up], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.Down]:
        hello = await self._hello(requests, context)
        if self._is_ending:
            await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        peer = context.peer()
        conversation = _Conversation(self._ingest, self._clock, hello)
        hello.send = conversation.send
        hello.client = address_of(peer)[0]
        hello.projects = PROJECTS.get()
        self.agents[peer] = hello
        self._conversations.add(conversation)
        reading = asyncio.ensure_future(conversation.read(requests))
        try:
            yield pb.Down(
                welcome=pb.Welcome(
                    wire_version=hello.wire_version,
                    runwatch_version=__version__,
                    wall_ns=self._clock.wall_ns(),
                )
            )
            async for down in conversation.answers():
                yield down
            if conversation.is_ended:
                await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
            await reading
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            reading.cancel()
            self.agents.pop(peer, None)
            self._conversations.discard(conversation)

    def end(self) -> None:
        """The head stops: streams end, and none begins."""
        self._is_ending = True
        for conversation in self._conversations:
            conversation.end()

    async def _hello(
        self, requests: AsyncIterator[pb.Up], context: grpc.aio.ServicerContext
    ) -> AgentState:
        try:
            first = await asyncio.wait_for(anext(aiter(requests)), HELLO_SECONDS)
        except (TimeoutError, StopAsyncIteration):
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no hello was said")
        if first.WhichOneof("message") != "hello":
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "the first message is not hello"
            )
        hello = first.hello
        try:
            version = agree_on_version(hello.oldest_wire_version, hello.newest_wire_version)
        except WireError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        if not is_host_name(hello.host):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "hello names no valid host")
        now = self._clock.wall_ns()
        commands = tuple(hello.commands)
        agent = AgentState(
            hello.host, hello.runwatch_version, now, now, commands=commands, wire_version=version
        )
        agent.hear_clock(hello.wall_ns, now)
        return agent


class _Conversation:
    """One stream, after hello."""

    def __init__(self, ingest: Ingest, clock: Clock, agent: AgentState) -> None:
        self._ingest = ingest
        self._clock = clock
        self._agent = agent
        self._answers: asyncio.Queue[pb.Down | None] = asyncio.Queue()
        self._cursors: list[pb.Cursor] = []
        """Cursors to be sent; those of one transaction go together."""
        self._loop = asyncio.get_running_loop()
        self.is_ended = False

    def end(self) -> None:
        self.is_ended = True
        self._answers.put_nowait(None)

    async def answers(self) -> AsyncIterator[pb.Down]:
        """When a stream has ended the rest is not sent: the agent will ask for its cursors."""
        while (down := await self._answers.get()) is not None and not self.is_ended:
            if down is not _CURSORS:
                yield down
                continue
            cursors, self._cursors = self._cursors, []
            if len(cursors) > 1 and self._agent.wire_version >= SEVERAL_AT_ONCE:
                yield pb.Down(cursors=pb.Cursors(cursors=cursors))
            else:
                for cursor in cursors:
                    yield pb.Down(cursor=cursor)

    def send(self, command: Command) -> None:
        down = pb.Down(command=command_to_message(command))
        self._loop.call_soon_threadsafe(self._answers.put_nowait, down)

    async def read(self, requests: AsyncIterator[pb.Up]) -> None:
        try:
            async for up in requests:
                self._agent.heard_ns = self._clock.wall_ns()
                await self._take(up)
        finally:
            self._answers.put_nowait(None)

    async def _take(self, up: pb.Up) -> None:
        kind = up.WhichOneof("message")
        if kind == "batch":
            await self._take_batch(up.batch)
        elif kind == "batches":
            for message in up.batches.batches:
                await self._take_batch(message)
        elif kind == "open":
            journal = check_journal_id(up.open.journal)
            self._say_cursor(journal, self._ingest.cursor(journal), refused=False)
        elif kind == "ping":
            now = self._clock.wall_ns()
            self._agent.hear_clock(up.ping.wall_ns, now)
            self._agent.alive = frozenset(JournalId(name) for name in up.ping.alive)
            pong = pb.Pong(wall_ns=now, problem=self._ingest.problem)
            self._answers.put_nowait(pb.Down(pong=pong))

    async def _take_batch(self, message: pb.Batch) -> None:
        # This is the back-pressure: we stop reading, gRPC's window fills, and the agent waits.
        while not self._ingest.has_room:
            await asyncio.sleep(ROOM_POLL_SECONDS)
        batch = batch_from_message(message, host=self._agent.host, now_ns=self._clock.wall_ns())
        size, agent = _bytes_of(message, batch), self._agent
        taken = self._ingest.submit(batch, agent.client, size, agent.projects)
        taken.add_done_callback(self._stored(batch.end))

    def _stored(self, end: int) -> Callable[[Future[Verdict]], None]:
        def tell(future: Future[Verdict]) -> None:
            if future.cancelled() or future.exception() is not None:
                self._soon(self._answers.put_nowait, None)
                return
            verdict = future.result()
            repeat = not verdict.accepted and end <= verdict.position
            refused = not verdict.accepted and not repeat
            self._soon(self._say_cursor, verdict.journal, verdict.position, refused, verdict.why)

        return tell

    def _soon(self, tell: Callable[..., object], *what: object) -> None:
        # A stopping head may store a batch after its event loop has ended: nobody is left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell, *what)

    def _say_cursor(self, journal: str, position: int, refused: bool, why: str = "") -> None:
        said = pb.Cursor(journal=journal, position=position, refused=refused, why=why)
        self._cursors.append(said)
        if len(self._cursors) == 1:
            self._answers.put_nowait(_CURSORS)


class Uploads(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Calls that last as long as the sender likes.  `end` ends them all, quietly."""

    def __init__(self) -> None:
        self._works: set[asyncio.Future[Any]] = set()

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        found = await continuation(details)
        if found is None or found.stream_unary is None:
            return found
        return grpc.stream_unary_rpc_method_handler(
            self._endable(found.stream_unary),
            request_deserializer=found.request_deserializer,
            response_serializer=found.response_serializer,
        )

    def _endable(self, method: Any) -> Any:
        async def answer(requests: Any, context: grpc.aio.ServicerContext) -> Any:
            work = asyncio.ensure_future(method(requests, context))
            self._works.add(work)
            try:
                await asyncio.wait([work])
                if work.cancelled():
                    await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
                return work.result()
            finally:
                self._works.discard(work)
                work.cancel()

        return answer

    def end(self) -> None:
        for work in self._works:
            work.cancel()


class GrpcServer:
    """Ends every stream before it stops: gRPC prints a traceback for each that it cuts off."""

    def __init__(
        self, server: grpc.aio.Server, service: SpineService | None, uploads: Uploads
    ) -> None:
        self._server = server
        self._service = service
        self._uploads = uploads

    async def stop(self, grace: float) -> None:
        if self._service is not None:
            self._service.end()
        self._uploads.end()
        await self._server.stop(grace)


def is_no_cancellation(record: logging.LogRecord) -> bool:
    """A call that is cancelled before its turn comes, as when a head ends, is a traceback in gRPC's
    log, and nothing to anybody."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


async def serve_grpc(
    service: SpineService | None,
    address: str,
    *,
    certificate: tuple[bytes, bytes] | None = None,
    admission: Admission | None = None,
    others: Sequence[Any] = (),
    also: str = "",
) -> tuple[GrpcServer, int]:
    """Start listening; returns the server and the port it got.  `others` are served beside the
    service, or alone; `also` is another address."""
    uploads = Uploads()
    logging.getLogger("grpc._cython.cygrpc").addFilter(is_no_cancellation)
    server = grpc.aio.server(
        interceptors=(admission or Admission(), uploads),
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            # Agents send all the time.  An idle connection makes room for others.
            ("grpc.max_connection_idle_ms", 60_000),
            ("grpc.server_handshake_timeout_ms", 10_000),
            ("grpc.max_concurrent_streams", 128),
        ],
    )
    own = () if service is None else (service.handler(),)
    server.add_generic_rpc_handlers((*own, *others))
    port = _listen(server, address, certificate)
    if also:
        other = _listen(server, also, certificate)
        logger.info("OTLP by gRPC is taken at port %d, too", other)
    await server.start()
    return GrpcServer(server, service, uploads), port


def _listen(server: grpc.aio.Server, address: str, certificate: tuple[bytes, bytes] | None) -> int:
    try:
        if certificate is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, grpc.ssl_server_credentials([certificate])))
    except RuntimeError as error:
        raise UsageError(
            f"cannot listen on {address}: it is in use, or not an address of this machine; choose "
            "another port (0 takes any free one)"
        ) from error


def _bytes_of(message: pb.Batch, batch: Batch) -> int:
    """About the length of the message.  Asking protobuf for the exact length costs as much as
    writing the message again: a tenth of the whole work for many points."""
    if batch.events or batch.definitions:
        return int(message.ByteSize())
    return ROW_BYTES * (len(batch.points) + len(batch.spans))
