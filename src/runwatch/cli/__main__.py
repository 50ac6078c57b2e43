"""Runwatch: what your run is doing, and who or what is to blame when it is not."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Final

from runwatch import logs
from runwatch._version import __version__
from runwatch.errors import RunwatchError, UsageError
from runwatch.terminal import shown

COMMANDS: Final = {
    "demo": "a real training job with a crash and a restart, and its report",
    "ui": "serve a directory of journals in one process",
    "head": "serve a cluster: take what agents send, keep it, answer",
    "agent": "run this node's agent",
    "status": "how head, agent and disk stand for you here, and what needs attention",
    "runs": "list runs",
    "show": "show one run: state, processes, a chart; follows it live",
    "goodput": "what a run's time went into, and what disruptions cost",
    "session": "name a stretch of time; export what every device did in it",
    "devices": "every accelerator of every node now, those first that hurt",
    "stacks": "where a run's processes are now, or were when it hung; any local process",
    "capture": "profiles of a run's processes now, on every host from the same moment on",
    "profiles": "profile sessions: list, show, export, delete, and where they open",
    "host": "serve the viewers for a directory of profiles",
    "share": "make a link that lets others look at a run; list them, take them back",
    "delete": "delete runs and all that was recorded of them; asks first",
    "restore": "bring back a run that was deleted",
    "token": "make tokens with roles for jobs and people; list them, take them back",
    "export": "write every point of a run as CSV, Parquet or JSON",
    "config": "show every setting and where it came from",
}

TIMES: Final = ("--since", "--until", "--exclude")
"""Options whose value may begin with a minus."""


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def parser(chosen: str | None) -> argparse.ArgumentParser:
    """Only the chosen command's module is loaded: `agent` must not need what `head` needs."""
    top = argparse.ArgumentParser("runwatch", description=__doc__, formatter_class=_Help)
    top.add_argument("--version", action="version", version=f"runwatch {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        if name != chosen:
            commands.add_parser(name, help=line)
            continue
        module = importlib.import_module(f"runwatch.cli.commands.{name}")
        command = commands.add_parser(
            name, help=line, description=module.__doc__, formatter_class=_Help
        )
        module.arguments(command)
        command.set_defaults(run=module.run)
    return top


def _joined(words: Sequence[str]) -> list[str]:
    """`--since -2h` as one word: apart, -2h would be taken for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in TIMES and re.match(r"-\d", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def main(argv: Sequence[str] | None = None) -> int:
    logs.spare()
    try:
        words = _joined(sys.argv[1:] if argv is None else list(argv))
        chosen = next((word for word in words if not word.startswith("-")), None)
        arguments = parser(chosen).parse_args(words)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except RunwatchError as error:
        print(f"runwatch: {shown(str(error))}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("runwatch"):
            raise
        missing = f"this command needs {error.name}: pip install 'runwatch[head]'"
        print(f"runwatch: {missing}", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`runwatch runs | head`); so may we, quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
