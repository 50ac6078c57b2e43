"""Tokens beside the head's own: one for each job, person or program, with a role and an end.

The main token has the role admin, and is not in this list.  `tokens.json` holds nothing that lets
anybody in: the browser's cookie is a digest of the token, and the file has the SHA-256 of that
digest.  A token that is taken back is invalid at once, and its open streams end.
A token may be limited to projects.  A file with such a token has version 2: a head that does not
know projects must not take it for a token of all runs.
Beside them there may be tokens that the head is given by files (`given_tokens.py`): they are valid
as long as their file is there, and nothing of them is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound, UsageError
from runwatch.head.access import projects as project_names
from runwatch.head.access.given_tokens import Given, GivenTokens, role_and_name
from runwatch.head.access.kept_list import KeptList, match, proof_of
from runwatch.head.access.roles import ROLES, Role

FILE: Final = "tokens.json"
TOKEN: Final = "rwt_"
"""How such a token begins."""
COOKIE: Final = "token-"
"""How the cookie of such a token begins."""
MOST: Final = 1000
MOST_DAYS: Final = 3650.0
LONGEST_NAME: Final = 80
_NAME: Final = re.compile(r"[\w.@:+ -]+")
_DAY_NS: Final = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    name: str
    """Who or what the token is for; the caller's name in the audit log."""
    role: Role
    created_ns: int
    expires_ns: int
    """0: never."""
    proof: str
    """SHA-256 of the cookie."""
    projects: tuple[str, ...] = ()
    """The groups whose runs the token is for; empty: all runs."""
    file: str = ""
    """Where the head is given it; empty: the head made it."""

    def works_at(self, now_ns: int) -> bool:
        return not self.expires_ns or self.expires_ns > now_ns


def cookie_of(token: str) -> str:
    """What a browser keeps instead of the token.  Nobody can compute the token from it."""
    digest = hmac.new(token.encode("utf-8", "replace"), b"runwatch token", hashlib.sha256)
    return COOKIE + digest.hexdigest()


class Tokens:
    """All tokens of one head but the main token.  Any thread may ask."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        given: GivenTokens | None = None,
        most: int = MOST,
        clock: Clock = system_clock,
    ) -> None:
        self._given = given
        self._from_files: tuple[Given, dict[str, Token]] = (Given(), {})
        self._list = KeptList(path, Token, "tokens", _is_sound, _version, newest=2)
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self.used_ns: dict[str, int] = {}
        """When this process last saw each token in use."""
        self.on_revoked: Callable[[], object] = lambda: None
        """Called after a token was taken back, in the thread that did it."""

    # ── for an admin ──────────────────────────────────────────────────────────────────────────

    def add(
        self,
        role: Role,
        name: str = "",
        days: float | None = None,
        projects: Sequence[str] = (),
    ) -> tuple[Token, str]:
        """A new token and its word.  The word is kept nowhere."""
        if days is not None and not 0 < days <= MOST_DAYS:
            raise UsageError(
                f"days={days:g} is too few or too many: give more than 0, at most 3650"
            )
        if name and not (len(name) <= LONGEST_NAME and _NAME.fullmatch(name)):
            raise UsageError(
                f"name {name[:LONGEST_NAME]!r} is not possible: give up to {LONGEST_NAME} letters, "
                "digits, spaces and any of . @ : + - _"
            )
        word, now_ns = TOKEN + secrets.token_urlsafe(24), self._clock.wall_ns()
        token = Token(
            id=secrets.token_hex(4),
            name=name or role,
            role=role,
            created_ns=now_ns,
            expires_ns=now_ns + int(days * _DAY_NS) if days is not None else 0,
            proof=proof_of(cookie_of(word)),
            projects=project_names.checked(projects),
        )
        with self._lock:
            kept = {t.id: t for t in self._list.current().values() if t.works_at(now_ns)}
            if len(kept) >= self._most:
                raise UsageError(f"there are {self._most} tokens already; take some back first")
            self._list.write(kept | {token.id: token})
        return token, word

    def all(self) -> list[Token]:
        """The tokens that have not expired, newest first."""
        now_ns = self._clock.wall_ns()
        with self._lock:
            valid = [token for token in self._list.current().values() if token.works_at(now_ns)]
        valid += self._of_files().values()
        return sorted(valid, key=lambda token: (-token.created_ns, token.id))

    def revoke(self, id: str) -> Token:
        if (given := self._of_files().get(id)) is not None:
            raise UsageError(
                f"token {id!r} is given to this head by the file {given.file}: take the file away"
            )
        with self._lock:
            known = dict(self._list.current())
            token = known.pop(id, None)
            if token is None:
                raise NotFound(f"there is no token {id[:80]!r}; /api/v1/tokens lists all")
            self._list.write(known)
        self.on_revoked()
        return token

    # ── for a caller ──────────────────────────────────────────────────────────────────────────

    def of_word(self, word: str) -> Token | None:
        is_possible = word.startswith(TOKEN) or self._given is not None
        return self.of_cookie(cookie_of(word)) if is_possible else None

    def of_cookie(self, cookie: str) -> Token | None:
        if not cookie.startswith(COOKIE):
            return None
        now_ns = self._clock.wall_ns()
        with self._lock:
            token = self._list.of_cookie(cookie)
        if token is None:
            token = match(self._of_files(), cookie)
        if token is None or not token.works_at(now_ns):
            return None
        self.used_ns[token.id] = now_ns
        return token

    def holds(self, token: Token) -> bool:
        """Whether the token is still valid, and unchanged."""
        if token.file:
            return self._of_files().get(token.id) == token
        with self._lock:
            known = self._list.seen().get(token.id)
        return known == token and token.works_at(self._clock.wall_ns())

    def _of_files(self) -> dict[str, Token]:
        """Those that the head is given, by the names of their files."""
        if self._given is None:
            return {}
        now, directory = self._given.now(), self._given.directory
        seen, tokens = self._from_files
        if now is not seen:
            tokens = {
                file: _given_token(directory / file, word, written_ns)
                for file, (word, written_ns) in now.words.items()
            }
            self._from_files = now, tokens
        return tokens


def _given_token(file: Path, word: str, written_ns: int) -> Token:
    role, name = role_and_name(file.name)
    proof = proof_of(cookie_of(word))
    return Token(file.name, name, role, written_ns, 0, proof, file=str(file))


def _version(tokens: Iterable[Token]) -> int:
    return 2 if any(token.projects for token in tokens) else 1


def _is_sound(token: Token) -> bool:
    if not isinstance(token.projects, tuple):
        return False
    if token.file:  # nobody keeps one that a file gives
        return False
    texts = (token.id, token.name, token.proof, *token.projects)
    return (
        isinstance(token.expires_ns, int)
        and isinstance(token.created_ns, int)
        and all(isinstance(text, str) for text in texts)
        and token.proof.isascii()
        and token.role in ROLES
    )
