"""Sets hooks when their framework is imported, and removes them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from runwatch.sdk.guard import attempt, guarded
from runwatch.sdk.hooks import HOOKS
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.switches import is_off

if TYPE_CHECKING:
    from runwatch.sdk.run import Run


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    return not is_off("RUNWATCH_HOOKS", environment)


class Hooks:
    """The hooks of one run."""

    def __init__(self, run: Run) -> None:
        self._tell = Teller(run)
        self._wanted = wanted()
        self._seen: set[str] = set()
        self.forget()

    def forget(self) -> None:
        """In a forked child, where wrapped functions stay wrapped but record nothing."""
        self._lock = threading.RLock()

    @guarded("look for frameworks")
    def look(self, modules: Mapping[str, ModuleType] = sys.modules) -> None:
        """Set the hooks of imported frameworks, and let the hooks that are set do their upkeep."""
        with self._lock:
            if not self._wanted:
                return
            for framework, home in HOOKS:
                if home not in self._seen and is_loaded(framework, modules):
                    self._seen.add(home)
                    self._install(home)
            for function in self._tell.every_second:
                _call(function)

    def _install(self, home: str) -> None:
        def install() -> None:
            import_module(f"{__package__}.{home}").install(self._tell)

        attempt(f"set the hook {home}", None, install)

    @guarded("remove the hooks")
    def remove(self) -> None:
        with self._lock:
            self._wanted = False
            for function in self._tell.at_the_end:
                _call(function)
            self._tell.deaf = True


@guarded("look after a hook")
def _call(function: Callable[[], None]) -> None:
    function()


def is_loaded(name: str, modules: Mapping[str, ModuleType] = sys.modules) -> bool:
    """Imported, and not just being imported by another thread."""
    module = modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)
