"""Bodies of answers that are sent while they are made."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from runwatch.head.http.patience import for_caller


async def nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def file(scratch: tempfile.TemporaryDirectory[str], path: Path) -> AsyncIterator[bytes]:
    try:
        with path.open("rb") as content:
            while piece := await run_in_threadpool(content.read, 1 << 18):
                yield piece
    finally:
        scratch.cleanup()


async def streamed(
    request: Request, pieces: Iterator[str], source: Iterator[Any]
) -> AsyncIterator[bytes]:
    """The pieces, made in threads.  The store's reading ends when the client hangs up."""
    try:
        while (piece := await for_caller(request, lambda: next(pieces, None))) is not None:
            yield piece.encode()
    finally:
        for iterator in (pieces, source):
            if (close := getattr(iterator, "close", None)) is not None:
                close()
