"""The tables of `goodput.py`: what a question cost, how that grows, and which bars are met."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from report import Table
from trial import NOT_INSTALLED

LARGEST_OF_THE_ORIGINAL: Final = {"custom": 100_000}
"""Its rule for custom events is quadratic: 300,000 steps take more than five minutes."""
FIRST_TIMES, AFTER_TIMES, MEMORY_MB, EXPONENT = 20.0, 1000.0, 50.0, 1.15

Cases = dict[str, Any]
"""By who was asked (`WAYS`): the best of the rounds."""

WAYS: Final = {
    "original": "the original",
    "calculator": "ours",
    "strict": "ours, strict account",
    "calculator, journal": "ours, journal",
    "strict, journal": "ours, journal, strict account",
}
DROP_INS: Final = ("calculator", "calculator, journal")

Found = dict[str, dict[int, Cases]]


def tables(found: Found) -> list[Table]:
    return [table(found) for table in (_bars, _firsts, _afters, _deviations, _memory)]


def cpu(case: dict[str, Any], question: str) -> float:
    return float(case[question]["cpu_s"])


def times(cases: Cases, way: str, *questions: str) -> float | None:
    """How many times the original's CPU time is ours; None if it was not asked."""
    original = cases.get("original", {"over_s": 0})
    if "over_s" in original:
        return None
    theirs, ours = (sum(cpu(case, q) for q in questions) for case in (original, cases[way]))
    return theirs / ours


def slope(cases: dict[int, Cases], way: str) -> float | None:
    """Of CPU time against the job's length, both logarithmic, without the shortest job."""
    sizes = [n for n in cases if way in cases[n] and "over_s" not in cases[n][way]]
    sizes = sizes[1:] if len(sizes) > 2 else sizes
    if len(sizes) < 2:
        return None
    x = [math.log(n) for n in sizes]
    y = [math.log(cpu(cases[n][way], "first")) for n in sizes]
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    return rise / sum((a - middle_x) ** 2 for a in x)


def growth(cases: dict[int, Cases]) -> dict[str, float | None]:
    return {way: slope(cases, way) for way in WAYS}


def _absent(way: str, shape: str, steps: int) -> str:
    is_too_long = steps > LARGEST_OF_THE_ORIGINAL.get(shape, steps)
    return "not asked" if way == "original" and is_too_long else NOT_INSTALLED


def _rows(found: Found, cell: Callable[[Cases, str], str]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for shape, sizes in found.items():
        for steps, cases in sizes.items():
            cells = [_cell(cases, way, shape, steps, cell) for way in WAYS]
            rows.append((f"{shape} {steps:,}", *cells))
    return rows


def _cell(cases: Cases, way: str, shape: str, steps: int, cell: Callable[[Cases, str], str]) -> str:
    if way not in cases:
        return _absent(way, shape, steps)
    if "over_s" in cases[way]:
        return f"over {cases[way]['over_s']} s"
    return cell(cases, way)


def _first_cell(cases: Cases, way: str) -> str:
    took = cases[way]["first"]
    return f"{took['cpu_s']:,.3f} / {took['wall_s']:,.3f}{_in_brackets(cases, way, 'first')}"


def _after_cell(cases: Cases, way: str) -> str:
    return f"{cpu(cases[way], 'after') * 1e3:,.2f}{_in_brackets(cases, way, 'after')}"


def _in_brackets(cases: Cases, way: str, question: str) -> str:
    ratio = None if way == "original" else times(cases, way, question)
    return "" if ratio is None else f" ({ratio:,.0f}×)"


def _firsts(found: Found) -> Table:
    table = Table("Goodput: the first question", ("CPU s / wall s", *WAYS.values()))
    table.rows += _rows(found, _first_cell)
    table.notes += [
        "In brackets: how many times the CPU time of the original, which reads the same list of "
        "entries.",
        "Best of 3 processes (2 from 100,000 steps on, 1 of the original at a million; 1 of each "
        "for a quick look).  The original is quadratic in custom events: it is not asked about "
        f"more than {LARGEST_OF_THE_ORIGINAL['custom']:,} steps with them.",
    ]
    return table


def _afters(found: Found) -> Table:
    head = ("after 100 more steps, CPU ms", *WAYS.values())
    table = Table("Goodput: the next question", head)
    table.rows += _rows(found, _after_cell)
    idle = [f"{WAYS[way]} {1e3 * most:.2f} ms" for way, most in _idle(found).items()]
    table.notes.append(f"With nothing new, the longest of any job: {'; '.join(idle)}.")
    return table


def _idle(found: Found) -> dict[str, float]:
    most: dict[str, float] = {}
    for cases in (cases for sizes in found.values() for cases in sizes.values()):
        for way, case in cases.items():
            if "over_s" not in case:
                most[way] = max(most.get(way, 0.0), cpu(case, "nothing new"))
    return most


def by_times_table(found: dict[int, Cases]) -> Table:
    """A log that somebody brings and that goes by times alone."""
    ways = ("original", "calculator", "strict")
    questions = {"first": "first", "nothing new": "nothing new", "after": "100 more"}
    head = ("CPU ms", *(f"{WAYS[way]}: {asked}" for way in ways for asked in questions.values()))
    table = Table("Goodput: a log that goes by times", head)
    for steps, cases in found.items():
        cells = [
            f"{1e3 * cpu(cases[way], question):,.2f}" if _has(cases, way) else NOT_INSTALLED
            for way in ways
            for question in questions
        ]
        table.rows.append((f"steps {steps:,}", *cells))
    table.notes.append(
        "The log takes start and end times and does not look at cursors, as the one that the "
        "original's own tests bring."
    )
    return table


def _has(cases: Cases, way: str) -> bool:
    return way in cases and "over_s" not in cases[way]


def _memory_cell(cases: Cases, way: str) -> str:
    return f"{cases[way]['before_mb']:,.0f} + {cases[way]['above_mb']:,.1f}"


def _memory(found: Found) -> Table:
    head = ("resident MB, before + at most", *WAYS.values(), "journal")
    table = Table("Goodput: memory", head)
    all_cases = [cases for sizes in found.values() for cases in sizes.values()]
    for row, cases in zip(_rows(found, _memory_cell), all_cases, strict=True):
        written = cases["calculator, journal"]["written"]
        table.rows.append((*row, f"{written['mb']:.0f} MB, {written['entries']:,} entries"))
    table.notes.append(
        "Before the first question (imports, and the log where it is in memory), and the highest "
        "above that during all three."
    )
    return table


def _deviations(found: Found) -> Table:
    """The original's question measures them each time; ours is to be asked."""
    head = ("job", "asked", "details, CPU s", "first with them", "next with them", "MB with them")
    table = Table("Goodput: with every step's deviation from the ideal", head)
    for shape, sizes in found.items():
        steps = _largest_of_both(sizes)
        for way in ("original", *DROP_INS):
            if way in sizes[steps] and "over_s" not in sizes[steps][way]:
                cells = _deviation_cells(sizes[steps], way)
                table.rows.append((f"{shape} {steps:,}", WAYS[way], *cells))
    table.notes.append(
        "`get_job_goodput_details`: the original has measured the deviations in `get_job_goodput` "
        "already, ours does so now, for the whole job each time.  Times are those of both calls "
        "together against the original's."
    )
    return table


def _deviation_cells(cases: Cases, way: str) -> Sequence[str]:
    both = [times(cases, way, question, "details") for question in ("first", "after")]
    ratios = ["" if way == "original" else _figure(ratio, ",.0f", "×") for ratio in both]
    case = cases[way]
    return f"{cpu(case, 'details'):.3f}", *ratios, f"{case['details_mb']:,.1f}"


def _bars(found: Found) -> Table:
    head = (
        "largest job that both can do",
        "asked",
        f"first question ≥ {FIRST_TIMES:g}×",
        f"100 steps more ≥ {AFTER_TIMES:g}×",
        f"memory < {MEMORY_MB:g} MB",
        f"growth ≤ {EXPONENT:g}",
    )
    table = Table("Goodput: bars", head)
    for shape, sizes in found.items():
        table.rows += [_bars_of(shape, sizes, way) for way in WAYS]
    table.notes.append(
        f"Memory is that of {max(found['steps']):,} steps.  Growth is the slope of log CPU time "
        "of the first question against log steps from 10,000 on; 1 is linear.  The bars are for a "
        "million steps; the strict account has none for speed, it answers another question."
    )
    return table


def _largest_of_both(sizes: dict[int, Cases]) -> int:
    """The largest job that the original was asked about, else that ours was."""
    asked = [steps for steps in sizes if times(sizes[steps], "calculator", "first")]
    return max(asked or sizes)


def _bars_of(shape: str, sizes: dict[int, Cases], way: str) -> Sequence[str]:
    both = _largest_of_both(sizes)
    job, exponent = f"{shape} {both:,}", slope(sizes, way)
    if way == "original":
        return job, WAYS[way], "", "", "", _figure(exponent, ".2f")
    above = sizes[max(sizes)][way]["above_mb"]
    return (
        job,
        WAYS[way],
        _speed(sizes[both], way, "first", FIRST_TIMES),
        _speed(sizes[both], way, "after", AFTER_TIMES),
        _figure(above, ".1f", " MB", is_met=above < MEMORY_MB),
        _figure(exponent, ".2f", is_met=exponent is None or exponent <= EXPONENT),
    )


def _speed(cases: Cases, way: str, question: str, bar: float) -> str:
    ratio = times(cases, way, question)
    is_met = ratio is not None and ratio >= bar
    form = ",.0f" if ratio is None or ratio >= 100 else ".1f"  # 19.8 must not read as 20
    return _figure(ratio, form, "×", is_met=is_met if way in DROP_INS else None)


def _figure(value: float | None, form: str, unit: str = "", *, is_met: bool | None = None) -> str:
    """With a verdict, unless there is no bar (None)."""
    if value is None:
        return ""
    verdict = {None: "", True: " pass", False: " MISSED"}[is_met]
    return f"{value:{form}}{unit}{verdict}"
