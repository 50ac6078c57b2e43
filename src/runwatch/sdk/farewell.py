"""Waits at the end of the process until the head has its last records.

Often nothing outlives the program: a container ends with its first process, a batch system kills
what a job step leaves behind.  An agent inside has no time left, and the program's last records,
with how it ended, would stay unsent on a disk that is deleted too.  So the process itself waits, at
its very end, until its agent has noted that a head has everything: usually half a second, a few
seconds at most.  It does not wait if there is no head, or if the agent says that the head does not
answer.

Nothing may be imported here at that time: code that runs a string (named tuples and data classes
do) makes Python forget that Ctrl-C ended it, and the shell would see another exit status.
"""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path
from typing import Final

from runwatch.journal.heads import place_in
from runwatch.journal.liveness import this_host
from runwatch.journal.stored import has_head, stored_in
from runwatch.record import Position
from runwatch.sdk import launch
from runwatch.sdk.guard import guarded, tally

PATIENCE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.02
_AGENT_LOOKS: Final = 10
"""Check for the agent on every tenth look."""

_unsent: dict[Path, Position] = {}
_places: dict[Path, str] = {}
"""The heads that journals name; a journal that names none is not here."""
_asking: set[Path] = set()
_pid = os.getpid()


def expect(journal: Path, end: Position, *, ask_for_agent: bool) -> None:
    """The journal is closed and ends at `end`: wait for it.  `ask_for_agent`: this process starts
    an agent if there is none."""
    global _pid
    if _pid != os.getpid():  # in a forked child: the entries are the parent's
        _pid = os.getpid()
        _forget()
    if _is_all_stored():
        atexit.unregister(wait)
        atexit.register(wait)
    _unsent[journal] = end
    if place := place_in(journal):
        _places[journal] = place
    if ask_for_agent:
        _asking.add(journal.parents[1])


def _forget() -> None:
    _unsent.clear()
    _places.clear()
    _asking.clear()


@guarded("wait for the last records to be sent")
def wait(seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a head has everything, or will not have it soon."""
    if not _unsent or _pid != os.getpid():
        return
    try:
        if launch.wanted():
            _wait(time.monotonic() + seconds)
    except KeyboardInterrupt:  # the user does not want to wait
        pass
    finally:
        _forget()


def _wait(deadline: float) -> None:
    host = this_host()
    is_named = bool(os.environ.get("RUNWATCH_HEAD") or _places)
    look = 0
    while not _is_all_stored() and time.monotonic() < deadline:
        heads = {(journal.parents[1], _places.get(journal, "")) for journal in _unsent}
        answers = [has_head(root, host, place) for root, place in heads]
        if look % _AGENT_LOOKS == 0:
            for root in _asking & {root for root, _ in heads}:
                _see_to_agent(root, host, is_named or any(answers))
        look += 1
        launch.reap()
        if "agent" in tally.counts or False in answers or not (is_named or any(answers)):
            return
        time.sleep(_LOOK_SECONDS)


def _see_to_agent(root: Path, host: str, has_head: bool) -> None:
    """Start an agent if there is none.  Repeated: a dying agent holds its lock a moment longer."""
    if has_head and not (launch.is_on_its_way(root, host) or launch.has_agent(root, host)):
        launch.start_agent(root, host)


def _is_all_stored() -> bool:
    for journal, end in list(_unsent.items()):
        if stored_in(journal) >= end or not journal.exists():  # removed long after it was stored
            del _unsent[journal]
    return not _unsent
