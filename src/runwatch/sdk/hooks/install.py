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
from runwatch.sdk.hooks import AUTO_HOOKS, HOOKS
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.switches import is_off

if TYPE_CHECKING:
    from runwatch.sdk.run import Run


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    return not is_off("RUNWATCH_HOOKS", environment)


class Hooks:
    """The hooks of one run."""

    since_ns: int | None = None
    """When the run that is about to start began; None: now."""

    def __init__(self, run: Run | None = None) -> None:
        self._tell = Teller(run)
        self._table: tuple[tuple[str, str], ...] = HOOKS
        self._wanted = wanted()
        self._seen: set[tuple[str, str]] = set()
        self.forget()

    def forget(self) -> None:
        """In a forked child, where wrapped functions stay wrapped but record nothing."""
        self._lock = threading.RLock()

    @guarded("set hooks for a run", quiet=True)
    def serve(self, run: Run) -> None:
        """From now on they tell this run."""
        if self._tell.run is not run:
            self._tell.attach(run)
        self.look()

    @guarded("look for frameworks", quiet=True)
    def look(self, modules: Mapping[str, ModuleType] = sys.modules) -> None:
        """Set the hooks of imported frameworks, and let the hooks that are set do their upkeep."""
        with self._lock:
            if not self._wanted:
                return
            for hook in self._table:
                if hook not in self._seen and is_loaded(hook[0], modules):
                    self._install(hook)
            for function in self._tell.every_second:
                _call(function)

    def _install(self, hook: tuple[str, str]) -> None:
        def install() -> None:
            import_module(f"{__package__}.{hook[1]}").install(self._tell)

        self._seen.add(hook)
        attempt(f"set the hook {hook[1]}", None, install, quiet=True)

    def silence_steps(self) -> None:
        """The program tells its steps itself, in a way that the run does not see."""
        if self._tell.loop is not None:
            self._tell.loop.silence()

    @guarded("remove the hooks", quiet=True)
    def remove(self, run: Run | None = None) -> None:
        """The run ends; the hooks of a process may tell another by now."""
        if run is None or run is self._tell.run:
            self._tell.finish_steps()
            self._take_away()
            self._tell.leave()

    def _take_away(self) -> None:
        with self._lock:
            self._wanted = False
            for function in self._tell.at_the_end:
                _call(function)


class ProcessHooks(Hooks):
    """Those of a process that tells its steps and metrics too, whichever run it has.

    `at_the_end` is called when they have been removed; without it they outlive a run.
    """

    def __init__(
        self, begin: Callable[[], Run | None], at_the_end: Callable[[], None] | None = None
    ) -> None:
        super().__init__()
        self._tell = Teller(begin=begin)
        self._table = HOOKS + AUTO_HOOKS
        self._at_the_end = at_the_end

    @property
    def has_run(self) -> bool:
        return self._tell.listens

    @property
    def expects_run(self) -> bool:
        return self._tell.expects

    @guarded("set the hooks of a framework", quiet=True)
    def loaded(self, framework: str) -> None:
        """It has just been imported."""
        with self._lock:
            for hook in self._table:
                if hook[0] == framework and self._wanted and hook not in self._seen:
                    self._install(hook)

    def _take_away(self) -> None:
        global _process
        if self._at_the_end is None:
            for function in self._tell.every_second:
                _call(function)
        else:
            super()._take_away()
            _process = None
            self._at_the_end()


_process: ProcessHooks | None = None


def hooks_of_process(
    begin: Callable[[], Run | None], at_the_end: Callable[[], None] | None = None
) -> ProcessHooks:
    global _process
    if _process is None:
        _process = ProcessHooks(begin, at_the_end)
    return _process


def hooks_of(run: Run) -> Hooks:
    return Hooks(run) if _process is None else _process


@guarded("look after a hook", quiet=True)
def _call(function: Callable[[], None]) -> None:
    function()


def is_loaded(name: str, modules: Mapping[str, ModuleType] = sys.modules) -> bool:
    """Imported, and not just being imported by another thread."""
    module = modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)
