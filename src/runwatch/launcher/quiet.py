"""What goes wrong with us is said to a person only: a file gets what the command wrote."""

from __future__ import annotations

import logging
import os
import threading


def unless_a_person_reads() -> None:
    if not os.isatty(2):
        log = logging.getLogger("runwatch")
        log.addHandler(logging.NullHandler())
        log.propagate = False
        threading.excepthook = lambda _: None
