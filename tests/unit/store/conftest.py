"""Engines under the conformance suite: every one in the table, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.engines import ENGINES, open_store
from runwatch.store.store import Store
from tests.unit.store.children import stop_server

PLACES = ("memory", "disk")


@pytest.fixture(scope="session", autouse=True)
def children_are_forked() -> Iterator[None]:
    yield
    stop_server()


def crossed(name: str, values: Iterable[object]) -> pytest.MarkDecorator:
    """Each engine, and each of the values, in some combination; all combinations in a soak."""
    engines = [f"{engine}-{place}" for engine in ENGINES for place in PLACES]
    return pytest.mark.parametrize(
        ("engine", name),
        [
            pytest.param(engine, value, marks=() if (n + m) % 2 == 0 else pytest.mark.soak)
            for n, engine in enumerate(engines)
            for m, value in enumerate(values)
        ],
        indirect=["engine"],
    )


class Engine:
    """Opens stores and closes what a test left open."""

    def __init__(self, name: str, place: str, root: Path) -> None:
        self.keeps = place == "disk"
        """Whether what was written is there after `reopen`."""
        self._name = name
        self._root = root
        self._count = 0
        self._store: Store | None = None

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

    def _open(self) -> Store:
        self.close()
        directory = self._root / str(self._count) if self.keeps else None
        self._store = (
            self._duck(directory) if self._name == "duckdb" else open_store(self._name, directory)
        )
        return self._store

    def _duck(self, directory: Path | None) -> Store:
        # Every other store answers from tiny pages: a question must not tell the difference.
        page_rows = 5 if self._count % 2 else 4_000_000
        settings = DuckSettings(threads=1, merge_parts=3, reserve_bytes=0, page_rows=page_rows)
        return DuckStore.open(directory, settings=settings)


@pytest.fixture(params=[f"{name}-{place}" for name in ENGINES for place in PLACES])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    name, _, place = request.param.rpartition("-")
    opener = Engine(name, place, tmp_path)
    yield opener
    opener.close()


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.fresh()
