"""`pods/portforward`: a WebSocket with SPDY in it, as kubectl opens it from 1.31 on.

Each connection to the forwarded port is a pair of streams: what goes through it, and what went
wrong.  The older upgrade to SPDY itself is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import WSMsgType, web

from tests.cluster import spdy
from tests.cluster.answers import bad_request

PROTOCOL: Final = "SPDY/3.1+portforward.k8s.io"
_AT_ONCE_BYTES: Final = 64 * 1024
Ports = Mapping[int, tuple[str, int]]


@dataclass
class _Pair:
    port: int
    error: int = 0
    data: int = 0


@dataclass
class _Forward:
    socket: web.WebSocketResponse
    ports: Ports
    writer: spdy.Writer = field(default_factory=spdy.Writer)
    pairs: dict[str, _Pair] = field(default_factory=dict)
    inward: dict[int, asyncio.Queue[bytes]] = field(default_factory=dict)
    """By stream; b"" is the end."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        reader = spdy.Reader()
        async for message in self.socket:
            if message.type != WSMsgType.BINARY:
                continue
            for frame in reader.frames(message.data):
                await self._take(frame)

    async def _take(self, frame: spdy.Frame) -> None:
        if frame.kind == spdy.SYN_STREAM:
            await self.socket.send_bytes(self.writer.reply(frame.stream))
            self._opened(frame)
        elif frame.kind == spdy.PING:
            await self.socket.send_bytes(spdy.control(spdy.PING, frame.data))
        elif (queue := self.inward.get(frame.stream)) is not None:
            if frame.data and frame.kind == 0:
                queue.put_nowait(frame.data)
            if frame.kind == spdy.RST_STREAM or frame.flags & spdy.FIN:
                queue.put_nowait(b"")

    def _opened(self, frame: spdy.Frame) -> None:
        headers = {name.lower(): value for name, value in frame.headers.items()}
        pair = self.pairs.setdefault(headers["requestid"], _Pair(int(headers["port"])))
        if headers["streamtype"] == "error":
            pair.error = frame.stream
        else:
            pair.data = frame.stream
            self.inward[frame.stream] = asyncio.Queue()
        if pair.error and pair.data:
            del self.pairs[headers["requestid"]]
            task = asyncio.create_task(self._joined(pair))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _joined(self, pair: _Pair) -> None:
        host, port = self.ports.get(pair.port, ("127.0.0.1", pair.port))
        wrong = b""
        try:
            inside, outside = await asyncio.open_connection(host, port)
        except OSError as error:
            wrong = f"failed to connect to localhost:{pair.port} inside the pod: {error}".encode()
        else:
            await self._carried(pair.data, inside, outside)
        del self.inward[pair.data]
        if not self.socket.closed:
            await self.socket.send_bytes(spdy.data(pair.error, wrong, spdy.FIN))
            await self.socket.send_bytes(spdy.data(pair.data, b"", spdy.FIN))

    async def _carried(
        self, stream: int, inside: asyncio.StreamReader, outside: asyncio.StreamWriter
    ) -> None:
        inward = asyncio.create_task(self._inward(self.inward[stream], outside))
        try:
            while said := await inside.read(_AT_ONCE_BYTES):
                await self.socket.send_bytes(spdy.data(stream, said))
        except ConnectionError:
            pass  # either side is gone
        finally:
            inward.cancel()
            outside.close()

    async def _inward(self, queue: asyncio.Queue[bytes], outside: asyncio.StreamWriter) -> None:
        while said := await queue.get():
            outside.write(said)
            await outside.drain()
        if outside.can_write_eof():
            outside.write_eof()


async def forwarded(request: web.BaseRequest, ports: Ports) -> web.StreamResponse:
    """Until the client goes."""
    socket = web.WebSocketResponse(protocols=(PROTOCOL,), max_msg_size=0)
    if not socket.can_prepare(request):
        raise bad_request("this API server forwards ports by WebSocket alone")
    await socket.prepare(request)
    forward = _Forward(socket, ports)
    try:
        await forward.run()
    finally:
        for task in forward.tasks:
            task.cancel()
        await asyncio.gather(*forward.tasks, return_exceptions=True)
    return socket
