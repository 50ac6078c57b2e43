"""Shared links: read-only tokens that expire and can be taken back.

`shares.json` holds nothing that lets anybody in: the browser's cookie is a digest of the token, and
the file has the SHA-256 of that digest.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound, UsageError
from runwatch.head.access.kept_list import KeptList, proof_of

FILE: Final = "shares.json"
TOKEN: Final = "rws_"
"""How a link's token begins."""
COOKIE: Final = "share-"
"""How the cookie of such a token begins."""
MOST: Final = 1000
LONGEST_NOTE: Final = 200
MOST_DAYS: Final = 3650.0
_DAY_NS: Final = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Share:
    id: str
    run: str
    """The only run that the link shows; empty: all runs."""
    note: str
    created_ns: int
    expires_ns: int
    proof: str
    """SHA-256 of the cookie."""


def cookie_of(token: str) -> str:
    """What a browser keeps instead of the token.  Nobody can compute the token from it."""
    digest = hmac.new(token.encode("utf-8", "replace"), b"runwatch share", hashlib.sha256)
    return COOKIE + digest.hexdigest()


class Shares:
    """All links of one head.  The file is read again whenever it has changed."""

    def __init__(
        self, path: Path | None = None, *, most: int = MOST, clock: Clock = system_clock
    ) -> None:
        self._list = KeptList(path, Share, "links", _is_sound)
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self.used_ns: dict[str, int] = {}
        """When this process last saw each link in use."""

    # ── for the owner ─────────────────────────────────────────────────────────────────────────

    def add(self, run: str, days: float, note: str) -> tuple[Share, str]:
        """A new link and its token.  The token is kept nowhere."""
        if not 0 < days <= MOST_DAYS:
            raise UsageError(
                f"days={days:g} is too few or too many: give more than 0, at most 3650"
            )
        if len(note) > LONGEST_NOTE:
            raise UsageError(f"note has {len(note)} characters; it may have at most {LONGEST_NOTE}")
        token, now_ns = TOKEN + secrets.token_urlsafe(24), self._clock.wall_ns()
        share = Share(
            id=secrets.token_hex(4),
            run=run,
            note=note,
            created_ns=now_ns,
            expires_ns=now_ns + int(days * _DAY_NS),
            proof=proof_of(cookie_of(token)),
        )
        with self._lock:
            kept = {s.id: s for s in self._list.current().values() if s.expires_ns > now_ns}
            if len(kept) >= self._most:
                raise UsageError(f"there are {self._most} links already; take some back first")
            self._list.write(kept | {share.id: share})
        return share, token

    def all(self) -> list[Share]:
        """The links that have not expired, newest first."""
        now_ns = self._clock.wall_ns()
        with self._lock:
            valid = [share for share in self._list.current().values() if share.expires_ns > now_ns]
        return sorted(valid, key=lambda share: (-share.created_ns, share.id))

    def revoke(self, id: str) -> Share:
        with self._lock:
            known = dict(self._list.current())
            share = known.pop(id, None)
            if share is None:
                raise NotFound(f"there is no link {id[:80]!r}; /api/v1/shares lists all")
            self._list.write(known)
        return share

    # ── for a caller ──────────────────────────────────────────────────────────────────────────

    def of_token(self, token: str) -> Share | None:
        return self.of_cookie(cookie_of(token)) if token.startswith(TOKEN) else None

    def of_cookie(self, cookie: str) -> Share | None:
        if not cookie.startswith(COOKIE):
            return None
        now_ns = self._clock.wall_ns()
        with self._lock:
            share = self._list.of_cookie(cookie)
        if share is None or share.expires_ns <= now_ns:
            return None
        self.used_ns[share.id] = now_ns
        return share

    def holds(self, share: Share) -> bool:
        """Whether the link is still valid, and unchanged."""
        with self._lock:
            known = self._list.seen().get(share.id)
        return known == share and share.expires_ns > self._clock.wall_ns()


def _is_sound(share: Share) -> bool:
    return isinstance(share.expires_ns, int) and share.proof.isascii()
