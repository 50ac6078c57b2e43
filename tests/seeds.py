"""The examples of the documents that Runwatch is built from, to be run as they stand.

The documents are not part of this repository.  Where they lie beside it, their fenced blocks are
read here and run by the tests; elsewhere there are no such tests (`with_document`).  The same
calls in our own words run everywhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, ParamSpec

from tests.integration.standins import StandIns

SEEDS = Path(__file__).parents[2] / "shared" / "seeds"
P = ParamSpec("P")
_FENCE = re.compile(r"^( *)```(\w*)\s*$")

RUNNER = """
import json, sys
namespace = {"__name__": "__main__"}
for name, text in json.load(sys.stdin):
    exec(compile(text, name, "exec"), namespace)
"""
"""Runs one block after the other in one program; a traceback names the block."""


class Block(NamedTuple):
    number: int
    """Its place among all blocks of the document, from 1."""
    language: str
    text: str


def document(seed: str) -> str | None:
    """None where it does not lie beside the repository."""
    files = sorted(SEEDS.glob(f"{seed}_*.txt"))
    return files[0].read_text() if files else None


def with_document(seed: str) -> Callable[[Callable[P, None]], Callable[P, None] | None]:
    """Defines a test only where the document lies beside the repository."""
    return lambda test: None if document(seed) is None else test


def blocks(seed: str) -> list[Block]:
    """Returns all fenced blocks of the document."""
    text = document(seed)
    assert text is not None
    return list(read(text))


def read(text: str) -> Iterator[Block]:
    number, inside, language, margin = 0, False, "", 0
    lines: list[str] = []
    for line in text.splitlines():
        # The end of a block may have a sentence right behind it.
        fence = _FENCE.match(line) or (inside and re.match(r"^( *)(?:```)()", line))
        if not fence:
            lines.append(line[margin:] if line[:margin].isspace() or not margin else line)
        elif inside:
            number += 1
            yield Block(number, language, "\n".join(lines) + "\n")
            inside = False
        else:
            inside, margin, language, lines = True, len(fence[1]), fence[2], []


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """With a value for each `<placeholder>`."""
    return re.sub(r"<([\w -]+)>", lambda found: values[found[1]], text)


def mended(text: str, first: str = "pass") -> str:
    """The indentation that a document lost: of a body that stands as far left as its `def` or
    `class`, or unevenly below it.  `first` stands for what is merely described there."""
    head, _, body = text.partition(":\n")
    kind = head.splitlines()[-1].partition(" ")[0]
    if kind not in ("def", "class"):
        return text
    if kind == "class":
        lines = [line.strip() for line in body.splitlines()]
        return f"{head}:\n" + textwrap.indent("\n".join(lines), "  ") + "\n"
    return f"{head}:\n  {first}\n" + textwrap.indent(body, "  ")


def run_blocks(
    parts: Sequence[tuple[str, str]], environment: Mapping[str, str], directory: Path
) -> subprocess.CompletedProcess[str]:
    """(name, Python) each, in one process; every one of them must come to its end."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER], input=json.dumps(parts), text=True, capture_output=True,
        env=dict(environment), cwd=directory, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def run_shell(text: str, standins: StandIns, directory: Path) -> None:
    """Every line, also those that a block has as comments; nothing but stand-ins is found."""
    lines = re.sub(r"^# (?=(helm|kubectl) )", "", text, flags=re.MULTILINE)
    done = subprocess.run(
        ["/bin/bash", "-eu", "-c", lines], text=True, capture_output=True,
        env={"PATH": str(standins.bin)}, cwd=directory, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), lines
