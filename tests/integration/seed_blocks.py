"""Examples of the documents that Runwatch is built from, where they lie beside the repository."""

from __future__ import annotations

import re
from pathlib import Path

SEEDS = Path(__file__).parents[3] / "shared" / "seeds"


def seed(number: str) -> str | None:
    """A document by its number; None where there are none."""
    found = sorted(SEEDS.glob(f"{number}_*.txt"))
    return found[0].read_text() if found else None


def blocks(text: str) -> list[str]:
    """What is between fences, in order."""
    return re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def filled(text: str, places: dict[str, str]) -> str:
    """`<some-run>` -> places["some-run"]; each must be known."""
    return re.sub(r"<([\w -]+)>", lambda match: places[match[1]], text)
