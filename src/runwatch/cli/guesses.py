"""What somebody may have meant who wrote a name that does not exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

MOST: Final = 3
LIKE: Final = 0.6
"""How alike two names must be; 1 is the same."""
CLOSE: Final = 0.15
"""Only those are named that are nearly as alike as the best."""
_UNKNOWN: Final = "unrecognized arguments: "
_CHOICE: Final = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)$", re.DOTALL)


def meant(wrong: str, known: Iterable[str]) -> str:
    """`: did you mean 'loss'?`, or nothing."""
    near = _near(wrong, known)
    return f": did you mean {_either(near)}?" if near else ""


def _near(wrong: str, known: Iterable[str]) -> list[str]:
    from difflib import SequenceMatcher  # only who made a mistake waits for it

    matcher = SequenceMatcher(b=wrong.casefold())
    likeness: dict[str, float] = {}
    for name in known:
        folded = name.casefold()
        matcher.set_seq1(folded)
        if matcher.real_quick_ratio() < LIKE and not folded.startswith(wrong.casefold()):
            continue
        # The beginning of a name is as good as a letter that is wrong.
        begins = bool(wrong) and folded.startswith(wrong.casefold())
        likeness[name] = max(matcher.ratio(), 0.9 if begins else 0.0)
    best = sorted(likeness, key=lambda name: (-likeness[name], name))
    least = max(LIKE, max(likeness.values(), default=0.0) - CLOSE)
    return [name for name in best if likeness[name] >= least][:MOST]


def _either(names: list[str]) -> str:
    *most, last = [repr(name) for name in names]
    return f"{', '.join(most)} or {last}" if most else last


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
