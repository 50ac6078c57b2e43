"""What `runwatch` offers when it cannot even be loaded: the program has no free descriptor.

Everything can be called, nothing is recorded, and that is said once.  Loaded with the package,
since by then nothing can be; hence it needs nothing that is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final


def cannot_load(error: Exception) -> bool:
    """Whether an import failed because there was no descriptor to be had, or no disk to read."""
    if isinstance(error, ImportError):
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return True
        return False
    return True


class Nothing:
    """A run that records nothing.  Each block and each decorated function is left as it is."""

    id = name = group = "run"
    rank = local_rank = 0
    world_size = 1
    status = "running"
    total_steps: int | None = None

    def __init__(self, name: object = None, *_: object, **__: object) -> None:
        if isinstance(name, str) and name:
            self.id = self.name = name
        self.config: dict[str, Any] = {}

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
    """Something to call in place of what could not be loaded."""
    if name not in _OFFERED or not cannot_load(error):
        raise error
    if not _said:
        _said.add(name)
        logging: Any = sys.modules.get("logging")
        message = f"runwatch cannot be loaded ({error}): nothing is recorded"
        if logging is not None:
            logging.getLogger("runwatch").warning("%s", message)
        elif sys.stderr is not None:
            sys.stderr.write(f"{message}\n")
    return _OFFERED[name]
