"""What a region of Google's cloud looks like."""

from __future__ import annotations

import re
from typing import Final

_REGION: Final = re.compile(r"[a-z]+(-[a-z]+)+[0-9]+")


def is_region(text: object) -> bool:
    """Whether it reads like `us-central1`; a zone, `us-central1-a`, does not."""
    return isinstance(text, str) and _REGION.fullmatch(text) is not None


def validate_region(region: str | None) -> None:
    """Raises ValueError for what is not a region, such as a zone."""
    if not is_region(region):
        raise ValueError(f"region {region!r} is not a region such as 'us-central1'")
