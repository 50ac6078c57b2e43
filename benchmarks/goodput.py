"""What a question about a job's goodput costs: the original library and ours, at any length.

    python benchmarks/goodput.py [--quick]

The jobs are those of `goodput_shapes.py`.  Every case is a process of its own: the whole log is
there, a first question is asked (`get_job_goodput` with its breakdown), the same again with nothing
new, and once more after a hundred steps and the job's end; last every step's deviation from the
ideal, which the original measures with each question.  The original and ours read the same log in
memory; ours is also asked about a journal that another process writes.  Beside it stands the strict
account, in which every nanosecond has one class.  Some logs that people bring go by times and know
no cursors: of such a one both are asked as well.  That the original and ours answer the same is
checked each time: a benchmark with another answer fails.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import signal
import subprocess
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final, Protocol

from goodput_shapes import DISRUPTIONS, SHAPES, Entry, Job
from goodput_tables import (
    DROP_INS,
    LARGEST_OF_THE_ORIGINAL,
    WAYS,
    Cases,
    by_times_table,
    growth,
    tables,
)
from report import Outcome, Table
from scalar import timed
from tools import Tool
from trial import (
    NOT_INSTALLED,
    Options,
    TrialFailed,
    answer,
    ask,
    directory,
    installed,
    python_of,
    read_answer,
    until,
    worker,
)

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
MORE: Final = 100
LIMIT_SECONDS: Final = 600
PERCENT_APART, SECONDS_APART = 0.1, 0.1

NAME, LOGGER = "job", "goodput_job"
ASKED: Final = ("calculator", "strict")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _tool(name: str, module: str, is_ours: bool) -> Tool:
    record = "recorder.record_step_start_time(step)"
    return Tool(name, module, lambda place, home: {}, record, "", "", lambda a, b: [], is_ours)


ORIGINAL: Final = _tool("ml-goodput-measurement", "ml_goodput_measurement", False)
OURS: Final = _tool("Runwatch", "runwatch.compat.goodput.goodput", True)


# ── in the worker ─────────────────────────────────────────────────────────────────────────────


def work(request: dict[str, Any]) -> None:
    place = Path(request["directory"])
    if request["mode"] == "write":
        write(request, place)
    elif request["mode"] == "record":
        answer(place, record(request, place))
    else:
        give_up_after(LIMIT_SECONDS, place)
        answer(place, in_journal(request) if request["mode"] == "journal" else in_memory(request))


def give_up_after(seconds: float, place: Path) -> None:
    def give_up(number: int, frame: object) -> None:
        answer(place, {"over_s": seconds})
        os._exit(0)

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)


class MemoryLog:
    """A log as Cloud Logging keeps it, in memory: read by moment, or on from a cursor."""

    def __init__(self, job: Job) -> None:
        self.entries: list[Entry] = []
        self._job = job
        self._times = array("q")  # µs, as a datetime has them: a cursor must not lose a digit

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._times.append(round(self._job.now * 1e6))

    def write_cloud_logging_entry(self, entry: Entry) -> None:
        raise NotImplementedError("nobody records here")

    def read_cloud_logging_entries(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        last_entry_info: Any = None,
    ) -> tuple[list[Entry], Any]:
        first, last = 0, len(self.entries)
        if last_entry_info:
            moment, place = _microseconds(last_entry_info[0]), int(last_entry_info[1])
            first = bisect_left(self._times, moment)
            while first <= place and self._times[first] == moment:
                first += 1
        elif start_time is not None:
            first = bisect_right(self._times, _microseconds(start_time))
        if end_time is not None:
            last = bisect_right(self._times, _microseconds(end_time))
        if first >= last:
            return [], last_entry_info
        newest = _EPOCH + timedelta(microseconds=self._times[last - 1])
        return self.entries[first:last], (newest, f"{last - 1:012}")

    def read_behind(self, cursor: Any) -> tuple[list[Entry], Any]:
        return self.read_cloud_logging_entries(last_entry_info=cursor)

    def flush(self) -> None:
        pass


class TimedLog(MemoryLog):
    """A log that goes by times alone, as the original's own tests bring it: its cursor, which is
    always that of its last entry, says nothing to it."""

    def read_cloud_logging_entries(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        last_entry_info: Any = None,
    ) -> tuple[list[Entry], Any]:
        entries, _ = super().read_cloud_logging_entries(start_time, end_time)
        newest = _EPOCH + timedelta(microseconds=self._times[-1])
        return entries, (newest, f"{len(self.entries) - 1:012}")


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


class Asker(Protocol):
    def ask(self) -> None: ...

    def told(self) -> dict[str, Any]: ...


class Calculator:
    def __init__(self, library: Any, logger: Any, cache: str) -> None:
        # The original keeps a copy of the log there; ours has no use for it.
        self._calculator = library.GoodputCalculator(NAME, LOGGER, logger, cache_dir=cache)

    def ask(self) -> None:
        self._answer = self._calculator.get_job_goodput(include_badput_breakdown=True)

    def details(self) -> None:
        self._calculator.get_job_goodput_details()

    def told(self) -> dict[str, Any]:
        goodput, badput, last = self._answer
        info = self._calculator._goodput_cache.get_goodput_info()
        return {
            "percent": {"goodput": goodput, **_flat(badput)},
            "seconds": {
                "productive": info.total_productive_time,
                **_flat(info.total_unproductive_time),
            },
            "counts": {"last step": last, "disruptions": info.number_of_disruptions},
        }


class StrictOfCalculator(Calculator):
    """The strict account, as callers with a log of their own ask for it."""

    def ask(self) -> None:
        self._account = self._calculator.get_account()

    def told(self) -> dict[str, Any]:
        spent = self._account
        return {
            "percent": {"goodput": 100 * spent.goodput},
            "seconds": {name: ns / 1e9 for name, ns in spent.spent_ns.items() if ns},
            "off_ns": sum(spent.spent_ns.values()) - spent.total_ns,
        }


def _flat(badput: Any) -> dict[str, float]:
    """By name: the two libraries' enumerations are not the same objects."""
    found: dict[str, float] = {}
    for kind, value in badput.items():
        parts = value if isinstance(value, dict) else {"": value}
        found.update({f"{kind.name} {part}".strip(): number for part, number in parts.items()})
    return found


class Strict:
    def __init__(self, kind: str, *given: Any) -> None:
        self._account = getattr(import_module("runwatch.compat.goodput.calculator.strict"), kind)(
            *given
        )

    def ask(self) -> None:
        self._found = self._account.goodput(time.time_ns())
        self._spent = self._found.account()

    def told(self) -> dict[str, Any]:
        found, spent = self._found, self._spent
        return {
            "percent": {"goodput": 100 * spent.goodput},
            "seconds": {name: ns / 1e9 for name, ns in spent.spent_ns.items() if ns},
            "counts": {
                "last step": found.max_productive_step,
                "disruptions": len(found.disruptions),
            },
            "off_ns": sum(spent.spent_ns.values()) - spent.total_ns,
        }


def in_memory(request: dict[str, Any]) -> dict[str, Any]:
    job = Job(request["shape"], request["steps"], name=NAME)
    by_times = request.get("log") == "times"
    log = TimedLog(job) if by_times else MemoryLog(job)
    for entry in job.run(request["steps"]):
        log.write(entry)

    def go_on() -> None:
        for entry in rest(job):
            log.write(entry)

    is_strict = request["asked"] == "strict"
    kind = StrictOfCalculator if is_strict else Calculator
    library = library_of(request["tool"])
    open_asker: Callable[[], Asker] = partial(kind, library, log, request["directory"])
    if is_strict and not by_times:
        open_asker = partial(Strict, "EntryAccount", log.read_behind)
    return {"entries": len(log.entries), **question(open_asker, go_on)}


def in_journal(request: dict[str, Any]) -> dict[str, Any]:
    root, asked = Path(request["root"]), request["asked"]

    def go_on() -> None:
        (root / f"asked-{asked}").touch()
        until((root / "written").exists, LIMIT_SECONDS, "a hundred steps more")

    open_asker: Callable[[], Asker] = partial(Calculator, library_of(request["tool"]), None, "")
    if asked == "strict":
        open_asker = partial(Strict, "JournalAccount", root, NAME)
    return question(open_asker, go_on)


def library_of(tool: str) -> Any:
    if tool == ORIGINAL.name:
        return import_module("ml_goodput_measurement").goodput
    # Loaded when first used; the original loads everything when it is imported.
    for name in (
        "calculator.calculator",
        "calculator.strict",
        "log.recorder",
        "log.backend",
        "log.following",
    ):
        import_module(f"runwatch.compat.goodput.{name}")
    return import_module("runwatch.compat.goodput.goodput")


def rest(job: Job) -> Iterator[Entry]:
    yield from job.run(MORE)
    yield job.finish()


def question(open_asker: Callable[[], Asker], go_on: Callable[[], None]) -> dict[str, Any]:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the log
    before = resident_mb("VmRSS")
    asker: Asker | None = None

    def first() -> None:
        nonlocal asker
        asker = open_asker()
        asker.ask()

    found: dict[str, Any] = {"first": cost(first)}
    assert asker is not None
    found["told first"] = asker.told()
    found["nothing new"] = cost(asker.ask)
    go_on()
    found["after"] = cost(asker.ask)
    found |= {"before_mb": before, "above_mb": resident_mb("VmHWM") - before}
    found["told"] = asker.told()
    if isinstance(asker, Calculator):
        found["details"] = cost(asker.details)
        found["details_mb"] = resident_mb("VmHWM") - before
    return found


def resident_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def cost(call: Callable[[], None]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


def write(request: dict[str, Any], place: Path) -> None:
    """The process whose job it is: it writes, and is alive while others ask."""
    logger = import_module("runwatch.compat.goodput.log.backend").JournalLogger(NAME, LOGGER)
    job = Job(request["shape"], request["steps"], name=NAME)
    begin, count = time.process_time(), 0
    for entry in job.run(request["steps"]):
        logger.write_cloud_logging_entry(entry)
        count += 1
    took = time.process_time() - begin
    files = [path.stat().st_size for path in place.rglob("*") if path.is_file()]
    answer(place, {"entries": count, "us": took / count * 1e6, "mb": sum(files) / 1e6})
    asked = [place / f"asked-{who}" for who in ASKED]
    until(lambda: all(path.exists() for path in asked), LIMIT_SECONDS, "the first questions")
    for entry in rest(job):
        logger.write_cloud_logging_entry(entry)
    (place / "written").touch()
    signal.pause()


class NullSink:
    def write_cloud_logging_entry(self, entry: Entry) -> None:
        pass


def record(request: dict[str, Any], place: Path) -> dict[str, Any]:
    """What one call costs the training thread; the scalar's own way to measure it."""
    library, sink = library_of(request["tool"]), request["sink"]
    given = (NullSink(),) if sink == "null" else ()
    recorder = library.GoodputRecorder(NAME, LOGGER, sink != "disabled", *given)
    statement = ORIGINAL.scalar
    found: dict[str, Any] = dict(timed({"recorder": recorder}, statement, request["seconds"], 0))
    is_original = request["tool"] == ORIGINAL.name
    return found | {"version": metadata.version(ORIGINAL.name) if is_original else ""}


# ── in the benchmark ──────────────────────────────────────────────────────────────────────────


def measure(options: Options) -> Outcome:
    sizes = SIZES[:2] if options.quick else SIZES
    found: dict[str, dict[int, Cases]] = {}
    for shape in SHAPES:
        found[shape] = {steps: measure_case(shape, steps, options) for steps in sizes}
    recorders, timed = record_costs(options), by_times(options, sizes)
    numbers = {
        "cases": found,
        "by times": timed,
        "growth": {shape: growth(cases) for shape, cases in found.items()},
        "recorder": recorders,
    }
    return Outcome([*tables(found), by_times_table(timed), _recorders(recorders)], numbers)


def measure_case(shape: str, steps: int, options: Options) -> Cases:
    rounds = 1 if options.quick else (3 if steps < 100_000 else 2)
    has_original = installed(ORIGINAL) and steps <= LARGEST_OF_THE_ORIGINAL.get(shape, steps)
    cases: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for number in range(rounds):
        request = {"mode": "memory", "shape": shape, "steps": steps, "asked": "calculator"}
        patience = 2 * LIMIT_SECONDS
        if has_original and (number == 0 or steps < SIZES[-1]):
            cases["original"].append(ask("goodput.py", ORIGINAL, request, seconds=patience))
        for asked in ASKED:
            given = ask("goodput.py", OURS, {**request, "asked": asked}, seconds=patience)
            cases[asked].append(given)
        for asked, given in ask_about_a_journal(shape, steps).items():
            cases[f"{asked}, journal"].append(given)
        compare(f"{shape}, {steps:,} steps", {way: all_[-1] for way, all_ in cases.items() if all_})
    return {way: best(all_) for way, all_ in cases.items() if all_}


def by_times(options: Options, sizes: Sequence[int]) -> dict[int, Cases]:
    """Of a log that somebody brings and that knows no cursors."""
    found: dict[int, Cases] = {}
    for steps in sizes:
        request = {"mode": "memory", "shape": "steps", "steps": steps, "log": "times"}
        askers = [("calculator", OURS, "calculator"), ("strict", OURS, "strict")]
        if installed(ORIGINAL):
            askers.insert(0, ("original", ORIGINAL, "calculator"))
        cases: Cases = {}
        for way, tool, asked in askers:
            given = {**request, "asked": asked}
            rounds = 1 if options.quick or way == "original" and steps == SIZES[-1] else 2
            cases[way] = best(
                [ask("goodput.py", tool, given, seconds=2 * LIMIT_SECONDS) for _ in range(rounds)]
            )
        expected = cases["original" if "original" in cases else "calculator"]
        what = f"a log that goes by times, {steps:,} steps"
        for told in ("told first", "told"):
            ours = cases["calculator"][told]
            _same(what, expected[told]["seconds"], ours["seconds"], SECONDS_APART)
            _same(what, expected[told]["counts"], ours["counts"], 0)
        if cases["strict"]["told"]["off_ns"]:
            raise TrialFailed(f"{what}: classes do not sum to the job's time")
        found[steps] = cases
    return found


def ask_about_a_journal(shape: str, steps: int) -> dict[str, dict[str, Any]]:
    """One process writes; when all is there the askers come, one by one; then it goes on."""
    with directory() as root, ExitStack() as stack:
        job = {"mode": "write", "shape": shape, "steps": steps, "directory": str(root)}
        writer = stack.enter_context(worker("goodput.py", python_of(OURS), job, root))
        goes_on((root / "answer.json").exists, writer, root, "writing the journal")
        askers = {asked: stack.enter_context(journal_asker(asked, root)) for asked in ASKED}
        found: dict[str, dict[str, Any]] = {}
        for asked, process in askers.items():
            has_answered = (root / asked / "answer.json").exists
            goes_on(has_answered, process, root / asked, f"{asked}: the second question")
            found[asked] = read_answer(root / asked, asked)
            found[asked]["written"] = read_answer(root, "the writer")
        return found


@contextmanager
def journal_asker(asked: str, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that has had the answer to its first question."""
    place = root / asked
    place.mkdir()
    request = {"mode": "journal", "tool": OURS.name, "asked": asked, "root": str(root)}
    request["directory"] = str(place)
    with worker("goodput.py", python_of(OURS), request, place, RUNWATCH_DIR=str(root)) as process:
        goes_on((root / f"asked-{asked}").exists, process, place, f"{asked}: the first question")
        yield process


def goes_on(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], place: Path, what: str
) -> None:
    """Wait for it as long as the process lives."""
    until(lambda: condition() or process.poll() is not None, 2 * LIMIT_SECONDS, what)
    if not condition():
        words = (place / "worker.log").read_text(errors="replace")[-2000:]
        raise TrialFailed(f"{what} failed:\n{words}")


def best(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each question the round that took the least CPU time; of memory the most."""
    finished = [one for one in rounds if "over_s" not in one]
    if not finished:
        return rounds[0]
    found = dict(finished[-1])
    for key in ("first", "nothing new", "after", "details"):
        if key in found:
            found[key] = min((one[key] for one in finished), key=lambda cost: cost["cpu_s"])
    for key in ("above_mb", "details_mb"):
        if key in found:
            found[key] = max(one[key] for one in finished)
    return found


# ── is it the same answer? ────────────────────────────────────────────────────────────────────


def compare(what: str, cases: Cases) -> None:
    """TrialFailed if two answers about the same log are not the same."""
    cases = {way: case for way, case in cases.items() if "over_s" not in case}
    expected: dict[str, Any] = cases["original" if "original" in cases else "calculator"]
    for way in DROP_INS:
        for told, unit, apart in (
            ("told first", "seconds", SECONDS_APART),
            ("told", "seconds", SECONDS_APART),
            ("told", "percent", PERCENT_APART),
            ("told first", "counts", 0),
            ("told", "counts", 0),
        ):
            _same(f"{what}: {WAYS[way]}", expected[told][unit], cases[way][told][unit], apart)
    for way in ("strict", "strict, journal"):
        told = cases[way]["told"]
        _same(f"{what}: {WAYS[way]}", expected["told"]["counts"], told["counts"], 0)
        _same(f"{what}: {WAYS[way]}", cases["strict"]["told"]["seconds"], told["seconds"], 0)
        if told["off_ns"] or cases[way]["told first"]["off_ns"]:
            raise TrialFailed(f"{what}: {WAYS[way]}: classes do not sum to the job's time")
    if expected["told"]["counts"]["disruptions"] != DISRUPTIONS:
        raise TrialFailed(f"{what}: {expected['told']['counts']} of {DISRUPTIONS} disruptions")


def _same(what: str, expected: dict[str, float], found: dict[str, float], apart: float) -> None:
    for key in expected.keys() | found.keys():
        if key == "OTHER" and "productive" in expected:
            continue  # goes on until the question is asked; its share at the end is compared
        a, b = expected.get(key, 0.0), found.get(key, 0.0)
        if not abs(a - b) <= apart:
            raise TrialFailed(f"{what}: {key} is {b}, the answer to compare it with is {a}")


# ── recorders ─────────────────────────────────────────────────────────────────────────────────

RECORDERS: Final = (
    (OURS, "journal"),
    (OURS, "null"),
    (ORIGINAL, "null"),
    (OURS, "disabled"),
    (ORIGINAL, "disabled"),
)


def record_costs(options: Options) -> dict[str, Any]:
    seconds, rounds = (0.3, 1) if options.quick else (1.0, 3)
    found: dict[str, Any] = {}
    for _ in range(rounds):
        for tool, sink in RECORDERS:
            if not installed(tool):
                continue
            request = {"mode": "record", "sink": sink, "seconds": seconds}
            given = ask("goodput.py", tool, request)
            name = f"{tool.name}, {sink}"
            if name not in found or given["p50"] < found[name]["p50"]:
                found[name] = given
    return found


def _recorders(found: dict[str, Any]) -> Table:
    head = ("record_step_start_time", "where to", "p50 µs", "p99 µs")
    table = Table("Goodput: what recording a step costs the training thread", head)
    sinks = {"journal": "its journal", "null": "a sink that drops it", "disabled": "recording off"}
    for tool, sink in RECORDERS:
        given = found.get(f"{tool.name}, {sink}")
        costs = (NOT_INSTALLED, "")
        if given is not None:
            costs = f"{given['p50']:.2f}", f"{given['p99']:.2f}"
            name = f"{tool.name} {given['version']}".strip()
        table.rows.append((name if given else tool.name, sinks[sink], *costs))
    table.notes.append(
        "Best of the rounds.  Where the original really writes to, Cloud Logging, is not here: its "
        "handler and queue come on top."
    )
    return table


def main() -> None:
    from command import run_one

    run_one(argparse.ArgumentParser(description=__doc__), work, measure)


if __name__ == "__main__":
    main()
