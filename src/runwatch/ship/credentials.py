"""The token that an agent sends to the head with each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Token: TypeAlias = str | Callable[[], str]
"""A token, or a function that returns it: a head that starts after its agent makes one later."""


def metadata(token: Token) -> tuple[tuple[str, str], ...]:
    secret = token if isinstance(token, str) else token()
    return (("authorization", f"Bearer {secret}"),) if secret else ()
