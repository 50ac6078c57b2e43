"""What a SIGKILL takes: records whose call had returned and that cannot be read afterwards.

    python benchmarks/sigkill.py [--quick]

A process records 0, 1, 2 … at 1 kHz or as fast as the tool can, and after each call writes into
shared memory how many have returned.  It is killed at a random moment.  What helper processes of
a tool still write is waited for; then the tool's own files are read.
"""

from __future__ import annotations

import argparse
import mmap
import random
import struct
import time
from pathlib import Path
from typing import Any

from report import NO_BAR, Outcome, Table, at_most
from tools import ALL, NAMED, OURS, Tool
from trial import (
    NOT_INSTALLED,
    Options,
    TrialFailed,
    answer,
    ask,
    children,
    directory,
    end,
    installed,
    python_of,
    until,
    worker,
)

SPEEDS = {"1 kHz": 1000.0, "full speed": 0.0}
COUNTER = struct.Struct("<q")
SEED = 20_261_115


# ── in the worker ─────────────────────────────────────────────────────────────────────────────


def work(request: dict[str, Any]) -> None:
    tool, place, home = NAMED[request["tool"]], Path(request["place"]), Path(request["home"])
    if request["mode"] == "read":
        values = tool.stored(place, home)
        there = {int(value) for value in values}
        lost = sum(number not in there for number in range(request["returned"]))
        answer(request["directory"], {"lost": lost, "repeated": len(values) - len(there)})
        return
    names = tool.open(place, home)
    with (place / "returned").open("r+b") as file:
        returned = mmap.mmap(file.fileno(), COUNTER.size)
    record_for_ever(tool, names, returned, request["hertz"])


def record_for_ever(tool: Tool, names: dict[str, Any], returned: mmap.mmap, hertz: float) -> None:
    period = 1 / hertz if hertz else 0.0
    source = [
        "step, begin = 0, clock()",
        "while True:",
        "  value = float(step)",
        f"  {tool.scalar}",
        "  step += 1",
        "  put(returned, 0, step)",
        f"  wait = begin + step * {period} - clock() if {period} else 0",
        "  if wait > 0: sleep(wait)",
    ]
    scope = {"put": COUNTER.pack_into, "clock": time.perf_counter, "sleep": time.sleep}
    exec("\n".join(source), {**names, **scope, "returned": returned})


# ── in the benchmark ──────────────────────────────────────────────────────────────────────────


def measure(options: Options) -> Outcome:
    trials, of_peers = (2, 2) if options.quick else (10, 5)
    draw = random.Random(SEED)
    numbers: dict[str, Any] = {}
    present = [tool for tool in ALL if installed(tool)]
    with directory() as homes:
        for number in range(trials):
            for tool in present if number < of_peers else OURS:
                home = homes / tool.module
                home.mkdir(exist_ok=True)
                for speed, hertz in SPEEDS.items():
                    one = trial(tool, home, hertz, draw.uniform(0.5, 2.0))
                    found = numbers.setdefault(tool.name, {}).setdefault(
                        speed, {"returned": 0, "lost": 0, "repeated": 0, "trials": 0}
                    )
                    for key, value in one.items():
                        found[key] += value
                    found["trials"] += 1
    return Outcome([_table(numbers)], numbers)


def trial(tool: Tool, home: Path, hertz: float, seconds: float) -> dict[str, int]:
    with directory() as place:
        (place / "returned").write_bytes(bytes(COUNTER.size))
        with (place / "returned").open("r+b") as file:
            counter = mmap.mmap(file.fileno(), COUNTER.size)
        request = {
            "tool": tool.name,
            "mode": "write",
            "place": str(place),
            "home": str(home),
            "hertz": hertz,
        }
        with worker("sigkill.py", python_of(tool), request, place) as process:

            def started() -> bool:
                if process.poll() is not None:
                    words = (place / "worker.log").read_text(errors="replace")[-2000:]
                    raise TrialFailed(f"{tool.name} ended by itself:\n{words}")
                return _read(counter) > 0

            until(started, 120, f"{tool.name} to record")
            time.sleep(seconds)
            others = children(process)
            process.kill()
            process.wait()
            if others:
                settle(place)
            end(process, others)
        returned = _read(counter)
        # Each number by itself: the call that the signal came into may be there too, and a mere
        # count would let it stand for one that is missing.
        asked = {"mode": "read", "place": str(place), "home": str(home), "returned": returned}
        found = ask("sigkill.py", tool, asked)
        return {"returned": returned, **found}


def _read(counter: mmap.mmap) -> int:
    number: int = COUNTER.unpack_from(counter)[0]
    return number


def settle(place: Path, quiet_seconds: float = 1.0) -> None:
    """Until nothing in a directory grows any more."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < quiet_seconds:
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        if size != last:
            last, since = size, time.monotonic()
        time.sleep(0.05)


def _table(numbers: dict[str, Any]) -> Table:
    head = ("tool", "trials", "lost at 1 kHz", "lost at full speed", "bar", "")
    table = Table("Lost on SIGKILL", head)
    for tool in ALL:
        if tool.name not in numbers:
            table.rows.append((tool.name, "", NOT_INSTALLED, "", "", ""))
            continue
        found = numbers[tool.name]
        cells = [f"{found[s]['lost']:,} of {found[s]['returned']:,}" for s in SPEEDS]
        lost = sum(found[s]["lost"] + found[s]["repeated"] for s in SPEEDS)
        bar = at_most(lost, 0, "lost") if tool.is_ours else NO_BAR
        trials = str(found["1 kHz"]["trials"])
        table.rows.append((tool.name, trials, *cells, *bar))
    table.notes.append(
        "Trials at each speed, killed 0.5–2 s after the first record.  A record of ours that is "
        "there twice would count as lost."
    )
    return table


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, work, measure)


if __name__ == "__main__":
    main()
