"""Programs that nobody changed: hooks are set as frameworks are imported, and begin the run.

`begin` is called before the program, in every Python process of a command (`runwatch exec`).  So it
does next to nothing: it watches imports.  When the first framework of `hooks/` has been imported,
its hooks are set, and the rest of the SDK is loaded.  The process becomes part of a run at the
first sign of training or logging: launchers, loader workers and helper scripts never do.
`init(auto=True)` is the same for one run of a program that calls `init`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Final

from runwatch.sdk.console.own_frames import is_shown, leave_out
from runwatch.sdk.hooks import AUTO_HOOKS, HOOKS
from runwatch.sdk.hooks.torch.kineto import look_for_daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType, TracebackType

    from runwatch.sdk.hooks.install import ProcessHooks
    from runwatch.sdk.run import Run

_LAUNCHERS: Final = ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "horovodrun")
_LAUNCHER_MODULES: Final = (
    "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic",
    "accelerate.commands", "deepspeed.launcher",
)  # fmt: skip


class _Process:
    """What there is of this in the process."""

    finder: Finder | None = None
    hooks: ProcessHooks | None = None
    stays = False
    since_ns = 0


def begin(*, stays: bool = True) -> None:
    """Watch imports from now on.  Never raises.  `stays`: also after the program's run."""
    if os.environ.get("RUNWATCH_HOOKS", "").strip().lower() == "off" or _Process.finder is not None:
        return
    _Process.stays = stays
    _Process.since_ns = time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", 1))
    names = {name for name, _ in HOOKS + AUTO_HOOKS}
    _Process.finder = Finder(names, _loaded)
    sys.meta_path.insert(0, _Process.finder)
    if stays:
        sys.excepthook = _Uncaught(sys.excepthook)
    if not stays or not names.isdisjoint(sys.modules):
        _set()


def end() -> None:
    """Undo `begin`: it was for one run, and that is over."""
    finder, _Process.finder, _Process.hooks = _Process.finder, None, None
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)


class Finder:
    """Lets the others find a module, and says when it has been loaded.

    The loader of such a module is its own, of its own type; only its `exec_module` is ours, once.
    """

    def __init__(self, names: set[str], loaded: Callable[[str], None]) -> None:
        self._names = names
        self._loaded = loaded
        self._looking = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torch":
            look_for_daemon()
        # Another that lets the others find it may come back to us.
        if name not in self._names or getattr(self._looking, "name", "") == name:
            return None
        self._looking.name = name
        try:
            spec = self._found_by_others(name, path, target)
        finally:
            self._looking.name = ""
        if spec is not None and hasattr(spec.loader, "__dict__"):
            self._watch(spec.loader, name)
        return spec

    def _found_by_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec = find(name, path, target)
                if spec is not None:
                    return spec  # type: ignore[no-any-return]
        return None

    def _watch(self, loader: Any, name: str) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            self._loaded(name)

        loader.exec_module = exec_module


def _loaded(name: str) -> None:
    hooks = _set()
    if hooks is not None:
        hooks.loaded(name)


def _set() -> ProcessHooks | None:
    """The process's hooks, set for all that is imported; None if the SDK cannot be loaded."""
    if _Process.hooks is None:
        try:
            from runwatch.sdk.hooks.install import hooks_of_process
        except (ImportError, OSError):
            return None
        _Process.hooks = hooks_of_process(_begin_run, None if _Process.stays else end)
        _Process.hooks.look()
    return _Process.hooks


def _begin_run() -> Run | None:
    """At the first sign of training: the run began when the process did."""
    from runwatch.sdk import front
    from runwatch.sdk.guard import attempt

    hooks = _Process.hooks
    if hooks is None or is_helper():
        return None
    hooks.since_ns = _Process.since_ns
    try:
        run = attempt("begin a run", None, front.begin_for_hooks)
    finally:
        hooks.since_ns = None
    if run is not None and isinstance(threading.current_thread(), threading._DummyThread):
        run._thread = threading.main_thread().ident or run._thread  # it was autograd's
    return run


class _Uncaught:
    """In front of what shows an uncaught exception.  A training process that fails before it trains
    is part of the run, too."""

    def __init__(self, shown_by: Callable[..., Any]) -> None:
        self._shown_by = shown_by

    def __call__(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        hooks = _Process.hooks
        fails = hooks is not None and hooks.expects_run and isinstance(error, Exception)
        run = _begin_run() if fails and not is_launcher() else None
        if run is not None:
            run._on_exception(error)
        leave_out(error)
        if self._shown_by is not sys.__excepthook__ or not is_shown():
            self._shown_by(kind, error, error.__traceback__)


def is_helper() -> bool:
    """Whether this process works for another one: a loader's worker, one of a pool."""
    processes: Any = sys.modules.get("multiprocessing.process")
    return processes is not None and bool(processes.current_process().daemon)


def is_launcher() -> bool:
    """Whether this process only starts others."""
    script = os.path.basename(sys.argv[0]) if sys.argv else ""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = getattr(spec, "name", "") or ""
    return script in _LAUNCHERS or module.startswith(_LAUNCHER_MODULES)
