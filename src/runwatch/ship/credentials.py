"""What an agent shows the head with each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Token: TypeAlias = str | Callable[[], str]
"""Or who knows it by then: a head that begins after its agent has only then made one."""


def metadata(token: Token) -> tuple[tuple[str, str], ...]:
    said = token if isinstance(token, str) else token()
    return (("authorization", f"Bearer {said}"),) if said else ()
