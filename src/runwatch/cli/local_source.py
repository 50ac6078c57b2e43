"""Answers from a directory without a head: this process opens its store and reads its journals."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runwatch.cli.asgi import Exchange
from runwatch.cli.pictures.progress import progress
from runwatch.cli.source import Asking, refused
from runwatch.errors import StoreBusy
from runwatch.head.local import HURRY_BYTES, LocalTail
from runwatch.head.local_head import LocalHead

SMALL_ROUNDS: Final = 8
"""Stop after this many rounds that read little.  Damage in a journal also ends a round early."""


class LocalSource(Asking):
    """Opens the directory's store in this process and reads its journals up to now.

    `bare`: nothing is stored; only goodput can be asked for.
    """

    def __init__(
        self, root: Path, *, in_memory: bool = False, bare: bool = False, raw: bool = False
    ) -> None:
        self.name = str(root)
        self._raw = raw
        self._lasts = os.access(root, os.W_OK) and not (in_memory or bare)
        with progress(f"opening {self.name}"):
            self._head = LocalHead(root, in_memory=in_memory, bare=bare)
        self._head.ingest.keeps_house = False
        self._loop = asyncio.new_event_loop()
        self._exchange: Exchange | None = None
        self._follows = False
        self.refresh()

    def follow(self) -> None:
        self._follows = True
        self._head.ingest.keeps_house = True
        self._head.tail.start()

    def refresh(self) -> None:
        if self._follows:
            return
        with progress(f"reading journals in {self.name}", "rounds") as step:
            # A busy run always has something new, so small rounds are counted.
            small = 0
            while small < SMALL_ROUNDS and (read := self._head.tail.round()):
                small += read < HURRY_BYTES
                step(1)

    def _ask(self, target: str, body: bytes | None, method: str = "") -> Iterator[bytes]:
        self._exchange = answer = Exchange(self._head.app, self._loop, target, body, method)
        if answer.status >= 400:
            raise refused(answer.status, b"".join(answer.body()))
        yield from answer.body()

    def take(self, root: Path) -> None:
        """Store what the journals of another directory hold."""
        if not self._lasts:
            raise StoreBusy(f"cannot store into {self.name}: it is in use, or not writable")
        tail = LocalTail(root, self._head.ingest)
        try:
            while tail.round():
                pass
        finally:
            tail.close()

    def close(self) -> None:
        if self._exchange is not None:
            self._exchange.hang_up()
        self._head.deletions.purge()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._head.close()
