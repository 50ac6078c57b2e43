"""A trace of 500 MB: how long until its summary, and how much memory?

    python benchmarks/profiles.py [--quick]

Makes a Kineto trace and an XSpace of that size (`profile_files.py`), always the same ones, and
summarises each in a process of its own.  Beside it, on the same files, what one would do otherwise:
`json.load` alone, and XProf's own overview page.  Then brings such traces from a node to a head
(`profile_stored.py`), and sees what accidents cost a program's steps (`profile_steps.py`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from profile_files import kineto, xplane
from report import NO_BAR, Outcome, Table, at_most
from trial import Options, TrialFailed, answer, directory, is_installed, read_answer, worker

MEGABYTES: Final = {False: 500, True: 50}
SECONDS_BAR, MEMORY_BAR = 10.0, 300.0
PATIENCE_SECONDS: Final = 240

# ── in a process of its own ───────────────────────────────────────────────────────────────────


def work(request: dict[str, Any]) -> None:
    before = peak_mb()
    begin, worked = time.perf_counter(), time.process_time()
    found = DOING[request["what"]](Path(request["file"]))
    took, cpu = time.perf_counter() - begin, time.process_time() - worked
    numbers = {"seconds": took, "cpu_seconds": cpu, "peak_mb": peak_mb(), "before_mb": before}
    answer(request["directory"], numbers | found)


def peak_mb() -> float:
    """Of this program alone: getrusage also counts what its parent had when it began it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) / 1024


def summarised(file: Path) -> dict[str, Any]:
    from runwatch.traces.summary import summarise

    found = summarise(file)
    assert found.split is not None and found.split.window_ns == found.window_ns
    return {
        "events": found.events,
        "idle_percent": found.device_idle_percent,
        "steps": found.steps.count if found.steps else 0,
    }


def loaded(file: Path) -> dict[str, Any]:
    import json

    with file.open() as stream:
        return {"events": len(json.load(stream)["traceEvents"])}


def overviewed(file: Path) -> dict[str, Any]:
    from xprof.convert import raw_to_tool_data

    data, _ = raw_to_tool_data.xspace_to_tool_data([str(file)], "overview_page", {})
    return {"answer_bytes": len(data or b"")}


DOING: Final = {"runwatch": summarised, "json.load": loaded, "xprof": overviewed}


def once(what: str, file: Path) -> dict[str, Any]:
    with directory() as place:
        request = {"what": what, "file": str(file), "directory": str(place)}
        with worker("profiles.py", sys.executable, request, place) as process:
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise TrialFailed(f"{what} took more than {PATIENCE_SECONDS} s") from error
        return read_answer(place, what)


def measure(options: Options) -> Outcome:
    # Not above: whoever summarises in a process of its own would carry a head's libraries along.
    import profile_steps
    import profile_stored

    size = MEGABYTES[options.quick] * 1_000_000
    head = ("trace", "read by", "seconds (of processor time)", "bar", "", "peak MB", "bar", "")
    table = Table(f"A trace of {MEGABYTES[options.quick]} MB", head)
    numbers: dict[str, Any] = {}
    with directory() as place:
        for name, make, peer in (("Kineto JSON", kineto, "json.load"), ("XSpace", xplane, "xprof")):
            file = place / ("trace.json" if make is kineto else "node-17.xplane.pb")
            with file.open("wb") as stream:
                events = make(stream, size)
            table.notes.append(f"{name}: {file.stat().st_size:,} bytes, {events:,} events.")
            every = [once("runwatch", file) for _ in range(1 if options.quick else 3)]
            ours = max(every, key=lambda one: one["seconds"])
            numbers[name] = {"runwatch": every, "events": events}
            table.rows.append(row(name, "runwatch", ours, with_bar=True))
            table.rows.append(beside(name, peer, file, numbers[name]))
            file.unlink()
    rounds = 1 if options.quick else 3
    stored, numbers["stored"] = profile_stored.measure(MEGABYTES[options.quick], rounds)
    tables = [table, stored]
    if is_installed(sys.executable, "jax") and is_installed(sys.executable, "xprof"):
        numbers["steps"] = profile_steps.trial()
        tables.append(profile_steps.table(numbers["steps"]))
    return Outcome(tables, numbers)


def beside(name: str, peer: str, file: Path, numbers: dict[str, Any]) -> tuple[str, ...]:
    if peer == "xprof" and not is_installed(sys.executable, "xprof"):
        return (name, peer, "not installed", *NO_BAR, "", *NO_BAR)
    try:
        numbers[peer] = once(peer, file)
    except TrialFailed as error:
        return (name, peer, f"failed: {str(error)[:60]}", *NO_BAR, "", *NO_BAR)
    return row(name, peer, numbers[peer], with_bar=False)


def row(name: str, who: str, one: dict[str, Any], *, with_bar: bool) -> tuple[str, ...]:
    speed = at_most(one["seconds"], SECONDS_BAR, "s") if with_bar else NO_BAR
    memory = at_most(one["peak_mb"], MEMORY_BAR, "MB") if with_bar else NO_BAR
    took = f"{one['seconds']:.1f} ({one['cpu_seconds']:.1f})"
    return (name, who, took, *speed, f"{one['peak_mb']:,.0f}", *memory)


def main() -> None:
    from command import run_one

    run_one(argparse.ArgumentParser(description=__doc__), work, measure)


if __name__ == "__main__":
    main()
