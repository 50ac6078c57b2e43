"""What many pages watch is worked out once, and each is told what is news to it."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from runwatch.head.http import feed as feeding
from runwatch.head.http.feed import Cards, feed
from runwatch.head.http.guests import EVERYTHING, Sight
from runwatch.head.http.live import Live, Subscription
from runwatch.head.reading import Reading
from runwatch.head.settings import Pace
from runwatch.head.state.board import RunBoard
from runwatch.record import JournalId, RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests.integration.head_history import Producer

WATCHERS = 20
PACE = Pace(run_seconds=0.01, all_seconds=0.01, keep_alive_seconds=20.0)


class World:
    """A head's store, board and hub, and how often the board and the store were asked."""

    def __init__(self) -> None:
        self.store = DuckStore.open(None)
        self.live = Live()
        reading = Reading(self.store)
        self.board = RunBoard(reading, told=True)
        self.cards = Cards(reading, self.live, fresh_seconds=20.0, board=self.board)
        self.reading = reading
        self.process = Producer(self.store, "a", run="r", group="team")
        self.asked: list[str] = []
        self.waiting = 0
        """So many streams wait for a change."""

    async def all_wait(self, count: int) -> None:
        async with asyncio.timeout(100):
            while self.waiting < count:
                await asyncio.sleep(0.001)

    def write(self, step: int, **more: Any) -> None:
        batch = self.process.write([("loss", step, step, step / 7)], **more)
        self.board.stored([batch])
        self.live.stored([batch])

    def watch(
        self, run: str | None, *, values: bool = True, sight: Sight = EVERYTHING, last_id: str = ""
    ) -> AsyncIterator[bytes]:
        return feed(
            self.reading,
            self.live,
            self.cards,
            run=None if run is None else RunId(run),
            last_id=last_id,
            pace=PACE,
            values=values,
            sight=sight,
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    for place, name in (
        (feeding, "latest_infos"),
        (feeding, "described"),
        (RunBoard, "card"),
        (RunBoard, "cards"),
        (Reading, "latest"),
    ):
        count(monkeypatch, made, place, name)
    wait = Subscription.wait

    async def waits(subscription: Subscription, seconds: float) -> frozenset[JournalId]:
        made.waiting += 1
        try:
            return await wait(subscription, seconds)
        finally:
            made.waiting -= 1

    monkeypatch.setattr(Subscription, "wait", waits)
    made.write(1, events=[("run_start", 0, {})])
    yield made
    made.store.close()


def count(monkeypatch: pytest.MonkeyPatch, world: World, place: Any, name: str) -> None:
    real = getattr(place, name)

    def counted(*given: Any, **named: Any) -> Any:
        world.asked.append(name)
        return real(*given, **named)

    monkeypatch.setattr(place, name, counted)


async def heard(stream: AsyncIterator[bytes], count: int = 1) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    async with asyncio.timeout(100):
        while len(found) < count:
            lines = (await anext(stream)).decode().splitlines()
            fields = dict(line.split(": ", 1) for line in lines if line and line[0] != ":")
            if fields:
                found.append((fields["event"], json.loads(fields["data"])))
    return found


async def all_heard(streams: list[AsyncIterator[bytes]], count: int) -> list[Any]:
    return list(await asyncio.gather(*(heard(stream, count) for stream in streams)))


def test_a_run_that_many_watch_is_looked_at_once(world: World) -> None:
    async def watch() -> None:
        streams = [world.watch("r") for _ in range(WATCHERS)]
        for [(name, _)] in await all_heard(streams, 1):
            assert name == "hello"
        for step in (2, 3):
            world.asked.clear()
            waiting = asyncio.gather(*(heard(stream, 2) for stream in streams))
            await world.all_wait(WATCHERS)  # then one change wakes them together
            world.write(step)
            said = await waiting
            assert all(one == said[0] for one in said)
            (_, info), (_, points) = said[0]
            assert info["last_step"] == step
            assert [point["step"] for point in points["points"]] == [step]
            assert sorted(world.asked) == ["card", "described", "latest", "latest", "latest_infos"]
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(watch())


def test_the_list_that_many_watch_is_made_once(world: World) -> None:
    async def watch() -> None:
        streams = [world.watch(None) for _ in range(WATCHERS)]
        await all_heard(streams, 1)
        world.asked.clear()
        waiting = asyncio.gather(*(heard(stream) for stream in streams))
        await world.all_wait(WATCHERS)
        world.write(2)
        said = await waiting
        assert all(one == said[0] for one in said)
        assert [(name, info["last_step"]) for name, info in said[0]] == [("run", 2)]
        assert sorted(world.asked) == ["cards", "described", "latest"]
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(watch())


def test_who_may_not_see_a_run_hears_nothing_of_it(world: World) -> None:
    async def watch() -> None:
        mine, other = Sight(projects=("team",)), Sight(projects=("other",))
        streams = [world.watch(None, sight=sight) for sight in (mine, other, EVERYTHING)]
        await all_heard(streams, 1)
        waiting = asyncio.gather(heard(streams[0]), heard(streams[2]))
        nothing = asyncio.ensure_future(anext(streams[1]))
        await world.all_wait(len(streams))
        world.write(2)
        for [(name, info)] in await waiting:
            assert (name, info["run"]) == ("run", "r")
        assert await asyncio.wait_for(nothing, 100) == b": still here\n\n"
        with pytest.raises(Exception, match="there is no run 'r'"):
            await heard(world.watch("r", sight=other))
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(watch())


def test_each_is_told_what_is_news_to_it(world: World) -> None:
    """One who comes later, one without values, and one who comes again and is told all."""

    async def watch() -> None:
        first, bare = world.watch("r"), world.watch("r", values=False)
        await all_heard([first, bare], 1)
        world.write(2)
        for (name, _), (_, points) in await all_heard([first, bare], 2):
            assert name == "run"
            assert len(points["points"]) <= 1
        again = world.watch("r", last_id="earlier-1")
        (_, _), (_, info), (_, points) = await heard(again, 3)
        assert info["last_step"] == 2 and [p["step"] for p in points["points"]] == [2]
        world.process.write([("lr", 1, 2, 0.1)])
        world.write(3)
        said = await all_heard([first, again], 2)
        assert said[0] == said[1]
        assert sorted(p["metric"] for p in said[0][1][1]["points"]) == ["loss", "lr"]
        for stream in (first, bare, again):
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(watch())


def test_scenes_last_as_long_as_somebody_watches(world: World) -> None:
    async def watch() -> None:
        stream = world.watch("r")
        await heard(stream)
        assert len(world.cards._stages) == 1
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(watch())
    # A thread that made a scene may hold it until its end.
    until(lambda: gc.collect() >= 0 and not world.cards._stages)
