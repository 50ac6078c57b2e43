"""Where callers come from: origins of pages as browsers write them, and addresses that mean all."""

from __future__ import annotations

import re
from typing import Final

from runwatch.errors import UsageError

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
"""All addresses of a machine."""
_ORIGIN: Final = re.compile(
    r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?"
)
_PLAIN_PORTS: Final = {"http": ":80", "https": ":443"}


def check_origins(given: str) -> tuple[str, ...]:
    """Origins as browsers write them, from a list with commas.  Raises UsageError."""
    return tuple(dict.fromkeys(_checked(each.strip()) for each in given.split(",") if each.strip()))


def _checked(origin: str) -> str:
    plain = origin.lower().rstrip("/")
    if not _ORIGIN.fullmatch(plain):
        raise UsageError(
            f"{origin[:80]!r} is no origin: name one page's scheme, host and port, like "
            "https://dashboard.example:3000 ('*' and paths are not possible)"
        )
    return plain.removesuffix(_PLAIN_PORTS[plain.partition(":")[0]])
