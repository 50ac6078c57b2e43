"""Which project a run belongs to, and what a token of some projects may add to which runs.

A run's project is its group (docs/decisions/0018-a-runs-project-is-its-group.md).  On the way in
the group stands in the record that names the run, so a batch is judged before it is stored.
Whoever was first decides: what exists in another project, or in none, is not added to.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from runwatch.errors import UsageError
from runwatch.record import Batch, Definition, RunId, RunScope
from runwatch.store.store import Store
from runwatch.views import runs as views

LONGEST: Final = 200
"""Characters of a group's name, as `runwatch.init` keeps it."""
MOST: Final = 100
AGENT: Final = "agent"


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """For a token.  Raises UsageError."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        if not name or len(name) > LONGEST or not name.isprintable():
            raise UsageError(
                f"project {name[:LONGEST]!r}: the group that its runs name, of 1 to {LONGEST} "
                "characters that can be shown"
            )
    if len(found) > MOST:
        raise UsageError(f"{len(found)} projects: one token may have {MOST}")
    return found


def words(names: Sequence[str]) -> str:
    """As a sentence says it: project 'a', or 'b'."""
    return "project " + " or ".join(repr(name[:80]) for name in names)


class Projects:
    """Any thread may ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[RunId, str] = {}
        """As the store has it; looked up anew when a process joins the run."""
        self._coming: dict[RunId, str] = {}
        """Of runs that are new, and on their way into the store."""

    def of(self, run: RunId) -> str | None:
        """Empty: it names none.  None: there is no such run."""
        found = self._known.get(run)
        if found is not None:
            return found
        with self._lock:
            found = self._stored(run)
            if found is not None:
                self._known[run] = found
                return found
            return self._coming.get(run)

    def _stored(self, run: RunId) -> str | None:
        found = views.project_of(self._store.processes(run))
        if found is not None:
            return found
        # What can be restored must not be somebody else's by then.
        deleted = [d for d in self._store.deletions() if d.run == run and d.state == "deleted"]
        return views.project_of(self._store.buried_processes(deleted[-1])) if deleted else None

    def of_folder(self, folder: str) -> set[str]:
        """Of all runs whose profiles may lie in a folder of this name.  An id goes before a name:
        else somebody could call his run as another's id."""
        own = self.of(RunId(folder))
        if own is not None:
            return {own}
        rows = [row for row in self._store.processes() if row.run and row.role != AGENT]
        return {self.of(row.run) or "" for row in rows if row.run_name == folder}

    # ── on the way in ─────────────────────────────────────────────────────────────────────────

    def admitted(self, batch: Batch, mine: Sequence[str]) -> tuple[Batch, str]:
        """The batch as a token of these projects may bring it, and why it may not; empty: it may.

        An agent tells of all processes on its node.  What it says of runs of other projects is
        taken as being of no run.
        """
        if batch.origin.role == AGENT and batch.definitions:
            batch = replace(batch, definitions=[self._told(d, mine) for d in batch.definitions])
        for run in self._store.runs_of(batch.origin.journal):
            if run and self.of(run) not in (None, *mine):
                return batch, _elsewhere(run, mine)
        for scope in named(batch):
            if why := self._refusal(scope, mine):
                return batch, why
        return batch, ""

    def _told(self, definition: Definition, mine: Sequence[str]) -> Definition:
        if not isinstance(definition, RunScope) or not self._refusal(definition, mine):
            return definition
        return RunScope(definition.id, RunId(""), "")

    def _refusal(self, scope: RunScope, mine: Sequence[str]) -> str:
        project = self.of(scope.run)
        if project is not None and project not in mine:
            return _elsewhere(scope.run, mine)
        if scope.group in mine or (project is not None and not scope.group):
            return ""
        said = f"project {scope.group[:80]!r}" if scope.group else "no project"
        return (
            f"run {scope.run!r} names {said}, and the token of this node is for {words(mine)}: it "
            f"stays on its node (runwatch.init(group={mine[0]!r}) names it)"
        )

    def coming(self, batch: Batch) -> list[RunId]:
        """It was let in: the new runs in it are its from now on.  Tell `settled` of the result."""
        scopes = named(batch)
        for scope in scopes:
            if batch.origin.role != AGENT and self.of(scope.run) is None:
                with self._lock:
                    self._coming.setdefault(scope.run, scope.group)
        return [scope.run for scope in scopes]

    def settled(self, runs: Iterable[RunId]) -> None:
        """They are stored, or will not be."""
        with self._lock:
            for run in runs:
                self._coming.pop(run, None)
                self._known.pop(run, None)

    def look_again(self) -> None:
        """A run was deleted, or is back."""
        with self._lock:
            self._known.clear()


def named(batch: Batch) -> list[RunScope]:
    """The runs that it defines."""
    return [d for d in batch.definitions if isinstance(d, RunScope) and d.run]


def _elsewhere(run: RunId, mine: Sequence[str]) -> str:
    return (
        f"run {run!r} is not of {words(mine)}, which the token of this node is for: what is more "
        "stays on its node"
    )
