"""torch.compile, through the callbacks of its tracer.

The tracer is loaded only when `torch.compile` is called, and may compile at once.  So we wrap that
function, to register as soon as it returns.  A compilation counts as blocking in whichever thread
it runs: backward passes are compiled in autograd's threads, while the step waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import COMPILE
from runwatch.sdk.step import Span

P = ParamSpec("P")
R = TypeVar("R")

_CALLBACKS: Final = "torch._dynamo.callback"
_RULES: Final = "torch._dynamo.trace_rules"
_LISTS: Final = ("start_callbacks", "end_callbacks")


def install(tell: Teller) -> None:
    listener = Listener(tell)
    tell.replace("compile", [sys.modules["torch"]], listener.registered_after)
    tell.every_second.append(listener.register)
    tell.at_the_end.append(listener.unregister)


class Listener:
    def __init__(self, tell: Teller) -> None:
        self._tell = tell
        self._lock = threading.RLock()
        self._span: Span | None = None
        self._since_ns = 0
        self._is_skipped = False
        """A program may compile an optimizer's step, and our hooks with it: they are left out."""
        # Two objects that we keep, so that we find them again in the lists.
        self._callbacks: Final[tuple[Callable[..., None], ...]] = (self._begin, self._end)

    def registered_after(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result = function(*args, **kwargs)
            if self._tell.listens or self._tell.expects:
                self.register()
            return result

        return call

    @guarded("listen to torch.compile", quiet=True)
    def register(self) -> None:
        """Also after `torch._dynamo.reset`, which drops our callbacks."""
        with self._lock:
            for callbacks, ours in zip(_lists(), self._callbacks, strict=False):
                if ours not in callbacks:
                    callbacks.append(ours)
            leave_out = getattr(sys.modules.get(_RULES), "add", None)
            if leave_out is not None and not self._is_skipped:  # its module is loaded to the end
                self._is_skipped = True
                leave_out("runwatch")

    def unregister(self) -> None:
        with self._lock:
            for callbacks, ours in zip(_lists(), self._callbacks, strict=False):
                if ours in callbacks:
                    callbacks.remove(ours)

    @guarded("note that torch compiles", quiet=True)
    def _begin(self, *_: Any) -> None:
        run = self._tell.run
        self._since_ns = self._tell.now()
        if run is not None and self._tell.listens:
            self._span = Span(run, COMPILE)
            self._span.begin(run._step)

    @guarded("note that torch has compiled", quiet=True)
    def _end(self, *_: Any) -> None:
        span, self._span = self._span, None
        run = self._tell.run
        if span is not None and run is not None:
            span.end(run._step)
        elif self._since_ns and self._tell.expects:
            now = self._tell.now()
            self._tell.elapsed(COMPILE, self._since_ns, now, beside=False, source="torch.compile")
        self._since_ns = 0


def _lists() -> list[list[Any]]:
    """Both lists, or none if this version does not have them or has not loaded them."""
    handler = getattr(sys.modules.get(_CALLBACKS), "callback_handler", None)
    candidates = [getattr(handler, name, None) for name in _LISTS]
    lists = [callbacks for callbacks in candidates if isinstance(callbacks, list)]
    return lists if len(lists) == len(_LISTS) else []
