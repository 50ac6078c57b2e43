"""Makes recorded text safe for a terminal.

A terminal obeys what is printed to it: an escape sequence in an exception's text can hide lines,
set a title, or type in the reader's name.  So control characters are shown as their Unicode
pictures, and marks that change the reading direction are left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""All control characters except tab and newline."""
_DELETE: Final = 0x7F


def shown(text: str) -> str:
    """The text without anything that a terminal would obey."""
    return _CONTROLS.sub(_picture, text)


def shown_all(value: Any) -> Any:
    """The same for every text in a JSON value."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {shown(str(key)): shown_all(item) for key, item in value.items()}
    return [shown_all(item) for item in value] if isinstance(value, list | tuple) else value


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == _DELETE else "\ufffd" if code < 0xA0 else ""


class Formatter(logging.Formatter):
    """For logs, which people also read in terminals."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def log_to_stderr(form: str) -> None:
    """Like `logging.basicConfig`, from INFO on."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
