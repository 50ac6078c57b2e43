"""One line for the person at the terminal, before the command begins: where to look."""

from __future__ import annotations

import os
from collections.abc import Mapping

from runwatch.sdk.identity import identify
from runwatch.sdk.place import Shown


class _Ours(Shown):
    def __init__(self, environment: Mapping[str, str]) -> None:
        identity = identify(None, environment=environment, modules={})
        self.id, self.name, self.rank = identity.run, identity.name, identity.rank
        self._directory = None


def say(environment: Mapping[str, str]) -> None:
    """`environment` is the command's: what our options say is in it."""
    named = [name for name in ("RUNWATCH_HEAD", "RUNWATCH_DIR") if name in environment]
    os.environ.update({name: environment[name] for name in named})
    _Ours(environment)._say_where()
