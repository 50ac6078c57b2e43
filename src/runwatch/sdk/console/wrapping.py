"""`init(console=True)`: what this process writes to `sys.stdout` and `sys.stderr` is recorded too.

The two objects stay what they are, and where they are: only their `write` gets a step before its
return.  So `fileno`, `isatty`, `encoding` and `buffer` are untouched, libraries that kept a
reference are heard, and whoever replaces `sys.stdout` for a while gets what is written meanwhile.
What goes around Python's files (libraries in C, other programs, `sys.stdout.buffer`) is not heard
here: `runwatch exec` hears it.  Under `exec` we therefore listen no second time.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from runwatch.record.console import Console, Stream
from runwatch.sdk.console.keeper import LineKeeper
from runwatch.sdk.console.unheard import Unheard
from runwatch.sdk.guard import guarded, tally
from runwatch.sdk.switches import is_off

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

EXEC: Final = "RUNWATCH_EXEC"
CONSOLE: Final = "RUNWATCH_CONSOLE"
_WORD: Final = 1_000
_WORDS: Final = 100
"""Shorter and fewer pieces wait for the end of their line: each alone would cost more than it."""
_ON: Final = frozenset(("1", "on", "yes", "true"))


def wanted(asked: bool | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to listen here.  `asked` is the program's wish; None: the environment decides."""
    if is_off(CONSOLE, environment) or environment.get(EXEC):
        return False
    return environment.get(CONSOLE, "").strip().lower() in _ON if asked is None else bool(asked)


def listen(run: Run, asked: bool | None) -> None:
    if wanted(asked) and not run._finished and not isinstance(run._console, Listening):
        run._console = listening = Listening(run)
        listening.start()


class Listening(Unheard):
    """From `start` to `stop`: the lines of this process's console, in its run's journal."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._keeper = LineKeeper(self._record, run._clock)
        self._active = False
        self._begun: dict[Stream, deque[str]] = {}
        """The pieces of a line that is not complete: `print` writes each word by itself."""
        self._wrapped: list[tuple[Any, Callable[..., Any], Any]] = []
        """A stream, its `write` of ours, and the one of its own that was there; None: no own."""

    @guarded("listen to the console")
    def start(self) -> None:
        self._active = True
        if sys.stdout is sys.stderr:
            self._wrap(sys.stdout, "both")
            return
        self._wrap(sys.stdout, "out")
        self._wrap(sys.stderr, "err")

    @guarded("keep lines of the console")
    def tick(self) -> None:
        self._gather()
        self._keeper.tick()

    @guarded("keep lines of the console")
    def flush(self) -> None:
        self._gather()
        self._keeper.flush()

    def forget(self) -> None:
        for begun in self._begun.values():
            begun.clear()
        self._keeper.forget()

    @guarded("leave the console")
    def stop(self) -> None:
        """Puts `write` back; where somebody wrapped ours, it stays, and does nothing."""
        self._active = False
        for stream, ours, before in self._wrapped:
            if vars(stream).get("write") is not ours:
                continue
            if before is None:
                del stream.write
            else:
                stream.write = before
        self._wrapped.clear()
        self._gather()
        self._keeper.close()

    def _wrap(self, stream: Any, name: Stream) -> None:
        if stream is None:  # a program without a console
            return
        write = stream.write
        keep = self._keep
        begun = self._begun[name] = deque()

        def listened(text: Any, /) -> Any:
            done = write(text)  # first, and whatever it raises is the program's
            if self._active:
                if (
                    type(text) is str
                    and len(text) < _WORD
                    and "\n" not in text
                    and "\r" not in text
                ):
                    begun.append(text)
                    if len(begun) < _WORDS:
                        return done
                    text = ""
                keep(name, text)
            return done

        try:
            before = vars(stream).get("write")
            stream.write = listened
        except (AttributeError, TypeError):  # an object without attributes of its own
            kind = type(stream).__name__
            tally.count("console", f"what is written to a {kind} cannot be recorded")
        else:
            self._wrapped.append((stream, listened, before))

    @guarded("keep lines of the console")
    def _keep(self, name: Stream, text: Any) -> None:
        if not isinstance(text, str):
            return
        if begun := self._begun[name]:
            text = "".join([*_taken(begun), text])
        self._keeper.feed(name, text.encode("utf-8", "replace"))

    def _gather(self) -> None:
        for name, begun in self._begun.items():
            if begun:
                self._keep(name, "")

    def _record(self, console: Console, at_ns: int) -> None:
        run = self._run
        writer = run._open()
        if writer is not None and not writer.closed:
            writer.tell(console, run._step, run._scope, at_ns)


def _taken(pieces: deque[str]) -> Iterator[str]:
    """Other threads may add some meanwhile: none is lost."""
    while True:
        try:
            yield pieces.popleft()
        except IndexError:
            return
