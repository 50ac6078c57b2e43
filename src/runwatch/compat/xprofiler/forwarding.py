"""A port of this machine that leads to a viewer's own port, as long as the viewer lives:
`python -m runwatch.compat.xprofiler.forwarding 6006 127.0.0.1:40123 PID START_TICKS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import Final

from runwatch.journal.liveness import start_ticks

LOOK_SECONDS: Final = 1.0
_PIECE: Final = 1 << 16


def main(words: Sequence[str]) -> int:
    port, address, pid, ticks = words
    host, _, target = address.rpartition(":")
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        try:
            asyncio.run(_forward(int(port), host.strip("[]"), int(target), int(pid), int(ticks)))
        except OSError as error:
            print(f"port {port} cannot be used: {error.strerror or error}", flush=True)
            return 1
    return 0


async def _forward(port: int, host: str, target: int, pid: int, ticks: int) -> None:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            back.close()
            writer.close()

    async with await asyncio.start_server(one, "localhost", port):
        print(f"Forwarding from localhost:{port}", flush=True)
        while start_ticks(pid) == ticks:
            await asyncio.sleep(LOOK_SECONDS)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
        target.write_eof()
    except OSError:  # one side hung up: the other is told so
        target.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
