"""Runwatch: what your run is doing, and which rank, device or line is to blame when it stops."""

from __future__ import annotations

import argparse
import importlib
import keyword
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Final

from runwatch import logs
from runwatch._version import __version__
from runwatch.cli.guesses import Parser, meant
from runwatch.errors import RunwatchError, UsageError
from runwatch.terminal import shown

COMMANDS: Final = {
    # In the order in which people meet them.
    "exec": "run any command as a run, with no line of it changed",
    "runs": "list runs",
    "show": "show one run: state, ranks, a chart; follows it live",
    "logs": "show what a run said: lines of its console, exceptions; follows it live",
    "goodput": "show where a run's time went, and what disruptions cost",
    "stacks": "show the line each rank is at now, or was at when the run hung",
    "devices": "list every accelerator of every node; those with trouble come first",
    "capture": "profile a run now: every host starts at the same moment",
    "profiles": "list, show, open, export and delete profiles",
    "session": "name a period of time; export what every device did in it",
    "import": "import runs of TensorBoard, wandb, MLflow, CSV and the originals",
    "export": "write every point of a run as CSV, Parquet or JSON",
    "status": "check the head, the agent and the disk; list what needs attention",
    "config": "show every setting and where its value comes from",
    "dropin": "let programs written for the originals use Runwatch; install, take back",
    "ui": "serve a directory of journals in one process",
    "head": "serve a cluster: store what agents send, answer people and programs",
    "agent": "run this node's agent",
    "k8s": "run the webhook or the operator of a Kubernetes cluster, as the chart does",
    "host": "serve XProf and Perfetto for a directory of profiles",
    "token": "make tokens with roles for jobs and people; list and revoke tokens",
    "share": "make a link that lets others look at a run; list and revoke links",
    "delete": "delete runs with all their records; asks first",
    "restore": "bring back a run that was deleted",
    "demo": "a real training job with a crash and a restart, and its report",
}

EXITS: Final = """\
example:
  runwatch exec -- python train.py
  runwatch runs
  runwatch COMMAND --help

exit codes: 0 it did what it was asked; 1 it could not, or something needs attention; 2 the command
is wrong.  `exec` exits as its command does.
"""
DRAWING: Final = ("rich", "plotext")
TIMES: Final = ("--since", "--until", "--exclude")
"""Options whose value may start with a minus sign."""


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def parser(chosen: str | None) -> argparse.ArgumentParser:
    """Only the chosen command's module is loaded: `agent` must not need what `head` needs."""
    top = Parser("runwatch", description=__doc__, formatter_class=_Help, epilog=EXITS)
    top.add_argument("--version", action="version", version=f"runwatch {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        if name != chosen:
            commands.add_parser(name, help=line)
            continue
        file = f"{name}_" if keyword.iskeyword(name) else name
        module = importlib.import_module(f"runwatch.cli.commands.{file}")
        command = commands.add_parser(
            name, help=line, description=module.__doc__, formatter_class=_Help
        )
        module.arguments(command)
        command.set_defaults(run=module.run)
        top.options_of = command
    return top


def joined(words: Sequence[str]) -> list[str]:
    """`--since -2h` as one word: argparse takes a separate -2h for an option."""
    found: list[str] = []
    for at, word in enumerate(words):
        if word == "--":
            return [*found, *words[at:]]  # what follows is a command of others
        if found and found[-1] in TIMES and re.match(r"-\d", word):
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def worded(said: str) -> str:
    return f"runwatch: {said}"


def main(argv: Sequence[str] | None = None, *, worded: Callable[[str], str] = worded) -> int:
    """`worded`: how what went wrong is said."""
    logs.spare()
    try:
        words = joined(sys.argv[1:] if argv is None else list(argv))
        chosen = next((word for word in words if not word.startswith("-")), None)
        if chosen is not None and chosen not in COMMANDS:
            guess = meant(chosen, COMMANDS)
            raise UsageError(f"there is no command {chosen!r}{guess} (`runwatch --help` lists all)")
        arguments = parser(chosen).parse_args(words)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except RunwatchError as error:
        print(worded(shown(str(error))), file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith("runwatch"):
            raise
        missing = f"this command needs {package}: pip install 'runwatch[head]'"
        if package in DRAWING:
            missing += ", or ask for --json"
        print(worded(missing), file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has ended (`runwatch runs | head`): end quietly, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
