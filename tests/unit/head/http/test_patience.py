"""What nobody waits for any more is given up: a real engine, a real server, and who hangs up."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest
import uvicorn
from starlette.concurrency import run_in_threadpool

from runwatch.clock import system_clock
from runwatch.errors import Abandoned
from runwatch.head.http.patience import Patience
from runwatch.record import RunId
from runwatch.rows import EventRow
from runwatch.store.asking import Question
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.testing import until
from tests.apps import app_of
from tests.integration.head_history import Producer

ENDLESS: Final = """SELECT count(*) FROM range(1000000) a, range(1000000) b
    WHERE a.range % 7 = b.range % 5"""


class SlowStore(DuckStore):
    """Takes for ever to say what happened in one run, and says how that went."""

    working = 0
    ended: list[str]

    def events(self, run: RunId | None = None, **how: Any) -> list[EventRow]:
        if run != "slow" or how.get("kinds") != ["log"]:
            return super().events(run, **how)
        self.working += 1
        try:
            self._ask(lambda reader: reader._connection.execute(ENDLESS).fetchall())
        except Abandoned as error:
            self.ended.append(str(error))
            raise
        return []


@pytest.fixture
def store() -> Iterator[SlowStore]:
    made = SlowStore(None, None, system_clock, DuckSettings(threads=1))
    made.ended = []
    Producer(made, "journal", run="slow").write([("loss", 0, 0, 1.0)], [("run_start", 0, {})])
    yield made
    made.close()


@pytest.fixture
def serve(store: SlowStore) -> Iterator[Any]:
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def begin(seconds: float) -> int:
        app = app_of(store, serving={"answer_seconds": seconds})
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        listening = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        servers.append((server, thread))
        until(lambda: server.started, 30)
        return int(listening.getsockname()[1])

    yield begin
    for server, thread in servers:
        server.should_exit = True
        thread.join(100)
        assert not thread.is_alive()


def ask(port: int, path: str) -> socket.socket:
    caller = socket.create_connection(("127.0.0.1", port), 100)
    caller.sendall(f"GET /api/v1{path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
    return caller


def answer(caller: socket.socket) -> tuple[int, Any]:
    with caller, caller.makefile("rb") as file:
        status = int(file.readline().split()[1])
        length = 0
        while (line := file.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, json.loads(file.read(length))


def test_a_caller_who_hangs_up_ends_his_question(store: SlowStore, serve: Any) -> None:
    port = serve(120.0)
    callers = [ask(port, "/runs/slow/events?kind=log") for _ in range(3)]
    until(lambda: store.working == 3, 30)
    assert store.ended == []
    for caller in callers:
        caller.close()
    until(lambda: len(store.ended) == 3, 30)
    assert set(store.ended) == {"the caller has hung up"}
    status, told = answer(ask(port, "/runs/slow"))  # others are answered
    assert (status, told["run"]) == (200, "slow")


def test_an_answer_that_takes_too_long_is_given_up_and_says_so(
    store: SlowStore, serve: Any
) -> None:
    port = serve(0.2)
    status, told = answer(ask(port, "/runs/slow/events?kind=log"))
    assert status == 503
    assert (
        told["error"]["message"]
        == "the answer took longer than 0.2 s; ask for less, or try again later"
    )
    assert len(store.ended) == 1


def test_a_question_that_was_given_up_is_not_begun(store: SlowStore) -> None:
    question = Question()
    assert question.give_up("enough") is False
    with question.asked(), pytest.raises(Abandoned, match="enough"):
        store.events(RunId("slow"))
    assert [row.kind for row in store.events(RunId("slow"))] == ["run_start"]


def test_the_engine_is_whole_after_it_was_interrupted(store: SlowStore) -> None:
    question = Question()
    failures: list[BaseException] = []

    def work() -> None:
        with question.asked():
            try:
                store.events(RunId("slow"), kinds=["log"])
            except Abandoned as error:
                failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: question.give_up("enough") or failures, 30)
    until(lambda: question.give_up("enough") is False, 30)
    thread.join(100)
    assert len(failures) == 1
    assert store.health().problem == ""
    Producer(store, "another", run="slow").write([("loss", 0, 0, 1.0)])
    assert len(store.processes(RunId("slow"))) == 2


def test_who_waits_too_long_for_what_others_share_is_told_to_come_again() -> None:
    done, sent = threading.Event(), list[Any]()

    async def shared(scope: Any, receive: Any, send: Any) -> None:
        await run_in_threadpool(done.wait, 30)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)
        done.set()

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    asyncio.run(Patience(shared, seconds=0.01)(scope, receive, send))
    assert [m["status"] for m in sent if "status" in m] == [503] and len(sent) == 2
    assert b"longer than 0.01 s" in sent[1]["body"]
