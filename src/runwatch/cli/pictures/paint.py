"""Colours for lines that need no table, without the slow import of the table library."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO


def is_coloured(out: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    return out.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class Paint:
    """`paint("text", "1", "33")`: with these SGR codes, if colours are on."""

    def __init__(self, on: bool) -> None:
        self._on = on

    @classmethod
    def of_stdout(cls) -> Paint:
        return cls(is_coloured(sys.stdout))

    def __call__(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._on and codes else text
