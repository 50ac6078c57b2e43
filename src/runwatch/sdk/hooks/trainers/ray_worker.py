"""Ray Train's workers: the function that trains runs in a thread of its own.

So that thread takes the steps, and the run ends where the function does: Ray kills a worker when it
is not needed any more, and keeps what the function raises to itself.  A worker that Ray stops
before that, since another has failed, says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import get_ident
from types import TracebackType
from typing import Any, Final

from runwatch.sdk.console.own_frames import leave_out
from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller

WORKER: Final = "ray.train.v2._internal.execution.worker_group.worker"
SESSION: Final = "ray.train._internal.session"
"""Of Ray Train's first version, which is the usual one until Ray 2.50."""


def install(tell: Teller) -> None:
    tell.replace_in(WORKER, "ThreadRunner", "run", _around_run)
    tell.replace_in(WORKER, "RayTrainWorker", "shutdown", _around_shutdown)
    tell.replace_in(SESSION, "_TrainSession", "start", _around_start)


def _around_run(tell: Teller, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(self: Any, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(self, _watched(tell, target), *args, **kwargs)

    return run


def _around_start(tell: Teller, function: Callable[..., Any]) -> Callable[..., Any]:
    @guarded("note the thread of a worker of Ray", quiet=True)
    def note(session: Any) -> None:
        if session.world_rank is not None:  # else it is a trial of Ray Tune
            thread = session.training_thread
            thread._target = _watched(tell, thread._target)

    @wraps(function)
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        note(self)
        return function(self, *args, **kwargs)

    return start


def _around_shutdown(tell: Teller, function: Callable[..., Any]) -> Callable[..., Any]:
    @guarded("note that Ray stops a worker", quiet=True)
    def note() -> None:
        run = tell.run
        if run is not None and tell.listens:
            run.finish("killed", "stopped by Ray Train")

    @wraps(function)
    def shutdown(*args: Any, **kwargs: Any) -> Any:
        note()
        return function(*args, **kwargs)

    return shutdown


def _watched(tell: Teller, target: Callable[..., Any]) -> Callable[..., Any]:
    if not (tell.listens or tell.expects):
        return target

    @wraps(target)
    def train(*args: Any, **kwargs: Any) -> Any:
        with Training(tell):
            return target(*args, **kwargs)

    return train


class Training:
    """What a worker is there for."""

    def __init__(self, tell: Teller) -> None:
        self._tell = tell

    @guarded("note that a worker of Ray trains", quiet=True)
    def __enter__(self) -> None:
        run = self._tell.begun()
        if run is not None:
            run._thread = get_ident()

    @guarded("note that a worker of Ray has trained", quiet=True)
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave_out(error)  # Ray leaves out as many frames as it has itself
        run = self._tell.run
        if run is not None and self._tell.listens:
            run.__exit__(kind, error, traceback)
