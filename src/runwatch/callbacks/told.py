"""Which run a callback tells."""

from __future__ import annotations

from runwatch.sdk.front import current_run
from runwatch.sdk.guard import tally
from runwatch.sdk.hooks.teller import Teller


def teller_without(*hooks: str) -> Teller | None:
    """That of the current run; None without a run, or where one of these hooks tells it already."""
    run = current_run()
    if run is None:
        tally.count("no run", "there is no run: call runwatch.init() first")
        return None
    tell: Teller = run._hooks._tell
    return tell if tell.done.isdisjoint(hooks) else None
