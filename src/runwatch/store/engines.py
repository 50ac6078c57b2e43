"""Every store engine by its name: a package here, and a line in `ENGINES`.

The head, the commands and the conformance tests all open stores from this table.  An engine is
imported when it is opened: engines are heavy, and most programs need none or one.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from runwatch.clock import Clock, system_clock
from runwatch.errors import UsageError
from runwatch.settings import load, setting

if TYPE_CHECKING:  # it needs numpy, which who only asks for the names may not have
    from runwatch.store.store import Store

ENGINES: Final = {
    # The name, then where in this room its class is.
    "duckdb": "duck.engine:DuckStore",
}
USUAL: Final = "duckdb"


class Engine(Protocol):
    """What the class of an engine has."""

    def open(self, directory: Path | None, *, clock: Clock) -> Store:
        """Open or create a store; without a directory one in memory, that ends with `close`."""
        ...


@dataclass(frozen=True, slots=True)
class StoreSettings:
    engine: str = setting(
        USUAL, env="RUNWATCH_STORE_ENGINE", help=f"what keeps the records: {', '.join(ENGINES)}"
    )

    def __post_init__(self) -> None:
        _check(self.engine)


def engine_in_use() -> str:
    """The one that the settings name."""
    return load(StoreSettings, section="store").values.engine


def open_store(engine: str, directory: Path | None, *, clock: Clock = system_clock) -> Store:
    _check(engine)
    module, _, name = ENGINES[engine].partition(":")
    store_class = cast(Engine, getattr(import_module(f"{__package__}.{module}"), name))
    return store_class.open(directory, clock=clock)


def _check(engine: str) -> None:
    if engine not in ENGINES:
        known = ", ".join(ENGINES)
        raise UsageError(f"there is no store engine {engine!r}; there is {known}")
