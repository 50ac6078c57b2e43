"""What the originals' commands share: numbers among their flags, how a command ends, and
processes that outlive it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import IO

from runwatch.errors import RunwatchError


def whole(what: str, low: int, high: int) -> Callable[[str], int]:
    """The type of a flag: a whole number from `low` to `high`."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {low} to {high}")
        return value

    return number


def exit_code(
    command: str, work: Callable[[], int], *, extra: str = "", on_error: int | None = None
) -> int:
    """What `work` returns.  An error is one line on standard error, and the error's own code or
    `on_error`.  `extra` is the extra of Runwatch that installs what the command needs."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except RunwatchError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return error.exit_code if on_error is None else on_error
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("runwatch"):
            raise
        print(
            f"{command}: this needs {error.name}: pip install 'runwatch[{extra}]'", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def start_detached(words: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process in a session of its own: it goes on when this command and its terminal end."""
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
