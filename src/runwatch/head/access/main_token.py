"""The token that every head has: made at its first start, kept in its directory, 0600."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runwatch.errors import UsageError
from runwatch.files import FULL, Folder, Refused, private
from runwatch.settings import TOKEN_FILE_BYTES, runwatch_dir

TOKEN_FILE: Final = "token"
logger = logging.getLogger("runwatch.head")


class Secret:
    """What it is at the moment; another object when it is another."""

    __slots__ = ("cookie", "said", "word")

    def __init__(self, word: str) -> None:
        self.word = word
        self.said = word.encode("utf-8", "surrogateescape")
        self.cookie = hmac.new(self.said, b"runwatch cookie", hashlib.sha256).hexdigest()
        """What a browser keeps instead of it."""

    def is_it(self, said: bytes) -> bool:
        return bool(self.said) and hmac.compare_digest(said, self.said)


class MainToken:
    """A head's own, which may be changed while it runs.

    `root`: where it is kept; one that somebody named is changed where he named it.
    """

    def __init__(self, word: str = "", root: Path | None = None) -> None:
        self.now = Secret(word)
        self._root = root
        self.on_renewed: Callable[[], object] = lambda: None

    def renew(self) -> str:
        """Another one; that which it was opens nothing from now on."""
        if self._root is None:
            raise UsageError(
                "this head was told its token (--token, --token-file, RUNWATCH_TOKEN): change it "
                "there, and start the head again"
            )
        with Folder.at(self._root) as folder:
            self.now = Secret(_made(folder))
        self.on_renewed()
        return self.now.word


def new_token() -> str:
    return secrets.token_urlsafe(24)


def users_token() -> str:
    """That of the user's own directory, for a head that has none to keep one in."""
    root = runwatch_dir()
    try:
        return kept_token(private(root))
    except OSError:
        return new_token()


def kept_token(root: Path) -> str:
    """That of the directory, which is made if there is none."""
    with Folder.at(root) as folder:
        try:
            token = folder.text(TOKEN_FILE, TOKEN_FILE_BYTES, owners=folder.trusted()).strip()
            is_open = bool(folder.stat(TOKEN_FILE).st_mode & 0o007)
        except (FileNotFoundError, Refused):  # what somebody else put there is no secret
            return _made(folder)
        except OSError as error:
            raise UsageError(f"the token cannot be read: {error}") from error
        if is_open:
            file = root / TOKEN_FILE
            raise UsageError(f"everybody may read the token in {file}: chmod 600 {file}")
        return token or _made(folder)


def _made(folder: Folder) -> str:
    token = new_token()
    try:
        folder.write(TOKEN_FILE, token.encode(), sync=True)
    except OSError as error:
        if error.errno in FULL:  # it is another after the next start
            logger.warning("no space left in %s: the head's token is not kept", folder.path)
            return token
        raise UsageError(
            f"the token cannot be kept in {folder.path}: {error.strerror}; name a file of yours "
            "with --token-file (RUNWATCH_TOKEN_FILE)"
        ) from error
    return token
