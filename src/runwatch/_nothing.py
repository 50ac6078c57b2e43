"""What `runwatch` offers when it cannot be loaded, because the program has no free descriptor.

Everything can be called, nothing is recorded, and one warning says so.  This module is loaded with
the package, since later nothing can be loaded; so it imports nothing that is not loaded already.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final


def cannot_load(error: Exception) -> bool:
    """Whether an import failed because no descriptor was free or the disk could not be read."""
    if isinstance(error, ImportError):
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return True
        return False
    return True


class Nothing:
    """A run that records nothing.  Blocks and decorated functions run unchanged."""

    id = name = group = "run"
    rank = local_rank = 0
    world_size = 1
    status = "running"
    total_steps: int | None = None

    def __init__(self, name: object = None, *_: object, **__: object) -> None:
        if isinstance(name, str) and name:
            self.id = self.name = name
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """What programs that know us as wandb ask a run for."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self.log

    def log(self, *_: object, **__: object) -> None:
        pass

    def finish(self, *_: object, **__: object) -> None:
        pass

    start = stop = log

    def steps(self, items: Iterable[Any], *, start: int = 0) -> Iterator[tuple[int, Any]]:
        return enumerate(items, start)

    def data(self, items: Iterable[Any]) -> Iterable[Any]:
        return items

    def step(self, *_: object, **__: object) -> Nothing:
        return self

    span = profile = step

    def __call__(self, function: Any) -> Any:
        return function

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_nothing: Final = Nothing()
_said: Final[set[str]] = set()
_OFFERED: Final[dict[str, Any]] = {
    "init": Nothing,
    "current_run": lambda: None,
    "run": None,
    "config": _nothing.config,
    "summary": _nothing.summary,
    "log": _nothing.log,
    "finish": _nothing.finish,
    "steps": _nothing.steps,
    "step": _nothing.step,
    "span": _nothing.span,
    "data": _nothing.data,
    "profile": _nothing.profile,
    "diagnose": _nothing.step,
}


def instead_of(name: str, error: Exception) -> Any:
    """A replacement for what could not be loaded; it can be called."""
    if name.startswith("_") or not cannot_load(error):
        raise error
    if not _said:
        _said.add(name)
        logging: Any = sys.modules.get("logging")
        message = f"runwatch cannot be loaded ({error}): nothing is recorded"
        if logging is not None:
            logging.getLogger("runwatch").warning("%s", message)
        elif sys.stderr is not None:
            sys.stderr.write(f"{message}\n")
    return _OFFERED.get(name, Nothing)  # wandb's functions and types
