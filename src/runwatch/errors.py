"""Our exceptions.

RunwatchError                 base; `exit_code` is what the command line returns
├── UsageError                the caller asked for something impossible (2)
├── NotFound                  no such run, metric, file
├── StoreBusy                 another process holds the store; says which
├── StoreDamaged              the store's files cannot be read
├── StoreFull                 no space left: ingest stops acknowledging until there is
├── SegmentError              a journal file that is invalid or of an unknown version
├── HeadUnreachable           the head did not answer
├── Abandoned                 a question that was given up: it took too long, or nobody waits
└── WireError                 a peer does not follow our protocol
"""

from __future__ import annotations


class RunwatchError(Exception):
    exit_code = 1


class UsageError(RunwatchError):
    exit_code = 2


class NotFound(RunwatchError):
    pass


class StoreBusy(RunwatchError):
    pass


class StoreDamaged(RunwatchError):
    pass


class StoreFull(RunwatchError):
    pass


class SegmentError(RunwatchError):
    pass


class NewerJournalError(SegmentError):
    """Valid, but written by a later Runwatch."""


class HeadUnreachable(RunwatchError):
    pass


class Abandoned(RunwatchError):
    pass


class WireError(RunwatchError):
    pass
