"""How much slower a training loop gets, how long `init` takes and how long the exit.

    python benchmarks/loop.py [--quick]

A loop of NumPy steps of about 5 ms with 20 scalars each, in blocks of ten steps that alternate
between bare and recorded, in one process; each pair of neighbouring blocks gives one ratio of their
best steps (best, since on a shared machine the others are slow for reasons that are not ours; the
price is that a cost which comes only now and then is not seen).
Reported are the median ratio with the standard error of that median, the share of a step that the
calls themselves take in the median, and the CPU time of the process's other threads in percent of
one core.  The last case records nothing in either kind of block: what it shows is noise.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from report import NO_BAR, Outcome, Table, at_most
from tools import NAMED, PEERS, RUNWATCH_LOG, RUNWATCH_RECORD, Names, Tool, loop_over
from trial import (
    NOT_INSTALLED,
    Options,
    TrialFailed,
    answer,
    directory,
    environment,
    installed,
    python_of,
    read_answer,
    until,
    worker,
)

BAR_PERCENT, BAR_INIT_MS, BAR_EXIT_MS = 0.5, 100.0, 1000.0
BLOCK = 10
TWENTY = {f"metric_{i}": 0.5 + i for i in range(20)}
BARE = Tool("no tool", "", lambda place, home: {}, "pass", "pass", "pass", lambda place, home: [])


@dataclass
class Case:
    name: str
    tool: Tool
    variables: dict[str, str] = field(default_factory=dict)


# ── in the worker ─────────────────────────────────────────────────────────────────────────────


def work(request: dict[str, Any]) -> None:
    tool = NAMED.get(request["tool"], BARE)
    place, home = Path(request["directory"]), Path(request["home"])
    step = numpy_step()
    if tool.module:
        import_module(tool.module)
    begin = time.perf_counter()
    names = tool.open(place, home)
    init_seconds = time.perf_counter() - begin
    found = blocks(tool, names, step, request["pairs"])
    if tool.name != RUNWATCH_LOG.name:  # that one is left to end by itself
        exec(tool.close, dict(names))
    answer(place, {**found, "init_ms": init_seconds * 1e3, "left_ns": time.monotonic_ns()})


def numpy_step() -> Any:
    """A matrix product that takes about 5 ms on one core."""
    numpy = import_module("numpy")
    size = 64
    while True:
        one, other = numpy.ones((size, size)), numpy.empty((size, size))
        took = []
        for _ in range(20):
            begin = time.perf_counter()
            numpy.matmul(one, one, out=other)
            took.append(time.perf_counter() - begin)
        if min(took) > 0.0046:
            return lambda: numpy.matmul(one, one, out=other)
        size += 16 if min(took) < 0.003 else 4


def blocks(tool: Tool, names: Names, step: Any, pairs: int) -> dict[str, Any]:
    run = loop_over(
        f"train(); begin = clock(); {tool.many}"
        if not tool.many.startswith("for ")
        else "train(); begin = clock(); record_many(values, step)",
        {**names, "train": step, "record_many": _many(tool, names)},
        "start = clock()",
        "end = clock(); note.append((end - start, end - begin))",
    )
    bare = loop_over(
        "train(); begin = clock()",
        {"train": step},
        "start = clock()",
        "end = clock(); note.append((end - start, end - begin))",
    )
    clock = time.perf_counter_ns
    warm: list[tuple[int, int]] = []
    run(range(BLOCK), TWENTY, clock, warm)
    bare(range(BLOCK), TWENTY, clock, warm)
    ratios, calls, steps = [], [], []
    cpu, mine, wall = time.process_time(), time.thread_time(), time.perf_counter()
    for pair in range(pairs):
        notes: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
        # Which comes first changes, so that a drift of the machine cancels.
        for recorded in (pair % 2 == 0, pair % 2 == 1):
            first = (pair * 2 + 2) * BLOCK
            loop = run if recorded else bare
            loop(range(first, first + BLOCK), TWENTY, clock, notes[recorded])
        best = {kind: min(total for total, _ in note) for kind, note in notes.items()}
        ratios.append(best[True] / best[False])
        calls += [call for _, call in notes[True]]
        steps += [total for total, _ in notes[False]]
    wall = time.perf_counter() - wall
    others = (time.process_time() - cpu) - (time.thread_time() - mine)
    return {
        "ratio": statistics.median(ratios),
        "error": 1.2533 * statistics.stdev(ratios) / math.sqrt(len(ratios)),
        "call_us": statistics.median(calls) / 1e3,
        "call_share": statistics.median(calls) / statistics.median(steps),
        "step_ms": statistics.median(steps) / 1e6,
        "other_threads": others / wall,
        "pairs": len(ratios),
    }


def _many(tool: Tool, names: Names) -> Any:
    """The `for` form of `many` as a function, since a compound statement cannot share a line."""
    scope = dict(names)
    exec(f"def record_many(values, step):\n  {tool.many}", scope)
    return scope["record_many"]


# ── in the benchmark ──────────────────────────────────────────────────────────────────────────


def measure(options: Options) -> Outcome:
    pairs, rounds = (15, 1) if options.quick else (40, 3)
    numbers: dict[str, list[dict[str, float]]] = {}
    with heads() as variables, directory() as homes:
        cases = _cases(variables)
        for _ in range(rounds):
            for case in cases:
                home = homes / (case.tool.module or "none")
                home.mkdir(exist_ok=True)
                if installed(case.tool):
                    numbers.setdefault(case.name, []).append(trial(case, home, pairs))
    return Outcome([_table(cases, numbers), _times(cases, numbers)], {"loop": numbers})


def _cases(heads: dict[str, str]) -> list[Case]:
    cases = [
        Case("Runwatch run.log, no agent", RUNWATCH_LOG),
        Case("Runwatch metrics.record × 20, no agent", RUNWATCH_RECORD),
        Case("Runwatch, agent, no head", RUNWATCH_LOG, {"RUNWATCH_AGENT": "on"}),
    ]
    for name, address in heads.items():
        variables = {"RUNWATCH_AGENT": "on", "RUNWATCH_HEAD": address, "RUNWATCH_TOKEN": "wrong"}
        cases.append(Case(f"Runwatch, agent, head {name}", RUNWATCH_LOG, variables))
    cases += [Case(tool.name, tool) for tool in PEERS]
    return [*cases, Case("bare against bare", BARE)]


def trial(case: Case, home: Path, pairs: int) -> dict[str, float]:
    with directory() as place:
        request = {
            "tool": case.tool.name,
            "directory": str(place),
            "home": str(home),
            "pairs": pairs,
        }
        python = python_of(case.tool)
        try:
            with worker("loop.py", python, request, place, **case.variables) as process:
                try:
                    process.wait(300)
                except subprocess.TimeoutExpired as error:
                    raise TrialFailed(f"loop.py for {case.name} took more than 300 s") from error
                gone_ns = time.monotonic_ns()
            found = read_answer(place, f"loop.py for {case.name}")
        finally:
            end_agent(place)
        found["exit_ms"] = (gone_ns - found["left_ns"]) / 1e6
        return found


def end_agent(place: Path) -> None:
    """The agent that a run started goes on by itself for a while."""
    from runwatch.agent.lock import end_agents

    end_agents(place)


@contextmanager
def heads() -> Iterator[dict[str, str]]:
    """Addresses of heads that are of no use: nobody there, hanging, refusing."""
    with contextlib.ExitStack() as stack:
        hanging = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            closed = probe.getsockname()[1]
        port = stack.enter_context(refusing_head())
        yield {
            "unreachable (closed port)": f"127.0.0.1:{closed}",
            "unreachable (packets dropped)": "192.0.2.1:8090",
            "hanging (accepts, never answers)": f"127.0.0.1:{hanging.getsockname()[1]}",
            "refusing (wrong token)": f"127.0.0.1:{port}",
        }


@contextmanager
def refusing_head() -> Iterator[int]:
    from runwatch.address import read_address

    with directory() as place:
        command = [sys.executable, "-m", "runwatch.cli", "head", "--dir", str(place)]
        command += ["--grpc-port", "0", "--http-port", "0", "--token", "right"]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment(place), stdout=log, stderr=log)
        try:
            until(lambda: read_address(place), 60, "the head to start")
            at = read_address(place)
            assert at is not None
            yield int(at.grpc.rpartition(":")[2])
        finally:
            process.terminate()
            process.wait()


def _over(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in rounds)


def _table(cases: list[Case], numbers: dict[str, list[dict[str, float]]]) -> Table:
    head = (
        "loop of 5 ms steps, 20 scalars each",
        "slower by %",
        "calls, µs (% of a step)",
        "other threads, % of a core",
        "bar",
        "",
    )
    table = Table("Slow-down of a training loop", head)
    for case in cases:
        if case.name not in numbers:
            table.rows.append((case.name, NOT_INSTALLED, "", "", "", ""))
            continue
        rounds = numbers[case.name]
        slower = (_over(rounds, "ratio") - 1) * 100
        error = _over(rounds, "error") * 100 / math.sqrt(len(rounds))
        share, threads = _over(rounds, "call_share") * 100, _over(rounds, "other_threads") * 100
        bar = _verdict(slower, error, share) if case.tool.is_ours else NO_BAR
        calls = f"{_over(rounds, 'call_us'):.1f} ({share:.2f})"
        cells = (f"{slower:+.2f} ± {error:.2f}", calls, f"{threads:.2f}")
        table.rows.append((case.name, *cells, *bar))
    steps = statistics.median(one["step_ms"] for rounds in numbers.values() for one in rounds)
    made = f"{_pairs(numbers)}, {BLOCK} steps a block"
    table.notes.append(f"Median bare step {steps:.2f} ms, {made}; ± is one standard error.")
    return table


def _verdict(slower: float, error: float, share: float) -> tuple[str, str]:
    bar, word = at_most(max(slower - error, share), BAR_PERCENT, "%")
    unsure = word == "pass" and slower + error > BAR_PERCENT
    return bar, "pass, within the noise" if unsure else word


def _pairs(numbers: dict[str, list[dict[str, float]]]) -> str:
    rounds = next(iter(numbers.values()))
    return f"{len(rounds)} processes × {int(rounds[0]['pairs'])} pairs of blocks"


def _times(cases: list[Case], numbers: dict[str, list[dict[str, float]]]) -> Table:
    head = ("case", "init ms", "bar", "", "end of main to end of process ms", "bar", "")
    table = Table("Beginning and end", head)
    for case in cases:
        if case.name not in numbers:
            table.rows.append((case.name, NOT_INSTALLED, "", "", "", "", ""))
            continue
        init, leave = (_over(numbers[case.name], key) for key in ("init_ms", "exit_ms"))
        init_bar, leave_bar = NO_BAR, NO_BAR
        if case.tool.is_ours:
            init_bar = at_most(init, BAR_INIT_MS, "ms")
            leave_bar = at_most(leave, BAR_EXIT_MS, "ms")
        table.rows.append((case.name, f"{init:.1f}", *init_bar, f"{leave:.0f}", *leave_bar))
    table.notes.append(
        "`init` includes what it imports beyond `import runwatch`; where a tool is closed by hand "
        "(all but Runwatch run.log), that is before the end of main.  mldiagnostics would create "
        "its run over a network; that is left out."
    )
    return table


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, work, measure)


if __name__ == "__main__":
    main()
