"""Runs the whole laboratory and writes what was said of each case into docs/stacks.md.

python -m tests.integration.laboratory.table [--at-once 2] [--seed 1] [--into FILE]
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.integration.laboratory.case import Case
from tests.integration.laboratory.cases import CASES
from tests.integration.laboratory.trials import Laboratory, Outcome

PAGE: Final = Path(__file__).parents[3] / "docs" / "stacks.md"
BEGIN: Final = "<!-- laboratory: written by python -m tests.integration.laboratory.table -->"
END: Final = "<!-- laboratory: end -->"
_TIME: Final = re.compile(r" since \d\d:\d\d:\d\d")
_NUMBER: Final = re.compile(r"(process) \d+")


def page_with(text: str, outcomes: Iterable[Outcome]) -> str:
    before, rest = text.split(BEGIN)
    return (
        before + BEGIN + "\n" + "\n".join(lines(list(outcomes))) + "\n" + END + rest.split(END)[1]
    )


def lines(outcomes: list[Outcome]) -> list[str]:
    hangs = [outcome for outcome in outcomes if outcome.case.hangs]
    others = [outcome for outcome in outcomes if not outcome.case.hangs]
    named = sum(not outcome.wrong for outcome in hangs)
    quiet = sum(not outcome.wrong for outcome in others)
    slowest = max((outcome.seconds for outcome in hangs), default=0.0)
    return [
        "",
        "| | called a hang, rank and line right | only noted, or not at all |",
        "|---|---|---|",
        f"| {len(hangs)} hangs | {named} | {len(hangs) - named} |",
        f"| {len(others)} look-alikes | {len(others) - quiet} | {quiet} |",
        "",
        f"The slowest alarm came {slowest:.1f} s after the threshold.",
        "",
        "| hang | s | what was said |",
        "|---|---|---|",
        *map(_hang, hangs),
        "",
        "| look-alike | severity | what was said |",
        "|---|---|---|",
        *map(_look_alike, others),
        "",
    ]


def first_cell(case: Case) -> str:
    return f"`{case.name}`: {case.words}"


def _hang(outcome: Outcome) -> str:
    return f"| {first_cell(outcome.case)} | {outcome.seconds:.1f} | {_said(outcome)} |"


def _look_alike(outcome: Outcome) -> str:
    return f"| {first_cell(outcome.case)} | {outcome.loudest or 'none'} | {_said(outcome)} |"


def _said(outcome: Outcome) -> str:
    shown = outcome.shown
    if shown is None:
        return "nothing"
    text = _NUMBER.sub(r"\1", _TIME.sub("", shown.text))
    return text.replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", type=Path, default=PAGE)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        laboratory = Laboratory(Path(folder, "laboratory"))
        outcomes = []
        try:
            for outcome in laboratory.outcomes(tuple(CASES), chosen.at_once, chosen.seed):
                print(outcome.wrong or f"{outcome.case.name}: right", flush=True)
                outcomes.append(outcome)
        finally:
            laboratory.close()
    chosen.into.write_text(page_with(chosen.into.read_text(), outcomes))
    print(f"Wrote {chosen.into}")
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
