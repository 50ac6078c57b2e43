"""Parts of the SDK that a variable switches off or on: `RUNWATCH_AGENT=off`, `RUNWATCH_QUIET=1`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_OFF: Final = frozenset(("off", "0", "no", "false"))


def is_on(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    return bool(environment.get(name, "").strip()) and not is_off(name, environment)


def is_off(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get(name, "").strip().lower() in _OFF
