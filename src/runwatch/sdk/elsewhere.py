"""A run in a process to which it was pickled.

A data loader's workers get the dataset with everything in it; a trainer's configuration goes to the
processes that it starts.  None of them must fail because a run is among it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from runwatch.journal.writer import JournalWriter
from runwatch.record.life import RunEnd
from runwatch.sdk import front
from runwatch.sdk.guard import tally
from runwatch.sdk.identity import Identity
from runwatch.sdk.run import Run
from runwatch.sdk.values.config import ConfigDict
from runwatch.sdk.values.pending import Logged
from runwatch.sdk.values.plain import mapping

_PLAIN: Final = (str, int, float, Enum, type(None))


def public_part(run: Run) -> dict[str, Any]:
    """The public part of a run: its attributes, and its config as it is recorded."""
    public = {name: value for name, value in vars(run).items() if not name.startswith("_")}
    plain = {name: value for name, value in public.items() if isinstance(value, _PLAIN)}
    return plain | {"config": mapping(run.config)}


def unpickled(identity: Identity, about: Mapping[str, Any]) -> Run:
    return _here(identity) or Elsewhere(identity, about)


def _here(identity: Identity) -> Run | None:
    run = front.current_run()
    return run if run is not None and run.id == identity.run else None


class Elsewhere(Run):
    """Everything can be called.  Records go to this process's own part in the run, if any."""

    def __init__(self, identity: Identity, about: Mapping[str, Any]) -> None:
        super().__init__(identity)
        for name, value in about.items():
            setattr(self, name, value)
        self.config = ConfigDict(about["config"])
        self._homeless = True

    def _listens(self, all_hosts: bool) -> bool:
        return True

    def _accept(self, logged: Logged) -> None:
        run = _here(self._identity)
        if run is not None:
            run._accept(logged)
        else:
            tally.count("another process's run", quiet=True)

    def _open(self) -> JournalWriter | None:
        return None

    def _end(self, end: RunEnd) -> None:
        """It belongs to another process, which ends it."""
