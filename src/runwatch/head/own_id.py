"""A head's id.  It belongs to the store, and stays when the head gets another address.

An agent that cannot reach the address that a journal names sends the journal to another address of
the same head, if it knows one.  That is safe: how far each journal has got is in the store.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from typing import Final

from runwatch.files import Folder

ID_FILE: Final = "head.id"
_LONGEST: Final = 100
logger = logging.getLogger("runwatch.head")


def kept_id(root: Path) -> str:
    """The id in this directory; a new one if there is none.  Empty if it cannot be kept: an id that
    changes would be none."""
    try:
        with Folder.at(root) as folder:
            try:
                known = folder.text(ID_FILE, _LONGEST, owners=folder.trusted()).strip()
            except FileNotFoundError:
                known = ""
            if not known:
                known = secrets.token_hex(16)
                folder.write(ID_FILE, known.encode(), sync=True)
            return known
    except OSError as error:
        logger.warning("this head has no lasting id: %s", error)
        return ""
