"""Which versions of a framework our hooks know."""

from __future__ import annotations

import re
import sys
from typing import Final

from runwatch.sdk.guard import text_of
from runwatch.sdk.hooks.teller import Teller

KNOWN: Final = {
    # At least the first, and less than the second.
    "torch": ((2, 0), (3,)),
    "transformers": ((4, 20), (6,)),
    "accelerate": ((0, 20), (2,)),
    "pytorch_lightning": ((2, 0), (3,)),
    "lightning": ((2, 0), (3,)),
    "deepspeed": ((0, 9), (1,)),
    "jax": ((0, 4), (1,)),
    "keras": ((3, 0), (4,)),
}


def is_known(tell: Teller, framework: str) -> bool:
    """Whether our hooks may be set.  If not, that is said once."""
    version = text_of(getattr(sys.modules.get(framework), "__version__", ""))
    low, high = KNOWN[framework]
    if low <= numbers(version) < high:
        return True
    if f"not {framework}" not in tell.done:
        tell.done.add(f"not {framework}")
        tell.unknown_version(framework, version or "of an unknown version")
    return False


def numbers(version: str) -> tuple[int, ...]:
    """(2, 13) of "2.13.0a4+cpu"; () if it has none."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
