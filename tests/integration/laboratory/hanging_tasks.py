"""Hangs inside an event loop: the line to be named is that of the innermost `await`."""

from __future__ import annotations

import asyncio

from tests.integration.laboratory.case import Scene, Shelf

hang = Shelf(hangs=True)


@hang("await of an event that nobody sets")
def await_event(scene: Scene) -> None:
    async def wait_for_go() -> None:
        await asyncio.Event().wait()  # here: await_event

    async def main() -> None:
        await wait_for_go()

    asyncio.run(main())


@hang("await of a queue, in a task that others are gathered with; a timer ticks beside it")
def await_queue(scene: Scene) -> None:
    async def consume() -> None:
        await asyncio.Queue[int]().get()  # here: await_queue

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.5)

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        await asyncio.gather(asyncio.create_task(consume(), name="consumer"))
        ticking.cancel()

    asyncio.run(main())


@hang("await of a stream that nobody writes to")
def await_stream(scene: Scene) -> None:
    async def main() -> None:
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        reader, _writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readline()  # here: await_stream

    asyncio.run(main())


@hang("two tasks, each with the other's lock")
def await_locks(scene: Scene) -> None:
    async def main() -> None:
        first, second, met = asyncio.Lock(), asyncio.Lock(), asyncio.Barrier(2)

        async def take(one: asyncio.Lock, other: asyncio.Lock) -> None:
            async with one:
                await met.wait()
                await other.acquire()  # here: await_locks

        async with asyncio.TaskGroup() as group:
            group.create_task(take(first, second))
            group.create_task(take(second, first))

    asyncio.run(main())
