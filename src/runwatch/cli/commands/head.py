"""Serve a cluster: take what agents send, keep it, answer people and programs.

Listens on this machine only unless told otherwise.  It has a token, which is made at the first
start, kept for its owner alone, and printed.  Programs of the same user find it by themselves, and
others by RUNWATCH_HEAD and RUNWATCH_TOKEN, or RUNWATCH_TOKEN_FILE, which names a file it is in.

example:
  runwatch head
  runwatch head --bind 0.0.0.0 --tls-certificate head.pem --tls-key head.key
"""

from __future__ import annotations

import argparse
from pathlib import Path

from runwatch import logs
from runwatch.cli.head_options import token_options
from runwatch.settings import load
from runwatch.terminal import log_to_stderr


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="where the store is (default $RUNWATCH_DIR)")
    parser.add_argument("--bind", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--grpc-port", type=int, help="port for agents (default 8090)")
    parser.add_argument("--http-port", type=int, help="port for people (default 8091)")
    token_options(parser)
    parser.add_argument("--base-path", help="the path that a proxy serves it under: /team/x")
    parser.add_argument("--tls-certificate", type=Path, help="PEM file; turns TLS on")
    parser.add_argument("--tls-key", type=Path, help="PEM file of its key")


def run(arguments: argparse.Namespace) -> int:
    from runwatch.address import Listening
    from runwatch.head.main import Head
    from runwatch.head.settings import HeadSettings

    log_to_stderr("%(asctime)s %(levelname)s %(message)s")
    settings = load(HeadSettings, section="head", flags=vars(arguments)).values

    def ready(at: Listening) -> None:
        print(f"Runwatch head: {at.link}", flush=True)
        print(f"for agents:    RUNWATCH_HEAD={at.grpc}", flush=True)
        if at.token:
            print(f"               RUNWATCH_TOKEN={at.token}", flush=True)

    logs.spare()
    Head(settings).run(ready)
    return 0
