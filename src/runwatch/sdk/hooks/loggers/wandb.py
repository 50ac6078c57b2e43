"""wandb: `Run.log`, the settings of its runs, and what the program sets in a summary.

Nothing here asks wandb's service, which may be slow to answer: rows are counted as wandb counts
them, and settings are looked at once a second.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.loggers.logged import Logger
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.values.rows import Rows


def install(tell: Teller) -> None:
    wandb: Any = sys.modules["wandb"]
    logger = Logger(tell, "wandb")
    run_type = getattr(wandb, "Run", None) or wandb.sdk.wandb_run.Run
    if not logger.knows(run_type.log, "self", "data", "step"):
        return
    listener = Listener(logger)
    homes = [wandb, *_homes("wandb.sdk", "wandb.sdk.wandb_init")]
    tell.replace("init", homes, logger.noting(listener.begun, result=True))
    tell.replace("log", [run_type], logger.noting(listener.logged))
    summaries: Any = sys.modules.get("wandb.sdk.wandb_summary")
    if summaries is not None and logger.knows(summaries.SummaryDict.update, "self", "d"):
        tell.replace("update", [summaries.SummaryDict], logger.noting(listener.summed))
    tell.every_second.append(listener.look)
    if wandb.run is not None:  # it was there first: its `log` is that of the class without us
        wandb.log = wandb.run.log
        listener.begun(wandb.run)


class Listener:
    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._rows: WeakKeyDictionary[Any, Rows] = WeakKeyDictionary()
        self._seen: dict[str, Any] = {}
        self._summary: dict[str, Any] = {}
        self._run: Any = None

    def begun(self, run: Any, *_: Any, **__: Any) -> None:
        """`init` has returned it."""
        self._run = run
        about = {
            name: value
            for name in ("project", "entity", "name", "group", "job_type", "tags", "notes")
            if (value := getattr(run, name, None))
        }
        if about and not getattr(run, "disabled", False):  # then it has names that nobody gave
            self._logger.config({"wandb": about})
        self.look()

    def logged(
        self, run: Any, data: Any = None, step: Any = None, commit: Any = None, **_: Any
    ) -> None:
        rows = self._rows.get(run)
        if rows is None:
            first = getattr(run, "starting_step", 0)
            rows = self._rows[run] = Rows(first if isinstance(first, int) else 0)
        at = rows.at(step, commit)
        if isinstance(data, Mapping):
            self._logger.row(data, at, counts=step is not None)

    def summed(self, summary: Any, values: Any = None, **_: Any) -> None:
        if isinstance(values, Mapping) and type(summary).__name__ == "Summary":
            self._summary.update(values)
            self._logger.summary(self._summary)

    @guarded("look at wandb's settings")
    def look(self) -> None:
        """Programs change them after `init`, too."""
        run = self._run
        if run is None:
            return
        values = {k: v for k, v in dict(run.config).items() if k != "_wandb"}
        seen, self._seen = self._seen, values
        if len(seen) != len(values) or any(seen.get(k) is not v for k, v in values.items()):
            self._logger.config(values)


def _homes(*names: str) -> list[Any]:
    return [sys.modules[name] for name in names if name in sys.modules]
