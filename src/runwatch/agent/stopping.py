"""An agent is told to end by SIGTERM or Ctrl-C.

Listened for before anything large is loaded: the first process of a container never gets a signal
that it has no handler for, and the pod of a short program would wait for its agent to be killed.
"""

from __future__ import annotations

import _thread
import signal
import threading


def listen(stop: threading.Event) -> threading.Event:
    """A thread sets the event.  A handler that did could deadlock: a second signal may interrupt
    it while it holds the event's lock, and would wait for that lock."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _thread.start_new_thread(stop.set, ()))
    return stop
