"""JSON objects one after another, of a file of any size: in a list, one to a line, or just so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from runwatch.errors import UsageError

_CHUNK: Final = 1 << 20
_LARGEST: Final = 16 << 20
_BETWEEN: Final = re.compile(r"[\s,\[\]]*")


def json_objects(
    file: TextIO, path: Path, warn: Callable[..., None] = lambda *_: None
) -> Iterator[dict[str, Any]]:
    """`warn` is called if the last one is cut off; it is left out."""
    decode = json.JSONDecoder().raw_decode
    text, at, passed = "", 0, 0
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        try:
            value, at = decode(text, at)
        except ValueError as error:
            chunk = file.read(_CHUNK)
            if chunk and len(text) - at <= _LARGEST:
                text, at, passed = text[at:] + chunk, 0, passed + at
                continue
            if not text[at:].strip():
                return
            if not chunk and text[at] == "{":
                warn("%s ends in the middle of an entry, which is left out", path)
                return
            raise UsageError(f"{path} is not JSON at character {passed + at}: {error}") from error
        if not isinstance(value, dict):
            raise UsageError(f"{path} has {value!r:.60} where an entry should be")
        yield value
