"""How a run's name becomes its id: the same wherever a program says the name."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from runwatch.record.base import RunId

MAX_ID: Final = 64


def slug(name: str) -> RunId:
    """A name as an id: safe as a path, and different for different names."""
    safe = re.sub(r"[^a-z0-9._-]+", "-", name.lower()[:1000]).strip("-.")[:MAX_ID]
    if safe and safe == name:
        return RunId(safe)
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return RunId(f"{safe[: MAX_ID - 9].rstrip('-.') or 'run'}-{mark}")
