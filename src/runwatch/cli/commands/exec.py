"""Run any command as a run: torchrun, accelerate, python, a shell script; no line of it changes.

Its steps, metrics, checkpoints, exceptions and output are recorded.  Exit code, signals, input and
terminal are the command's own, as if it ran without us.  The name is --name, else $RUNWATCH_NAME,
else the script's.  A program that calls runwatch.init("x") is the run x.

example:
  runwatch exec -- python train.py --lr 0.1
  runwatch exec --name llama-70b --group sweep -- torchrun --nproc-per-node 8 train.py
  runwatch exec --no-hooks -- bash run.sh
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from runwatch.errors import UsageError
from runwatch.launcher import wrapper
from runwatch.launcher.environment import Options


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "runwatch exec [OPTION ...] -- COMMAND [ARGUMENT ...]"
    parser.add_argument("--name", default="", help="the run's name, whatever the program says")
    parser.add_argument("--group", default="", help="the run's group")
    parser.add_argument("--id", default="", help="the run's id, in place of its name")
    parser.add_argument(
        "--config", action="append", default=[], metavar="K=V", help="a setting to be recorded"
    )
    parser.add_argument("--dir", default="", help="where to record (default ~/.runwatch)")
    parser.add_argument("--head", default="", help="the head to send to, as people open it")
    parser.add_argument(
        "--no-hooks", action="store_true", help="do not look into the program's frameworks"
    )
    parser.add_argument(
        "--no-console", action="store_true", help="do not record what the command writes"
    )
    parser.add_argument("words", nargs="...", metavar="-- COMMAND", help="and its arguments")


def run(arguments: argparse.Namespace) -> int:
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not words:
        raise UsageError("no command: try `runwatch exec -- python train.py`")
    options = Options(
        name=arguments.name,
        group=arguments.group,
        id=arguments.id,
        config=dict(_setting(each) for each in arguments.config),
        directory=arguments.dir,
        head=arguments.head,
        hooks=not arguments.no_hooks,
        console=not arguments.no_console,
    )
    wrapper.run(options, words)


def _setting(words: str) -> tuple[str, Any]:
    name, equals, value = words.partition("=")
    if not name or not equals:
        raise UsageError(f"--config {words!r}: it should look like lr=0.1")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
