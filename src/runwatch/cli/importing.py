"""Brings imported runs into a directory or to a head: see `imports/`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.address import token_for
from runwatch.cli import source
from runwatch.errors import RunwatchError, UsageError
from runwatch.imports import writing
from runwatch.imports.ledger import Deliver, Ledger
from runwatch.imports.planning import Known, Plan
from runwatch.imports.writing import Tally
from runwatch.settings import runwatch_dir
from runwatch.ship.finding import find
from runwatch.ship.once import ship_once

MOST_RUNS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    """Where the runs go."""

    root: Path
    head: str = ""
    token: str = ""
    ca: str = ""

    @property
    def name(self) -> str:
        return self.head or str(self.root)

    def known(self, arguments: argparse.Namespace) -> Known:
        """The runs that are there, and those that were deleted."""
        if not self.head and not self.root.is_dir():
            return Known()
        given = argparse.Namespace(dir=arguments.dir, head=arguments.head)
        try:
            with source.open_source(given) as head:
                runs = head.get("/runs", limit=MOST_RUNS)["runs"]
                deleted = head.get("/deleted")["deleted"]
        except UsageError as error:
            if not self.head:
                raise
            raise UsageError(
                f"{error}. To import into a head one needs a token of role admin: it looks which "
                "runs there are, and it sends"
            ) from error
        return Known(
            frozenset(run["run"] for run in runs), frozenset(run["run"] for run in deleted)
        )

    def deliver(self) -> Deliver:
        return self._send if self.head else self._move

    def _move(self, part: Path, ledger: Ledger) -> None:
        """Into the directory's journals, where every head that serves it finds them."""
        for journal in sorted((part / "journals").iterdir()):
            folder = self.root / "journals" / journal.name
            for each in (folder.parent, folder):
                each.mkdir(mode=0o700, exist_ok=True)
            for segment in sorted(journal.glob("*.seg")):
                os.rename(segment, folder / segment.name)

    def _send(self, part: Path, ledger: Ledger) -> None:
        ca = Path(self.ca).read_bytes() if self.ca else None
        address = find(self.head, ca).address
        ship_once(part, address, writing.ends_in(part), token=self.token, ca=ca)


def target(arguments: argparse.Namespace) -> Target:
    root = (arguments.dir or runwatch_dir()).expanduser()
    named = source.named_head(arguments)
    if named is None:
        return Target(root)
    token = token_for(named.head, root, named.token)
    return Target(root, named.head, token, named.ca or os.environ.get("RUNWATCH_CA", ""))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one log."""

    plan: Plan
    tally: Tally
    error: RunwatchError | None = None


def bring(plan: Plan, to: Target, progress: Callable[[int], None]) -> Outcome:
    """Import what is new of one log.  Of one that is damaged somewhere, at most whole parts are
    imported."""
    try:
        with plan.shelf.locked():
            ledger = plan.shelf.read() or plan.ledger
            plan.ledger = ledger
            plan.shelf.finish(ledger, to.deliver())
            tally = writing.write(plan.source, plan.shelf, ledger, to.deliver(), progress)
    except OSError as error:
        raise UsageError(f"cannot write to {to.root}: {error.strerror or error}") from error
    return Outcome(plan, tally)


def foresee(plan: Plan, progress: Callable[[int], None]) -> Outcome:
    ledger = None if plan.is_new else plan.ledger
    return Outcome(plan, writing.count(plan.source, ledger, progress))
