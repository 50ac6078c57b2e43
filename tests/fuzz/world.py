"""A head in this process with a run that is well, and everything that one can ask of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from runwatch.cli.asgi import Exchange
from runwatch.head.main import LocalHead
from runwatch.record import Batch, Event, JournalId, Origin, Position, RunId, RunScope, Series
from tests.fuzz.children import MEMORY, MOST_SECONDS, most_bytes
from tests.fuzz.hostile import NOW

POINTS: Final = 50


class World:
    """`head` with the run `healthy`; `send` stores batches, `ask` is a request."""

    def __init__(self, head: LocalHead) -> None:
        self.head = head
        self._loop = asyncio.new_event_loop()
        self.send([healthy()])
        self.paths = sorted(self._described())
        self.begun_bytes = most_bytes()

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def send(self, batches: Sequence[Batch]) -> None:
        for future in [self.head.ingest.submit(batch) for batch in batches]:
            future.result(60)

    def ask(self, target: str, said: bytes | None = None, method: str = "") -> tuple[int, bytes]:
        answer = Exchange(self.head.app, self._loop, target, said, method)
        return answer.status, b"".join(answer.body())

    def _described(self) -> Iterator[str]:
        _, body = self.ask("/api/v1/openapi.json")
        for path, operations in json.loads(body)["paths"].items():
            if "get" in operations and path != "/api/v1/live":
                yield path

    def targets(self, run: str, session: str = "s1") -> Iterator[str]:
        """Every question that is asked with GET, about this run."""
        needed = {
            "curves": "?metric=loss", "heatmap": "?metric=loss", "bands": "?metric=loss",
        }  # fmt: skip
        names = {
            "run": run, "session": session, "id": "i1", "incident": "i1", "name": "a.json",
            "command": "c1", "file": "a.json",
        }  # fmt: skip
        for path in self.paths:
            for name, given in names.items():
                path = path.replace("{" + name + "}", quote(given, safe=""))
            yield path + needed.get(path.rpartition("/")[2], "")
        yield from ("/metrics", "/gswarm/status", "/status", "/sessions", "/profiles")

    def answers(self, run: str) -> None:
        """Every question has an answer, and soon."""
        for target in self.targets(run):
            begun = time.process_time()
            status, body = self.ask(target)
            took = time.process_time() - begun
            assert status < 500, (target, status, body[:300])
            assert took < MOST_SECONDS, (target, took)

    def is_well(self) -> None:
        """The healthy run is there, complete and exact."""
        status, body = self.ask("/api/v1/runs/healthy/export?format=json&metric=loss")
        assert status == 200, body[:300]
        mine = [p for p in json.loads(body) if p["metric"] == "loss"]
        assert [p["value"] for p in mine] == [i / 7 for i in range(POINTS)]
        assert most_bytes() - self.begun_bytes < MEMORY


def healthy() -> Batch:
    origin = Origin(JournalId("healthy-1"), "node-1", 42, NOW, "boot", 7)
    batch = Batch(origin, Position(0), Position(10_000))
    batch.definitions = [RunScope(1, RunId("healthy"), "healthy"), Series(2, "loss", 1)]
    for i in range(POINTS):
        batch.points.append(2, NOW + i * 10**9, i, i / 7)
    batch.events = [Event(NOW, "run_start", {"run": "healthy"}, scope=1)]
    return batch


@contextmanager
def a_world(root: Path) -> Iterator[World]:
    head = LocalHead(root)
    world = World(head)
    try:
        yield world
    finally:
        world.close()
        head.close()
