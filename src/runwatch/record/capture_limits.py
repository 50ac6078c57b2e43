"""How long, how many and how far ahead: the limits of a capture, for every room that has a say.

The head refuses a request beyond them, an agent and a process do so again, and the command line and
the page show them (`scripts/page_types.py` writes them for the page).
"""

from __future__ import annotations

from typing import Final

DEFAULT_MS: Final = 2_000
"""Recorded if a request says neither a duration nor steps, or if steps cannot be counted."""
MAX_MS: Final = 600_000
MAX_SECONDS: Final = MAX_MS / 1e3
MAX_STEPS: Final = 10_000
STEPS_SECONDS: Final = MAX_SECONDS
"""A recording of steps ends after this time, however few steps the program has taken."""
MAX_AHEAD_SECONDS: Final = 600.0
"""A start further ahead is refused.  A step that has not come by then is not waited for."""
PROFILER_PORTS: Final = (9012, 9999)
"""Ports on which programs usually serve their profiler."""
MAX_PORT: Final = 65_535
WRITE_SECONDS: Final = 180.0
"""An agent waits this long for a process to end its trace and to write it."""
PATIENCE_SECONDS: Final = 240.0
"""The head gives a capture up this long after its planned end.  Longer than `WRITE_SECONDS`."""
