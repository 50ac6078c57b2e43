"""Engines under the conformance suite: each is a way to open a store, and to open it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Store


class Engine:
    """Opens stores and closes what a test left open."""

    def __init__(self, kind: str, root: Path) -> None:
        self.keeps = kind == "duck-disk"
        """Whether what was written is there after `reopen`."""
        self._root = root
        self._count = 0
        self._store: DuckStore | None = None

    def fresh(self) -> Store:
        """A new, empty store."""
        self._count += 1
        return self._open()

    def reopen(self) -> Store:
        return self._open()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _open(self) -> DuckStore:
        self.close()
        directory = self._root / str(self._count) if self.keeps else None
        # Every other store answers from tiny pages: a question must not tell the difference.
        page_rows = 5 if self._count % 2 else 4_000_000
        settings = DuckSettings(threads=1, merge_parts=3, reserve_bytes=0, page_rows=page_rows)
        self._store = DuckStore.open(directory, settings=settings)
        return self._store


@pytest.fixture(params=["duck-memory", "duck-disk"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made = Engine(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.fresh()
