from __future__ import annotations

import asyncio
import threading

import pytest

from runwatch.head.http.live import Live, TooManySubscribers
from runwatch.record import Batch, JournalId, Origin, Position

A, B = JournalId("a"), JournalId("b")
LONG = 20.0


def test_changes_between_two_looks_are_one_set() -> None:
    async def watch() -> None:
        live = Live()
        with live.subscribe() as subscription:
            live.changed([A])
            live.changed([B])
            live.changed([A])
            assert await subscription.wait(LONG) == {A, B}
            assert await subscription.wait(0) == frozenset()
            origin = Origin(A, "h", 1, 0)
            live.stored([Batch(origin, Position(0), Position(1))] * 2)
            assert await subscription.wait(LONG) == {A}

    asyncio.run(watch())


def test_each_subscriber_has_its_own_set_and_is_forgotten_when_it_leaves() -> None:
    async def watch() -> None:
        live = Live()
        with live.subscribe() as first:
            live.changed([A])
            with live.subscribe() as second:
                live.changed([B])
                assert live.subscribers == 2
                assert await second.wait(LONG) == {B}
            assert await first.wait(LONG) == {A, B}
        assert live.subscribers == 0

    asyncio.run(watch())


def test_a_change_from_another_thread_wakes_who_waits() -> None:
    async def watch() -> None:
        live = Live()
        with live.subscribe() as subscription:
            seen: set[JournalId] = set()
            names = [JournalId(str(number)) for number in range(2000)]

            def write() -> None:
                for name in names:
                    live.changed([name])

            writer = threading.Thread(target=write)
            writer.start()
            while len(seen) < len(names):
                moved = await subscription.wait(LONG)
                assert moved or seen == set(names) or writer.is_alive()
                seen |= moved
            writer.join()
            assert seen == set(names)

    asyncio.run(watch())


def test_ids_name_moments() -> None:
    live = Live()
    before = live.id
    assert live.id == before
    live.changed([A])
    assert live.id != before
    assert Live().id.split("-")[0] != before.split("-")[0]


def test_close_ends_waiting_and_refuses_newcomers() -> None:
    async def watch() -> None:
        live = Live()
        with live.subscribe() as subscription:
            waiting = asyncio.create_task(subscription.wait(LONG))
            await asyncio.sleep(0)
            live.close()
            assert await waiting == frozenset()
            assert subscription.ended
            await subscription.pause(LONG)
        with pytest.raises(TooManySubscribers, match="stopping"), live.subscribe():
            pass

    asyncio.run(watch())


def test_capacity() -> None:
    async def watch() -> None:
        live = Live(capacity=2)
        with (
            live.subscribe(),
            live.subscribe(),
            pytest.raises(TooManySubscribers, match="2 live connections"),
            live.subscribe(),
        ):
            pass
        with live.subscribe():
            assert live.subscribers == 1

    asyncio.run(watch())


def test_a_change_after_the_loop_is_gone_does_no_harm() -> None:
    live = Live()
    loop = asyncio.new_event_loop()

    async def open_and_leave_open() -> object:
        context = live.subscribe()
        context.__enter__()
        return context

    kept = loop.run_until_complete(open_and_leave_open())
    loop.close()
    live.changed([A])
    live.close()
    assert live.subscribers == 1 and kept is not None
