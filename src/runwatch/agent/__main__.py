"""`python -m runwatch.agent`: how the SDK starts the node's agent; `runwatch agent` is the same."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from runwatch.settings import load


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="where journals are (default $RUNWATCH_DIR)")
    parser.add_argument("--head", help="address of the head (default $RUNWATCH_HEAD)")
    parser.add_argument(
        "--idle", type=float, dest="idle_seconds", help="end after so many seconds without a run"
    )
    parser.add_argument(
        "--period", type=float, dest="period_seconds", help="seconds between samples"
    )
    parser.add_argument(
        "--all-hosts",
        action="store_true",
        default=None,
        help="take every journal in the directory, not just this host's (a DaemonSet's hostPath)",
    )
    parser.add_argument("--detach", action="store_true", help="go on in the background")


def run(arguments: argparse.Namespace, argv: list[str]) -> bool:
    """False when another agent of this node and user serves the directory already."""
    if arguments.detach:
        again = [argument for argument in argv if argument != "--detach"]
        command = [sys.executable, "-m", "runwatch.agent", *again]
        subprocess.Popen(command, start_new_session=True)
        return True
    from runwatch.agent.main import run_agent
    from runwatch.agent.settings import AgentSettings

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    settings = load(AgentSettings, section="agent", flags=vars(arguments)).values
    # Not the directory of whoever started us: it may be on a file system that wants unmounting.
    settings = replace(settings, dir=settings.root.absolute())
    os.chdir("/")
    return run_agent(settings)


def main() -> int:
    parser = argparse.ArgumentParser("runwatch.agent", description=__doc__)
    arguments(parser)
    run(parser.parse_args(), sys.argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
