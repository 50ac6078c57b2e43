"""The last words reach the head before the process ends.

Often nothing outlives the program: a container ends with its first process, a batch system takes
down what a job's step leaves behind.  An agent that began in there has not a moment left, and what
the program said last, how it ended among it, would stay unsent on a disk that goes, too.  So the
process itself waits, at its very end, until its agent has noted that a head has everything: half
a second as a rule, a few at most.  It does not wait if there is no head, and not if the agent says
that the head is away.

Nothing is imported here when it comes to that: what runs a string as code (named tuples and data
classes do) makes Python forget that it ends by Ctrl-C, and the shell sees another exit status.
"""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path
from typing import Final

from runwatch.journal.liveness import this_host
from runwatch.journal.stored import has_head, stored_in
from runwatch.record import Position
from runwatch.sdk import launch
from runwatch.sdk.guard import guarded, tally

PATIENCE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.02
_AGENT_LOOKS: Final = 10
"""Every tenth time the agent is looked for, too."""

_unsent: dict[Path, Position] = {}
_asking: set[Path] = set()
_pid = os.getpid()


def expect(journal: Path, end: Position, *, ask_for_agent: bool) -> None:
    """This journal is closed, and that is where it ends.  `ask_for_agent`: if there is none, or
    none any more, this process is the one to start it."""
    global _pid
    if _pid != os.getpid():  # in a forked child: those of the parent are not ours
        _pid = os.getpid()
        _forget()
    if _is_all_stored():
        atexit.unregister(wait)
        atexit.register(wait)
    _unsent[journal] = end
    if ask_for_agent:
        _asking.add(journal.parents[1])


def _forget() -> None:
    _unsent.clear()
    _asking.clear()


@guarded("wait for the last records to be sent")
def wait(seconds: float = PATIENCE_SECONDS) -> None:
    """Until a head has all of it, or will not have it soon."""
    if not _unsent or _pid != os.getpid():
        return
    try:
        if launch.wanted():
            _wait(time.monotonic() + seconds)
    except KeyboardInterrupt:  # somebody is in a hurry
        pass
    finally:
        _forget()


def _wait(deadline: float) -> None:
    host, is_named = this_host(), bool(os.environ.get("RUNWATCH_HEAD"))
    roots = {journal.parents[1] for journal in _unsent}
    look = 0
    while not _is_all_stored() and time.monotonic() < deadline:
        if look % _AGENT_LOOKS == 0:
            for root in _asking & roots:
                _see_to_agent(root, host, is_named)
        look += 1
        launch.reap()
        there = [has_head(root, host) for root in roots]
        if "agent" in tally.counts or False in there or not (is_named or any(there)):
            return
        time.sleep(_LOOK_SECONDS)


def _see_to_agent(root: Path, host: str, is_named: bool) -> None:
    """More than once: one that is being killed has its lock for a moment longer."""
    if (is_named or has_head(root, host)) and not (
        launch.is_on_its_way(root, host) or launch.has_agent(root, host)
    ):
        launch.start_agent(root, host)


def _is_all_stored() -> bool:
    for journal, end in list(_unsent.items()):
        if stored_in(journal) >= end or not journal.exists():  # removed, long after it was sent
            del _unsent[journal]
    return not _unsent
