"""What was stored already: a sender that got no answer sends the same request again.

A part of a request is known by a digest of its bytes.  The digest is recorded in the transaction
that stores the part, so a head that was killed after it knows the part when it is back.  The newest
`MOST` parts of the last `WINDOW_SECONDS` are known; senders give up much sooner.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import Any, Final

from runwatch.clock import Clock
from runwatch.record import Verdict
from runwatch.record.otlp import OtlpReceived
from runwatch.store.store import Store

WINDOW_SECONDS: Final = 3600.0
MOST: Final = 100_000


def digest(signal: str, part: Any) -> str:
    raw = part.SerializeToString(deterministic=True)
    made = hashlib.blake2b(raw, digest_size=12, person=signal.encode()[:16]).digest()
    return base64.urlsafe_b64encode(made).decode()


class Seen:
    """Any thread may call."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stored: OrderedDict[str, int] = OrderedDict()
        self._flying: dict[str, Future[Verdict]] = {}
        since_ns = clock.wall_ns() - int(WINDOW_SECONDS * 1e9)
        rows = store.events(
            None, kinds=[OtlpReceived.KIND], start_ns=since_ns, limit=MOST, newest_first=True
        )
        for row in reversed(rows):
            self._stored[OtlpReceived.of(row.body).digest] = row.time_ns

    def known(self, digest: str) -> Future[Verdict] | bool:
        """True: it is stored.  A future: it is on its way."""
        with self._lock:
            return self._flying.get(digest) or digest in self._stored

    def begin(self, digest: str, future: Future[Verdict]) -> None:
        with self._lock:
            self._flying[digest] = future
        future.add_done_callback(lambda done: self._end(digest, done))

    def _end(self, digest: str, done: Future[Verdict]) -> None:
        stored = not done.cancelled() and done.exception() is None and done.result().accepted
        now_ns = self._clock.wall_ns()
        with self._lock:
            self._flying.pop(digest, None)
            if stored:
                self._stored[digest] = now_ns
            since_ns = now_ns - int(WINDOW_SECONDS * 1e9)
            while self._stored:
                oldest = next(iter(self._stored))
                if len(self._stored) <= MOST and self._stored[oldest] >= since_ns:
                    break
                del self._stored[oldest]
