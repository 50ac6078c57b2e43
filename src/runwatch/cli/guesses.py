"""Says what somebody may have meant who wrote a wrong option, command or value."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Final, NoReturn

from runwatch.likeness import meant as meant

_UNKNOWN: Final = "unrecognized arguments: "
_CHOICE: Final = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)$", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """Says what was meant by a wrong option, command or value."""

    options_of: argparse.ArgumentParser | None = None
    """The parser of the chosen command: only the outer one hears of unknown options."""

    def error(self, message: str) -> NoReturn:
        if message.startswith(_UNKNOWN) and self.options_of is not None:
            self.options_of.error(message)
        super().error(_with_guess(self, message))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _options(inner)


def _with_guess(parser: argparse.ArgumentParser, message: str) -> str:
    if found := _CHOICE.search(message):
        choices = [choice.strip().strip("'") for choice in found[2].split(",")]
        if guess := meant(found[1], choices):
            return f"{message[: found.start()]}invalid choice {found[1]!r}{guess}"
    unknown = message.removeprefix(_UNKNOWN)
    if unknown != message and unknown.startswith("-"):
        wrong = unknown.split()[0].partition("=")[0]
        known = set(_options(parser))
        return f"there is no option {wrong}{meant(wrong, known)}"
    return message
