"""Serve a cluster: store what agents send, answer people and programs.

It also serves what is recorded in its own directory: programs on this machine that record there
need no setting.  Others need RUNWATCH_HEAD (the address that people open), and RUNWATCH_TOKEN or
RUNWATCH_TOKEN_FILE (a file with the token).  Without --bind it listens on this machine only.  It
makes a token at the first start, keeps it in a file that only its owner can read, and prints it.

example:
  runwatch head
  runwatch head --bind 0.0.0.0 --tls-certificate head.pem --tls-key head.key
"""

from __future__ import annotations

import argparse
from pathlib import Path

from runwatch import logs
from runwatch.cli.head_options import (
    gcp_options,
    gcp_settings,
    guest_options,
    json_option,
    open_warning,
    otlp_options,
    print_ready,
    served_once,
    telemetry_options,
    telemetry_settings,
    token_options,
)
from runwatch.settings import load
from runwatch.terminal import log_to_stderr


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="directory of the store (default $RUNWATCH_DIR)")
    parser.add_argument("--bind", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--http-port", "--port", type=int, help="port for people (default 8090)")
    parser.add_argument("--grpc-port", type=int, help="port for agents (default 8091)")
    parser.add_argument(
        "--grpc-address",
        metavar="HOST:PORT",
        help="where agents connect, if the page is behind a proxy on another host",
    )
    otlp_options(parser)
    token_options(parser)
    parser.add_argument("--base-path", help="path under which a proxy serves it: /team/x")
    parser.add_argument("--tls-certificate", type=Path, help="PEM file; turns TLS on")
    parser.add_argument("--tls-key", type=Path, help="PEM file of the certificate's key")
    telemetry_options(parser)
    gcp_options(parser)
    guest_options(parser)
    json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    from runwatch.address import Listening
    from runwatch.head.main import Head
    from runwatch.head.settings import HeadSettings

    log_to_stderr("%(asctime)s %(levelname)s %(message)s")
    origins = None if arguments.cors_origins is None else ",".join(arguments.cors_origins)
    flags = vars(arguments) | {"cors_origins": origins}
    settings = load(HeadSettings, section="head", flags=flags).values
    telemetry = telemetry_settings(arguments)
    gcp = gcp_settings(arguments)

    def ready(at: Listening) -> None:
        if arguments.json:
            print_ready(at)
            return
        head = at.http or (at.grpc if "://" in at.grpc else f"grpc://{at.grpc}")
        token = f" RUNWATCH_TOKEN={at.token}" if at.token else ""
        only = " (on this machine only: see --bind)" if settings.is_loopback else ""
        print(f"Runwatch head: {at.link or head}", flush=True)
        print(f"For programs, agents and commands elsewhere{only}:", flush=True)
        print(f"  export RUNWATCH_HEAD={head}{token}", flush=True)
        if settings.gswarm_open:
            print(open_warning(settings.gswarm_open), flush=True)

    logs.spare()
    with served_once(settings.root):
        Head(settings, tail_journals=True, telemetry=telemetry, gcp=gcp).run(ready)
    return 0
