"""A caller who hangs up ends the work on its answer, in Python too and where others may share."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.head.main import LocalHead
from runwatch.head.state.accounts import accounts, fold
from runwatch.head.state.accounts.fold import Fold
from runwatch.store.asking import Question
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests.integration.fat_store import FAT, OTHER_SERIES, Size, fat_store

SIZE: Final = Size(ranks=4, points=0, steps=20_000, series=4, logs=0, of_each_kind=0, runs=60)
STRETCH_ROWS: Final = 3_000
ALL_RUNS: Final = "/api/v1/runs?order=-devices&limit=10000" + "".join(
    f"&metrics=other-{number}" for number in range(OTHER_SERIES)
)
SECONDS: Final = 100

# One store for all of them: it takes long to make.
pytestmark = pytest.mark.xdist_group("cancelled")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fat")
    fat_store(root / "store", SIZE)
    return root


@pytest.fixture
def head(root: Path) -> Iterator[LocalHead]:
    shutil.rmtree(root / "store" / "folds", ignore_errors=True)  # accounts that the last one kept
    head = LocalHead(root)
    yield head
    head.close()


class Work:
    """Counts the calls of one method, and holds the first until `go_on`."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.calls = 0
        self.begun, self.go_on, self.given_up = (threading.Event() for _ in range(3))
        method, give_up = getattr(owner, name), Question.give_up

        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            self.begun.set()
            assert self.go_on.wait(SECONDS)
            return method(*arguments, **named)

        def noted(question: Question, why: str) -> bool:
            worked = give_up(question, why)
            self.given_up.set()
            return worked

        patch.setattr(owner, name, counted)
        patch.setattr(Question, "give_up", noted)


async def answered(app: Any, target: str, leaving: asyncio.Event) -> list[Any]:
    """What is sent to a caller who hangs up once `leaving` is set."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
    }  # fmt: skip
    messages = [{"type": "http.request", "body": b"", "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def hung_up(app: Any, target: str, work: Work) -> list[Any]:
    """What is sent to a caller who hangs up amid the work."""
    leaving = asyncio.Event()
    answering = asyncio.ensure_future(answered(app, target, leaving))
    assert await asyncio.to_thread(work.begun.wait, SECONDS)
    leaving.set()
    assert await asyncio.to_thread(work.given_up.wait, SECONDS)
    work.go_on.set()
    return await answering


def check(head: LocalHead, target: str, work: Work) -> None:
    start, end = asyncio.run(hung_up(head.app, target, work))
    assert start["status"] == 503 and b"the caller has hung up" in end["body"]
    until(lambda: head.accounts.worker.is_idle)
    assert work.calls <= 2, "the first stretch is empty, and ends no slice of the worker's"
    asyncio.run(answered(head.app, target, asyncio.Event()))
    until(lambda: work.calls > 10, what="the work for a caller who waits: there is much to do")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/goodput",
        f"/api/v1/runs/{FAT}/goodput",
        f"/api/v1/runs/{FAT}/timeline",
    ],
)
def test_an_account_that_nobody_waits_for_is_not_drawn_up(
    head: LocalHead, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "FEW_RECORDS", 0)  # it is long enough for the worker
    monkeypatch.setattr(fold, "WANTED", replace(fold.WANTED, rows=STRETCH_ROWS))
    check(head, path, Work(monkeypatch, Fold, "_take"))


def test_a_list_of_runs_that_nobody_waits_for_is_not_made(
    head: LocalHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(head, ALL_RUNS, Work(monkeypatch, DuckStore, "series"))
