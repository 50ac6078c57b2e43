"""What an operator changes: each write at the API server, each question to the head that begins
something.  It is killed between one of these and the answer."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

from tests.cluster.faults import Asked
from tests.integration.cluster_operator.relay import Heard
from tests.integration.cluster_operator.site import Operator, Site

_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")


class Deeds:
    def __init__(self, site: Site, of: str, *, kill_at: int = 0) -> None:
        """`of`: a kind's plural; `kill_at`: the deed whose answer nobody gets, from 1 on."""
        self.names: list[str] = []
        self._of, self._kill_at = of, kill_at
        self._operator: Operator | None = None
        self._lock = threading.Lock()
        site.api.faults.done.append(self._written)
        site.relay.done.append(self._begun)

    def of(self, operator: Operator) -> None:
        self._operator = operator

    @property
    def is_killed(self) -> bool:
        return 0 < self._kill_at <= len(self.names)

    def _written(self, asked: Asked) -> None:
        is_own = asked.user.endswith(":runwatch-operator") and f"/{self._of}/" in asked.path
        if is_own and asked.method in _WRITES and asked.status < 300:
            self._did(f"{asked.method} {asked.path.rpartition('/')[2]}")

    def _begun(self, heard: Heard) -> None:
        if heard.method == "POST" and heard.path.endswith("/captures"):
            self._did(f"head {heard.status}")

    def _did(self, name: str) -> None:
        with self._lock:
            self.names.append(name)
            if len(self.names) == self._kill_at and self._operator is not None:
                os.kill(self._operator.process.pid, signal.SIGKILL)
