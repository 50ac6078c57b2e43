"""Which project a run belongs to, and to which runs a token of some projects may add.

A run's project is its group (docs/decisions/0018-a-runs-project-is-its-group.md).  The record that
names a run also names its group, so a batch is judged before it is stored.  The first batch
decides: nothing is added to a run that already exists in another project, or in none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from runwatch.errors import UsageError
from runwatch.record import Batch, Definition, RunId, RunScope
from runwatch.views import runs as views

if TYPE_CHECKING:  # it needs numpy: see head/quotas.py
    from runwatch.store.store import Store

LONGEST: Final = 200
"""Characters of a group's name, as `runwatch.init` keeps it."""
MOST: Final = 100
AGENT: Final = "agent"


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """The projects of a token, each once.  Raises UsageError."""
    projects = tuple(dict.fromkeys(names))
    for name in projects:
        if not name or len(name) > LONGEST or not name.isprintable():
            raise UsageError(
                f"project {name[:LONGEST]!r} is not a name: give the group of its runs, "
                f"1 to {LONGEST} printable characters"
            )
    if len(projects) > MOST:
        raise UsageError(f"{len(projects)} projects are too many: a token may have {MOST}")
    return projects


def words(names: Sequence[str]) -> str:
    """For a sentence: project 'a' or 'b'."""
    return "project " + " or ".join(repr(name[:80]) for name in names)


class Projects:
    """The projects of all runs.  Any thread may ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[RunId, str] = {}
        """Projects of stored runs; looked up again when a process joins the run."""
        self._coming: dict[RunId, str] = {}
        """Projects of new runs that are on their way into the store."""

    def of(self, run: RunId) -> str | None:
        """The run's project.  Empty: the run names none.  None: there is no such run."""
        project = self._known.get(run)
        if project is not None:
            return project
        with self._lock:
            project = self._stored(run)
            if project is not None:
                self._known[run] = project
                return project
            return self._coming.get(run)

    def _stored(self, run: RunId) -> str | None:
        project = views.project_of(self._store.processes(run))
        if project is not None:
            return project
        # A deleted run can be restored, so nobody else may take its id until then.
        deleted = [d for d in self._store.deletions() if d.run == run and d.state == "deleted"]
        return views.project_of(self._store.buried_processes(deleted[-1])) if deleted else None

    def of_folder(self, folder: str) -> set[str]:
        """The projects of all runs whose profiles may lie in a folder of this name.  An id goes
        before a name: else a user could give a run the id of another run as its name."""
        own = self.of(RunId(folder))
        if own is not None:
            return {own}
        rows = [row for row in self._store.processes() if row.run and row.role != AGENT]
        return {self.of(row.run) or "" for row in rows if row.run_name == folder}

    # ── on the way in ─────────────────────────────────────────────────────────────────────────

    def admitted(self, batch: Batch, mine: Sequence[str]) -> tuple[Batch, str]:
        """The batch as a token of these projects may send it, and why it may not; empty: it may.

        An agent reports all processes on its node.  What it reports about runs of other projects
        is stored without a run.
        """
        if batch.origin.role == AGENT and batch.definitions:
            definitions = [self._without_others(each, mine) for each in batch.definitions]
            batch = replace(batch, definitions=definitions)
        for run in self._store.runs_of(batch.origin.journal):
            if run and self.of(run) not in (None, *mine):
                return batch, _elsewhere(run, mine)
        for scope in named(batch):
            if why := self._refusal(scope, mine):
                return batch, why
        return batch, ""

    def _without_others(self, definition: Definition, mine: Sequence[str]) -> Definition:
        if not isinstance(definition, RunScope) or not self._refusal(definition, mine):
            return definition
        return RunScope(definition.id, RunId(""), "")

    def _refusal(self, scope: RunScope, mine: Sequence[str]) -> str:
        project = self.of(scope.run)
        if project is not None and project not in mine:
            return _elsewhere(scope.run, mine)
        if scope.group in mine or (project is not None and not scope.group):
            return ""
        named = f"project {scope.group[:80]!r}" if scope.group else "no project"
        return (
            f"run {scope.run!r} names {named}, and the token of this node is for {words(mine)}: "
            f"its data stays on its node (runwatch.init(group={mine[0]!r}) names the project)"
        )

    def coming(self, batch: Batch) -> list[RunId]:
        """Reserves the new runs of a batch that was let in.  Call `settled` with the result."""
        scopes = named(batch)
        for scope in scopes:
            if batch.origin.role != AGENT and self.of(scope.run) is None:
                with self._lock:
                    self._coming.setdefault(scope.run, scope.group)
        return [scope.run for scope in scopes]

    def settled(self, runs: Iterable[RunId]) -> None:
        """Call this when the runs are stored, or failed to be."""
        with self._lock:
            for run in runs:
                self._coming.pop(run, None)
                self._known.pop(run, None)

    def look_again(self) -> None:
        """Call this when a run was deleted or restored."""
        with self._lock:
            self._known.clear()


def named(batch: Batch) -> list[RunScope]:
    """The runs that the batch defines."""
    return [d for d in batch.definitions if isinstance(d, RunScope) and d.run]


def _elsewhere(run: RunId, mine: Sequence[str]) -> str:
    return (
        f"run {run!r} is not of {words(mine)}, which the token of this node is for: its new data "
        "stays on its node"
    )
