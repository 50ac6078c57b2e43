"""Options of every command that starts a head."""

from __future__ import annotations

import argparse
from pathlib import Path


def token_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="read the head's token from this file, mode 0600 (default: $RUNWATCH_TOKEN_FILE, or a "
        "token that is made at the first start and kept)",
    )
    parser.add_argument(
        "--token", help="the token itself; every user of this machine can see it in `ps`"
    )
