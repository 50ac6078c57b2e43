"""All cases, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.integration.laboratory import (
    hanging,
    hanging_ranks,
    hanging_tasks,
    well,
    well_ranks,
    well_tools,
)
from tests.integration.laboratory.case import Case

CASES: Final[Mapping[str, Case]] = {
    case.name: case
    for shelf in (
        hanging.hang,
        hanging_tasks.hang,
        hanging_ranks.hang,
        well.well,
        well_tools.well,
        well_ranks.well,
    )
    for case in shelf.cases
}
HANGS: Final = tuple(case.name for case in CASES.values() if case.hangs)
LOOK_ALIKES: Final = tuple(case.name for case in CASES.values() if not case.hangs)
EVERY_DAY_HANGS: Final = ("orphan", "await_event", "gil", "skips")
EVERY_DAY_LOOK_ALIKES: Final = ("talking", "debugger", "slow_disk", "upload")
"""Those that run with the usual tests; all of them in `make soak`."""
