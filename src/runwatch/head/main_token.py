"""The token that every head has: made at its first start, kept in its directory, 0600."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from runwatch.errors import UsageError
from runwatch.files import Folder, Refused, private
from runwatch.settings import TOKEN_FILE_BYTES, runwatch_dir

TOKEN_FILE: Final = "token"


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
        raise UsageError(
            f"the token cannot be kept in {folder.path}: {error.strerror}; name a file of yours "
            "with --token-file (RUNWATCH_TOKEN_FILE)"
        ) from error
    return token
