"""`python -m runwatch.agent`: the SDK starts the agent so; `runwatch agent` does the same."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from runwatch import logs
from runwatch.agent.stopping import listen
from runwatch.errors import RunwatchError
from runwatch.settings import load
from runwatch.terminal import log_to_stderr, shown


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="where journals are (default $RUNWATCH_DIR)")
    parser.add_argument("--head", help="address of the head (default $RUNWATCH_HEAD)")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="the head's token is in this file, mode 0600 (default $RUNWATCH_TOKEN_FILE)",
    )
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
    _device_arguments(parser)
    parser.add_argument("--detach", action="store_true", help="go on in the background")
    parser.add_argument("--asked", type=int, metavar="NS", help=argparse.SUPPRESS)


def _device_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device-hz",
        type=float,
        metavar="HZ",
        help="samples of accelerators per second, up to 20; 0 = none (default: 1)",
    )
    parser.add_argument(
        "--device-pcie",
        action="store_true",
        default=None,
        help="measure PCIe also on GPUs without counters for it: 40 ms each, every 10 s",
    )
    parser.add_argument(
        "--device-replay", type=Path, metavar="FILE", help="play this recording, not real devices"
    )
    parser.add_argument(
        "--device-replay-count",
        type=int,
        metavar="N",
        help="how many devices to play (default: as many as recorded)",
    )
    parser.add_argument(
        "--device-replay-speed",
        type=float,
        metavar="X",
        help="how many times as fast as recorded (default: 1)",
    )


def run(arguments: argparse.Namespace, argv: list[str]) -> bool:
    """False when another agent of this node and user already serves the directory."""
    if arguments.detach:
        again = [argument for argument in argv if argument != "--detach"]
        command = [sys.executable, "-m", "runwatch.agent", *again]
        subprocess.Popen(command, start_new_session=True)
        return True
    stop = listen(threading.Event())
    from runwatch.agent import powers
    from runwatch.agent.lock import is_unwanted
    from runwatch.agent.main import run_agent
    from runwatch.agent.settings import AgentSettings

    log_to_stderr("%(asctime)s %(levelname)s %(name)s: %(message)s")
    logs.spare()
    settings = load(AgentSettings, section="agent", flags=vars(arguments)).values
    # We leave the directory we were started in, lest we keep its file system from unmounting.
    settings = replace(
        settings,
        dir=settings.root.absolute(),
        ca=settings.ca and settings.ca.absolute(),
        token_file=settings.token_file and settings.token_file.absolute(),
        device_replay=settings.device_replay and settings.device_replay.absolute(),
    )
    os.chdir("/")
    if arguments.asked is not None and is_unwanted(settings.root, arguments.asked):
        return True
    for words in powers.take_up(settings.root):
        logging.getLogger("runwatch.agent").warning("%s", words)
    return run_agent(settings, stop)


def main() -> int:
    parser = argparse.ArgumentParser("runwatch.agent", description=__doc__)
    arguments(parser)
    try:
        run(parser.parse_args(), sys.argv[1:])
    except RunwatchError as error:
        sys.stderr.write(f"runwatch agent: {shown(str(error))}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
