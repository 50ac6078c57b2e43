"""Options of every command that starts a head."""

from __future__ import annotations

import argparse
from pathlib import Path


def token_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="what callers must know is in this file, mode 0600 (default $RUNWATCH_TOKEN_FILE, or "
        "one that is made and kept)",
    )
    parser.add_argument(
        "--token", help="the same as a word, which every user of this machine sees in `ps`"
    )
