"""Prometheus, and what speaks like it: Mimir, Thanos, VictoriaMetrics …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from runwatch.exports.gauges import Gauge
from runwatch.exports.remote_write import HEADERS, write_request
from runwatch.head.forward.forwarder import Trouble
from runwatch.head.telemetry.outlet import NotWanted, Taken
from runwatch.head.telemetry.post import Poster

_FINAL: Final = (400, 413, 422)
"""Out of order, too old, too much at once: the same again would be refused again."""


class RemoteWrite:
    to = "remote_write"
    package_points = 5_000

    def __init__(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        self._poster = Poster(url, {**headers, **HEADERS}, timeout_seconds)
        self.name = f"remote write to {self._poster.name}"
        self.interrupt = self._poster.interrupt
        self.close = self._poster.close

    def send(self, gauges: Sequence[Gauge]) -> Taken:
        answer = self._poster.post(write_request(gauges))
        if 200 <= answer.status < 300:
            return Taken()
        if answer.status in _FINAL:
            raise NotWanted(answer.words)
        raise Trouble(answer.words, todo_of(answer.status), answer.retry_seconds)


def todo_of(status: int) -> str:
    if status in (401, 403):
        return "give it a token or a password in the headers"
    if 300 <= status < 400 or status in (404, 405):
        return "is the address right? Prometheus needs --web.enable-remote-write-receiver"
    return ""
