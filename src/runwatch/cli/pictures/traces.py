"""The summary of a profile's traces for the terminal: where the time went, in which operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from runwatch.cli.pictures import tables
from runwatch.cli.pictures.moments import fine_duration, size
from runwatch.traces.summary import Operation, SessionSummary, Split, Steps, Summary, label

WIDEST: Final = 120
_PARTS: Final = (
    ("compute", "green", "█"),
    ("communication", "magenta", "▓"),
    ("host", "yellow", "▒"),
    ("idle", "bright_black", "░"),
)
"""Words, style, and a sign for terminals without colours."""


def show_summary(session: SessionSummary, console: Console, *, top: int = 10) -> None:
    console.print(picture(session, console.width, top=top))


def picture(session: SessionSummary, width: int, *, top: int = 10) -> RenderableType:
    width = min(width, WIDEST)
    if not session.traces:
        return Text("no trace", style="dim")
    parts: list[RenderableType] = [_headline(session)]
    if session.split is not None and session.split.window_ns:
        parts += [Text(""), bar(session.split, width), _legend(session.split)]
    parts += [Text(""), *_facts(session)]
    parts += [Text(f"▲ {problem}", style="bold yellow") for problem in session.problems]
    if len(session.traces) > 1:
        parts += [Text(""), _rank_table(session.traces)]
    for title, operations in _operation_lists(session.traces):
        if operations:
            parts += [Text(""), _operation_table(title, operations[:top], operations, width)]
    return Group(*parts)


# ── the split ─────────────────────────────────────────────────────────────────────────────────


def bar(split: Split, width: int) -> Text:
    """Exactly `width` signs; every part that is not zero gets at least one."""
    drawn = Text(no_wrap=True)
    for (_, style, sign), cells in zip(_PARTS, _cells(split, width), strict=True):
        drawn.append(sign * cells, style=style)
    return drawn


def _cells(split: Split, width: int) -> list[int]:
    times = _times(split)
    cells = [max(round(width * time / split.window_ns), time > 0) for time in times]
    cells[cells.index(max(cells))] += width - sum(cells)
    return cells


def _times(split: Split) -> tuple[int, int, int, int]:
    return split.compute_ns, split.communication_ns, split.host_ns, split.idle_ns


def _legend(split: Split) -> Text:
    line = Text()
    for (word, style, sign), time in zip(_PARTS, _times(split), strict=True):
        line.append(f"{sign} ", style=style).append(f"{word} {100 * time / split.window_ns:.1f} %")
        line.append("  ")
    line.rstrip()
    return line


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def _headline(session: SessionSummary) -> Text:
    first = session.traces[0]
    kinds = " + ".join(dict.fromkeys(trace.kind for trace in session.traces))
    count = len(session.traces)
    name = label(first) if count == 1 else f"{count:,} traces"
    line = Text(name, style="bold").append(f" · {kinds}", style="not bold")
    if first.compute_on == "cpu":
        line.append(" · processor only", style="not bold")
    if first.steps is not None:
        line.append(f" · {_steps(first.steps)}", style="not bold")
    return line.append(f" · window {fine_duration(first.window_ns)}", style="not bold")


def _steps(steps: Steps) -> str:
    if steps.count == 1:
        return f"1 step, {fine_duration(steps.mean_ns)}"
    return (
        f"{steps.count:,} steps of {fine_duration(steps.mean_ns)} "
        f"(p50 {fine_duration(steps.p50_ns)}, longest {fine_duration(steps.max_ns)})"
    )


def _facts(session: SessionSummary) -> Iterable[Text]:
    facts = [*_device_facts(session), *_other_facts(session.traces)]
    yield Text(" · ".join(facts) if facts else "the trace has no data on devices or input")
    if session.slowest_mean_step_ns and session.fastest_mean_step_ns:
        more = 100 * (session.slowest_mean_step_ns / session.fastest_mean_step_ns - 1)
        step = fine_duration(session.slowest_mean_step_ns)
        yield Text(f"slowest: {session.slowest}, {step} a step, {more:.1f} % above the fastest")
    if session.windows_overlap_percent is not None:
        overlap = f"{session.windows_overlap_percent:.1f} %"
        yield Text(f"captured at the same time: {overlap} of the longest window")


def _device_facts(session: SessionSummary) -> Iterable[str]:
    if session.device_idle_percent is not None and session.device_idle_spread is not None:
        low, high = session.device_idle_spread
        spread = f" ({low:.1f}–{high:.1f})" if high > low else ""
        yield f"device idle {session.device_idle_percent:.1f} %{spread}"
    kernels = [trace.kernels for trace in session.traces if trace.kernels is not None]
    if kernels:
        yield f"{sum(kernels):,} kernels"


def _other_facts(traces: Sequence[Summary]) -> Iterable[str]:
    waits = [t.input_bound_percent for t in traces if t.input_bound_percent is not None]
    if waits:
        yield f"waiting for input {sum(waits) / len(waits):.1f} %"
    sent = [t.collective_ns for t in traces if t.collective_ns]
    if sent:
        yield f"collectives {fine_duration(sum(sent) // len(sent))}"
    peaks = [t.memory_peak_bytes for t in traces if t.memory_peak_bytes is not None]
    if peaks:
        yield f"memory peak {size(max(peaks))}"


# ── tables ────────────────────────────────────────────────────────────────────────────────────


def _rank_table(traces: Sequence[Summary]) -> RenderableType:
    right = ("step", "device idle", "kernels")
    shown = tables.table("trace", "step", "", "device idle", "kernels", right=right, fold="trace")
    for trace in traces:
        steps, idle = trace.steps, trace.device_idle_percent
        shown.add_row(
            label(trace),
            "–" if steps is None else fine_duration(steps.mean_ns),
            bar(trace.split, 30) if trace.split and trace.split.window_ns else Text("–"),
            "–" if idle is None else f"{idle:.1f} %",
            "–" if trace.kernels is None else f"{trace.kernels:,}",
        )
    return shown


def _operation_lists(traces: Sequence[Summary]) -> Iterable[tuple[str, list[Operation]]]:
    yield "on the device", _together(trace.device_operations for trace in traces)
    yield "on the host", _together(trace.host_operations for trace in traces)


def _together(lists: Iterable[Sequence[Operation]]) -> list[Operation]:
    """Sums over all traces.  A trace lists only its longest operations, so small sums may miss
    some."""
    sums: dict[str, Operation] = {}
    for each in (operation for operations in lists for operation in operations):
        known = sums.get(each.name, Operation(each.name, 0, 0, 0))
        count, total = known.count + each.count, known.total_ns + each.total_ns
        sums[each.name] = Operation(each.name, count, total, known.self_ns + each.self_ns)
    return sorted(sums.values(), key=lambda operation: -operation.self_ns)


def _operation_table(
    title: str, top: Sequence[Operation], listed: Sequence[Operation], width: int
) -> RenderableType:
    head = (f"operations {title}", "self", "of these", "calls", "mean")
    shown = tables.table(*head, right=head[1:])
    whole = sum(operation.self_ns for operation in listed)
    room = max(20, width - 44)
    for each in top:
        name = Text(each.name, no_wrap=True)
        name.truncate(room, overflow="ellipsis")
        share = f"{100 * each.self_ns / whole:.1f} %" if whole else "–"
        mean = fine_duration(each.total_ns // max(1, each.count))
        shown.add_row(name, fine_duration(each.self_ns), share, f"{each.count:,}", mean)
    return shown
