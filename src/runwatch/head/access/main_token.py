"""The main token of a head: made at its first start, kept in its directory with mode 0600."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runwatch.errors import UsageError
from runwatch.files import FULL, Folder, Refused, private
from runwatch.head.access.given_tokens import MAIN_FILE, Given, GivenTokens
from runwatch.settings import TOKEN_FILE_BYTES, runwatch_dir

TOKEN_FILE: Final = "token"
logger = logging.getLogger("runwatch.head")


class Secret:
    """The present main token.  A renewed token is another object."""

    __slots__ = ("cookie", "said", "word")

    def __init__(self, word: str) -> None:
        self.word = word
        self.said = word.encode("utf-8", "surrogateescape")
        self.cookie = hmac.new(self.said, b"runwatch cookie", hashlib.sha256).hexdigest()
        """What a browser keeps instead of the token."""

    def is_it(self, shown: bytes) -> bool:
        return bool(self.said) and hmac.compare_digest(shown, self.said)


class MainToken:
    """A head's main token, which can change while the head runs.

    `root`: the directory that keeps it; None: the user chose the token, and must change it.
    `given`: its file `main` has it.  While there is no such file, it lets nobody in.
    """

    def __init__(
        self, word: str = "", root: Path | None = None, *, given: GivenTokens | None = None
    ) -> None:
        self._now = Secret(word)
        self._root = root
        self._given = given
        self._seen = given.now() if given is not None else Given(word)
        self._lock = threading.Lock()
        self.on_renewed: Callable[[], object] = lambda: None
        if given is not None:
            self._now = Secret(self._seen.main or new_token())

    @property
    def now(self) -> Secret:
        if self._given is not None and self._given.now() is not self._seen:
            self._take()
        return self._now

    @property
    def told(self) -> str:
        """For who may know it; empty while nobody does."""
        now = self.now
        return now.word if self._given is None or self._seen.main else ""

    def _take(self) -> None:
        assert self._given is not None
        with self._lock:
            before, self._seen = self._seen.main, self._given.now()
            if self._seen.main == before:
                return
            # An empty token would let everybody in: one that nobody knows lets nobody in.
            self._now = Secret(self._seen.main or new_token())
        self.on_renewed()

    def renew(self) -> str:
        """Makes a new token.  The old one is invalid from now on."""
        if self._root is None:
            if self._given is not None:
                file = self._given.directory / MAIN_FILE
                raise UsageError(f"this head is given its token by {file}: change that file")
            raise UsageError(
                "this head was given its token (--token, --token-file, RUNWATCH_TOKEN): change it "
                "there, and start the head again"
            )
        with Folder.at(self._root) as folder:
            self._now = Secret(_made(folder))
        self.on_renewed()
        return self._now.word


def new_token() -> str:
    return secrets.token_urlsafe(24)


def users_token() -> str:
    """The token in the user's own directory, for a head without a directory."""
    root = runwatch_dir()
    try:
        return kept_token(private(root))
    except OSError:
        return new_token()


def kept_token(root: Path) -> str:
    """The token in this directory; a new one if there is none."""
    with Folder.at(root) as folder:
        try:
            token = folder.text(TOKEN_FILE, TOKEN_FILE_BYTES, owners=folder.trusted()).strip()
            is_open = bool(folder.stat(TOKEN_FILE).st_mode & 0o007)
        except (FileNotFoundError, Refused):  # a file that another user put there is no secret
            return _made(folder)
        except OSError as error:
            raise UsageError(f"the token in {root / TOKEN_FILE} cannot be read: {error}") from error
        if is_open:
            file = root / TOKEN_FILE
            raise UsageError(f"every user may read the token in {file}: chmod 600 {file}")
        return token or _made(folder)


def _made(folder: Folder) -> str:
    token = new_token()
    try:
        folder.write(TOKEN_FILE, token.encode(), sync=True)
    except OSError as error:
        if error.errno in FULL:
            logger.warning(
                "no space left in %s: the head's token is not kept, and changes at the next start",
                folder.path,
            )
            return token
        raise UsageError(
            f"the token cannot be kept in {folder.path}: {error.strerror}; name a file of yours "
            "with --token-file (RUNWATCH_TOKEN_FILE)"
        ) from error
    return token
