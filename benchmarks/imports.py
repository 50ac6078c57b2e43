"""Import time and how much comes along, best of several fresh processes.

python benchmarks/imports.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

from report import NO_BAR, Outcome, Table, at_most
from tools import PEERS
from trial import NOT_INSTALLED, PEERS_PYTHON, Options, TrialFailed, directory, environment
from trial import is_installed as found_in

BAR_MS = 30.0
CODE = """
import json, sys, time
before = set(sys.modules)
begin = time.perf_counter()
{statement}
took = time.perf_counter() - begin
new = set(sys.modules) - before
tops = {{name.partition(".")[0] for name in new}}
outside = sorted(tops - set(sys.stdlib_module_names) - {{"__main__", {module!r}}})
print(json.dumps({{"ms": took * 1e3, "modules": len(new), "outside": outside}}))
"""
OURS = (
    ("import runwatch", "runwatch"),
    ("from runwatch import init, log", "runwatch"),
)


def measure(options: Options) -> Outcome:
    rounds = 3 if options.quick else 15
    peers = dict.fromkeys(tool.module for tool in PEERS)
    cases = [(statement, sys.executable, module) for statement, module in OURS]
    cases += [(f"import {module}", str(PEERS_PYTHON), module) for module in peers]
    numbers: dict[str, Any] = {
        statement: [] for statement, python, module in cases if found_in(python, module)
    }
    for number in range(rounds):
        for statement, python, module in cases:
            # Importing the heavy ones takes seconds; three of them say enough.
            if statement in numbers and (module == "runwatch" or number < 3):
                numbers[statement].append(once(python, statement, module))
    return Outcome([_table([statement for statement, _, _ in cases], numbers)], numbers)


def once(python: str, statement: str, module: str) -> dict[str, Any]:
    code = CODE.format(statement=statement, module=module)
    with directory() as place:
        done = subprocess.run(
            [python, "-c", code], env=environment(place), cwd=place, capture_output=True, text=True
        )
    if done.returncode:
        raise TrialFailed(f"{statement}: {done.stderr[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _table(statements: list[str], numbers: dict[str, Any]) -> Table:
    head = ("statement", "ms, best (median)", "modules", "not standard library", "bar", "")
    table = Table("Import", head)
    for statement in statements:
        if statement not in numbers:
            table.rows.append((statement, NOT_INSTALLED, "", "", "", ""))
            continue
        rounds = numbers[statement]
        best = min(one["ms"] for one in rounds)
        middle = statistics.median(one["ms"] for one in rounds)
        bar = at_most(middle, BAR_MS, "ms") if "runwatch" in statement else NO_BAR
        outside = len(rounds[-1]["outside"])
        cells = (f"{best:,.1f} ({middle:,.1f})", str(rounds[-1]["modules"]), str(outside))
        table.rows.append((statement, *cells, *bar))
    table.notes.append(
        "`import runwatch` loads the SDK when a name of it is first used: the second line is both."
    )
    return table


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, None, measure)


if __name__ == "__main__":
    main()
