"""Deleting runs: what is removed, in which order, and how a run is restored.

First the store marks the run as deleted (`store/deletion.py`); from then on nobody sees it.  When
the time to restore it is over, its profiles, its account, its journals in the head's own directory
and its rows are removed.  The store notes last that all is gone, so a head that is killed meanwhile
starts again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound, RunwatchError, StoreBusy, StoreDamaged, StoreFull
from runwatch.files import shelf
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.board import RunBoard
from runwatch.head.state.profiles import Profiles, StoredProfile
from runwatch.journal.liveness import has_ended, is_alive
from runwatch.journal.reader import JournalReader
from runwatch.record import JournalId, RunId
from runwatch.ship.tail import FAILURES
from runwatch.store.deletion import Deletion
from runwatch.views.runs import project_of, runs_of

KEEP_DAYS: Final = 7.0
_DAY_NS: Final = 86_400 * 10**9
logger = logging.getLogger("runwatch.head")


class RunGoesOn(RunwatchError):
    """The run is still recording."""


class Load(NamedTuple):
    """What a run's deletion removes."""

    run: RunId
    name: str
    points: int
    spans: int
    events: int
    profiles: int
    bytes: int
    """An estimate, with the run's profiles."""


class Deletions:
    """Any thread may call.  Without `lasts` the store is read-only here."""

    def __init__(
        self,
        reading: Reading,
        accounts: Accounts,
        board: RunBoard,
        profiles: Profiles,
        *,
        root: Path | None = None,
        lasts: bool = False,
        on_changed: Callable[[], None] = lambda: None,
        clock: Clock = system_clock,
    ) -> None:
        """`root`: the directory whose journals this head may remove."""
        self._reading = reading
        self._accounts = accounts
        self._board = board
        self._profiles = profiles
        self._root = root
        self._lasts = lasts
        self._on_changed = on_changed
        self._clock = clock
        self._purging = threading.Lock()
        self.problem = ""
        """Why a purge failed; empty when all is well."""
        self.on_due: Callable[[], None] = lambda: None
        """Called when a run is due to be purged soon."""

    def load(self, key: str) -> Load:
        """What a run's deletion would remove.  `key` is the run's id or name."""
        run = self._reading.run(key)
        weight = self._reading.store.weigh(run)
        rows = self._reading.store.processes(run)
        kept = self._profiles.of(run)
        return Load(
            run,
            next((row.run_name for row in rows if row.run_name), run),
            weight.points,
            weight.spans,
            weight.events,
            len(kept),
            weight.bytes + sum(item.bytes for item in kept if item.files),
        )

    def delete(self, key: str, *, keep_days: float = KEEP_DAYS, force: bool = False) -> Deletion:
        self._check()
        run = self._reading.run(key)
        found = runs_of(self._reading.processes(run), {})
        if not force and any(summary.state == "running" for summary in found):
            raise RunGoesOn(
                f"run {run!r} is running: stop it first, or delete it all the same with force"
            )
        now_ns = self._clock.wall_ns()
        deletion = self._reading.store.delete(
            run, at_ns=now_ns, purge_ns=now_ns + int(keep_days * _DAY_NS)
        )
        self._forget(run)
        logger.warning("run %s is deleted; its records go in %g days", run, keep_days)
        self.on_due()
        return deletion

    def restore(self, run: str, projects: Sequence[str] = ()) -> Deletion:
        """By its id, or by a name that only one deleted run has; of these projects, if any."""
        self._check()
        last = {each.run: each for each in self.all()}  # an id may be used and deleted again
        found = [each for each in last.values() if self._is_of(each, projects)]
        named = {each.run for each in found if run in (each.run, each.name)}
        if projects and run not in named and len(named) != 1:
            raise NotFound(f"no run {run!r} was deleted")
        deletion = self._reading.store.restore(next(iter(named)) if len(named) == 1 else RunId(run))
        self._forget(deletion.run)
        logger.warning("run %s is restored", deletion.run)
        return deletion

    def all(self, projects: Sequence[str] = ()) -> list[Deletion]:
        """Of runs of these projects; without any, all."""
        found = self._reading.store.deletions()
        return [each for each in found if self._is_of(each, projects)]

    def _is_of(self, deletion: Deletion, projects: Sequence[str]) -> bool:
        if not projects:
            return True
        return project_of(self._reading.store.buried_processes(deletion)) in projects

    def purge(self) -> int:
        """Purges the runs that are due.  Returns how many."""
        if not self._lasts:
            return 0
        with self._purging:
            now_ns = self._clock.wall_ns()
            due = [d for d in self.all() if d.state == "deleted" and d.purge_ns <= now_ns]
            try:
                for deletion in due:
                    self._purge(deletion)
            except (StoreFull, StoreDamaged) as error:  # tried again
                if self.problem != str(error):
                    logger.error("a deleted run keeps its room: %s", error)
                self.problem = str(error)
            else:
                self.problem = ""
            return len(due)

    def records_dropped(self) -> int:
        """Of deleted runs, that came since the store was opened."""
        return self._reading.store.health().records_dropped

    def drops(self, folder: str) -> bool:
        """Whether a profile that an agent brings, below a folder of this name, is of a deleted run;
        then it is not wanted any more."""
        if not any(folder in (each.run, each.name) for each in self.all()):
            return False
        return not any(folder in (r.run, r.run_name) for r in self._reading.store.processes())

    def _check(self) -> None:
        if not self._lasts:
            raise StoreBusy("this store can only be read here; ask the head that serves it")

    def _forget(self, run: RunId) -> None:
        """What was made of a run's records; if it is there again, it is made again."""
        self._accounts.forget(run)
        self._board.forget(run)
        self._on_changed()

    def _purge(self, deletion: Deletion) -> None:
        for kept in self._profiles.left_of(deletion):
            _remove(kept)
        self._accounts.forget(deletion.run)
        for journal in self._reading.store.buried_journals(deletion):
            self._remove_journal(journal)
        self._reading.store.purge(deletion)
        self._on_changed()
        logger.warning("run %s is gone", deletion.run)

    def _remove_journal(self, journal: JournalId) -> None:
        """One of our own user's, whose process is known to have ended."""
        if self._root is None:
            return
        try:
            with shelf(self._root, "journals") as journals, journals.below(journal) as folder:
                if folder.is_of(os.geteuid()) and _is_over(self._root / "journals" / journal):
                    journals.remove_tree(journal)
        except FileNotFoundError:
            return
        except FAILURES as error:
            logger.warning("journal %a of a deleted run stays: %s", journal, error)


def _is_over(directory: Path) -> bool:
    if has_ended(directory):
        return True
    reader = JournalReader(directory)
    try:
        return reader.origin is not None and is_alive(reader.origin) is False
    finally:
        reader.close()


def _remove(profile: StoredProfile) -> None:
    for place in profile.places:
        try:
            place.remove()
        except FileNotFoundError:
            continue
        except OSError as error:  # nobody sees it any more, all the same
            logger.warning("a profile of a deleted run stays: %s", error)
