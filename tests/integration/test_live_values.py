"""A stream that tells that points came, without listing them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from runwatch.head.http.live import Live
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock
from tests.integration.head_history import (
    Producer,
    when,
)
from tests.integration.test_http_api import listening, served


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


def test_that_points_came_can_be_told_without_them(store: Store) -> None:
    live, trainer = Live(), Producer(store, "j0")
    trainer.write([("loss", 0, 0, 5.0)])
    with served(store, live, FakeClock(when(1))) as url:
        with listening(f"{url}/live?run=run-1&values=off") as stream:
            stream.next("hello")
            live.stored([trainer.write([("loss", 1, 1, 4.0), ("lr", 1, 1, 0.1)])])
            assert stream.next("run")["last_step"] == 1
            assert stream.next("points") == {"run": "run-1", "points": []}
            live.stored([trainer.write([("loss", 2, 1, 3.0)])])
            assert stream.next("points") == {"run": "run-1", "points": []}
        assert httpx2.get(f"{url}/live?values=some", timeout=100).status_code == 400
