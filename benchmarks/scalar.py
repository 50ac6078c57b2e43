"""What one call costs the training thread, and what a burst of a million loses.

    python benchmarks/scalar.py [--quick]

Every call is timed by itself (two clock readings around it, whose own cost is measured the same way
and subtracted): at full speed, as a dict of ten, and one record per 5 ms, which lets caches cool
and idle threads fall asleep as they do in a real loop.  Tools take turns, round by round; of the
rounds the median is reported, and for p50 the best one too.  The clean end of the burst is waited
for: what is missing after it was dropped.
"""

from __future__ import annotations

import argparse
import statistics
import time
from array import array
from pathlib import Path
from typing import Any

from report import NO_BAR, Outcome, Table, at_most
from tools import ALL, CONTROL, NAMED, RUNWATCH_LOG, Names, Tool, loop_over
from trial import NOT_INSTALLED, Options, answer, ask, directory, installed

P50_US, P99_US = 1.0, 5.0
BURST = 1_000_000
WARM = 200
TEN = {f"metric_{i}": 0.5 + i for i in range(10)}


# ── in the worker ─────────────────────────────────────────────────────────────────────────────


def work(request: dict[str, Any]) -> None:
    tool, place, home = NAMED[request["tool"]], Path(request["directory"]), Path(request["home"])
    names = tool.open(place, home)
    if request["mode"] == "burst":
        answer(place, burst(tool, names, place, home, request["seconds"]))
        return
    seconds = request["seconds"]
    # Paced first: what full speed leaves in a queue would disturb it.
    paced = timed(names, tool.scalar, 2 * seconds, 0, pause=0.005)
    one = timed(names, tool.scalar, seconds, 1_000_000)
    ten = timed(names, tool.many, seconds, 2_000_000)
    answer(place, {"one": one, "ten": ten, "paced": paced})


def timed(
    names: Names, statement: str, seconds: float, first: int, pause: float = 0.0
) -> dict[str, float]:
    """Times in µs, the clock's own cost subtracted."""
    overhead = statistics.median(_times({}, "pass", range(20_000)))
    warm = _times(names, statement, range(first, first + WARM))
    each = statistics.median(warm[WARM // 2 :]) / 1e9
    count = int(min(max(seconds / (each + pause), 200), 200_000))
    before = f"sleep({pause}); begin = clock()" if pause else "begin = clock()"
    took = _times(names, statement, range(first + WARM, first + WARM + count), before)
    took = sorted((t - overhead) / 1e3 for t in took)
    return {
        "clock_us": overhead / 1e3,
        "calls": count,
        "p50": took[count // 2],
        "p99": took[int(count * 0.99)],
        "p999": took[int(count * 0.999)],
        "max": took[-1],
    }


def _times(
    names: Names, statement: str, steps: range, before: str = "begin = clock()"
) -> list[float]:
    note = array("q", bytes(8 * len(steps)))
    after = f"note[step - {steps.start}] = clock() - begin"
    run = loop_over(statement, {**names, "sleep": time.sleep}, before, after)
    run(steps, TEN, time.perf_counter_ns, note)
    return [float(took) for took in note]


def burst(tool: Tool, names: Names, place: Path, home: Path, seconds: float) -> dict[str, float]:
    run = loop_over(tool.scalar, names)
    begin = time.perf_counter()
    calls = 0
    while calls < BURST and time.perf_counter() - begin < seconds:
        more = 100_000 if tool.is_ours else 100
        run(range(calls, calls + more), TEN, None, None)
        calls += more
    took = time.perf_counter() - begin
    exec(tool.close, dict(names))
    stored = set(tool.stored(place, home))
    return {"calls": calls, "seconds": took, "dropped": calls - len(stored)}


# ── in the benchmark ──────────────────────────────────────────────────────────────────────────


def measure(options: Options) -> Outcome:
    rounds = 1 if options.quick else 3
    seconds = 0.5 if options.quick else 1.5
    numbers: dict[str, Any] = {}
    present = [tool for tool in (*ALL, CONTROL) if installed(tool)]
    with directory() as home:
        for _ in range(rounds):
            for tool in present:
                request = {"mode": "each", "seconds": seconds, "home": str(home)}
                given = ask("scalar.py", tool, request)
                found = numbers.setdefault(tool.name, {"one": [], "ten": [], "paced": []})
                for mode in found:
                    found[mode].append(given[mode])
        for tool in present[:-1]:
            limit = 60.0 if tool.is_ours else (1.0 if options.quick else 4.0)
            request = {"mode": "burst", "seconds": limit, "home": str(home)}
            numbers[tool.name]["burst"] = ask("scalar.py", tool, request)
    return Outcome([_costs(numbers), _others(numbers), _bursts(numbers)], numbers)


def _middle(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in rounds)


def _costs(numbers: dict[str, Any]) -> Table:
    head = ("one scalar, full speed", "p50 µs (best)", "p99", "p99.9", "bar", "p50", "bar", "p99")
    table = Table("Cost of one scalar", head)
    for tool in (*ALL, CONTROL):
        if tool.name not in numbers:
            table.rows.append((tool.name, NOT_INSTALLED, *[""] * 6))
            continue
        rounds = numbers[tool.name]["one"]
        p50, p99, p999 = (_middle(rounds, key) for key in ("p50", "p99", "p999"))
        best = min(one["p50"] for one in rounds)
        bars = (NO_BAR, NO_BAR)
        if tool.is_ours:
            bars = at_most(p50, P50_US, "µs"), at_most(p99, P99_US, "µs")
        cells = (f"{p50:.2f} ({best:.2f})", f"{p99:.2f}", f"{p999:.1f}")
        table.rows.append((tool.name, *cells, *bars[0], *bars[1]))
    clock = _middle(numbers[RUNWATCH_LOG.name]["one"], "clock_us") * 1e3
    calls = int(_middle(numbers[RUNWATCH_LOG.name]["one"], "calls"))
    rounds_made = len(numbers[RUNWATCH_LOG.name]["one"])
    table.notes.append(
        f"{clock:.0f} ns for two clock readings subtracted; {rounds_made} rounds, tools in turn, "
        f"{calls} calls of ours a round."
    )
    return table


def _others(numbers: dict[str, Any]) -> Table:
    head = ("call", "dict of 10, p50 µs", "p99", "one per 5 ms, p50 µs (best)", "p99")
    table = Table("A dict of ten; one record per 5 ms", head)
    for tool in (*ALL, CONTROL):
        if tool.name not in numbers:
            table.rows.append((tool.name, NOT_INSTALLED, "", "", ""))
            continue
        ten, paced = numbers[tool.name]["ten"], numbers[tool.name]["paced"]
        best = min(one["p50"] for one in paced)
        table.rows.append(
            (
                tool.name,
                f"{_middle(ten, 'p50'):.2f}",
                f"{_middle(ten, 'p99'):.2f}",
                f"{_middle(paced, 'p50'):.2f} ({best:.2f})",
                f"{_middle(paced, 'p99'):.1f}",
            )
        )
    return table


def _bursts(numbers: dict[str, Any]) -> Table:
    head = ("burst of 1 M, then a clean end", "calls made", "calls/s", "dropped", "bar", "")
    table = Table("Dropped in a burst", head)
    for tool in ALL:
        if tool.name not in numbers:
            table.rows.append((tool.name, NOT_INSTALLED, "", "", "", ""))
            continue
        found = numbers[tool.name]["burst"]
        calls, dropped = found["calls"], found["dropped"]
        bar = at_most(dropped, 0, "dropped") if tool.is_ours else NO_BAR
        speed = f"{calls / found['seconds']:,.0f}"
        table.rows.append((tool.name, f"{calls:,}", speed, f"{dropped:,}", *bar))
    table.notes.append("A tool that is slower makes as many calls as it can in a few seconds.")
    return table


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, work, measure)


if __name__ == "__main__":
    main()
