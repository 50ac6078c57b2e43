"""Options of every command that starts a head."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runwatch.address import Listening
from runwatch.cli.source import head_of
from runwatch.errors import StoreBusy


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


def guest_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gswarm-open",
        metavar="ADDRESS",
        help="let clients of gswarm in without a token at this address of this machine; they can "
        "only send samples, read the status, and start and stop sessions",
    )
    parser.add_argument(
        "--cors-origin",
        dest="cors_origins",
        metavar="URL",
        action="append",
        help="pages of this origin may ask the head: https://dashboard.example:3000; repeatable",
    )


def open_warning(address: str) -> str:
    return (
        f"Warning: who reaches {address} needs no token to send samples as a client of gswarm, to "
        "read the status, and to start and stop sessions. Open it to a network that you trust."
    )


def json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="when it is ready, print its addresses as JSON"
    )


@contextmanager
def served_once(root: Path) -> Iterator[None]:
    """Who starts a second head for a directory is told where the first one is."""
    try:
        yield
    except StoreBusy as busy:
        if (at := head_of(root)) is None:
            raise
        raise StoreBusy(f"{root} is served already, by process {at.pid}: open {at.link}") from busy


def print_ready(at: Listening, **more: str) -> None:
    """One line, for programs that start a head and wait for it."""
    fields = {"url": at.http, "link": at.link, "grpc": at.grpc, "token": at.token, "pid": at.pid}
    print(json.dumps(fields | more), flush=True)
