"""Serve a directory of journals in one process: no agent, no head, nothing to set up.

DIR may be on a shared file system: it then shows the runs of every host that records there.

example:
  runwatch ui
  runwatch ui /shared/team/runwatch --port 8500
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from runwatch import logs
from runwatch.cli.head_options import (
    gcp_options,
    gcp_settings,
    json_option,
    print_ready,
    served_once,
    telemetry_options,
    telemetry_settings,
    token_options,
)
from runwatch.errors import NotFound
from runwatch.settings import load, runwatch_dir


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dir", nargs="?", type=Path, metavar="DIR", help="default $RUNWATCH_DIR or ~/.runwatch"
    )
    parser.add_argument(
        "--port", "--http-port", type=int, dest="http_port", help="default 8090; 0 = any free one"
    )
    parser.add_argument("--bind", help="address to listen on (default 127.0.0.1)")
    token_options(parser)
    parser.add_argument("--base-path", help="path under which a proxy serves it: /team/x")
    telemetry_options(parser)
    gcp_options(parser)
    json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    from runwatch.address import Listening
    from runwatch.cli.source import check_open
    from runwatch.head.main import Head
    from runwatch.head.settings import HeadSettings

    if arguments.dir is not None and not os.path.isdir(arguments.dir):
        raise NotFound(f"no such directory: {arguments.dir}")
    check_open(arguments.dir or runwatch_dir())  # first: its settings cannot be read either
    flags = vars(arguments) | {"grpc_port": -1}
    settings = load(HeadSettings, section="head", flags=flags).values
    check_open(settings.root)
    telemetry = telemetry_settings(arguments)
    gcp = gcp_settings(arguments)

    def ready(at: Listening) -> None:
        if arguments.json:
            print_ready(at, directory=str(settings.root))
            return
        print(f"Runwatch serves {settings.root} at {at.link}", flush=True)
        print("Stop it with Ctrl-C.", flush=True)

    logs.spare()
    with served_once(settings.root):
        Head(settings, tail_journals=True, telemetry=telemetry, gcp=gcp).run(ready)
    return 0
