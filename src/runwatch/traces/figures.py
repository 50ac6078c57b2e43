"""From a reader's result to the figures of a summary."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Final

import numpy as np

from runwatch.traces import intervals, kineto, xplane
from runwatch.traces.account import HOST, Account, Reading, Step, Totals
from runwatch.traces.intervals import Spans
from runwatch.traces.names import Work, is_launch, kernel_name, shorten, step_number
from runwatch.traces.opening import BadTrace, Kind, Limits
from runwatch.traces.summary import Device, Operation, Split, Steps, Summary, mean_split

TOP: Final = 20
_NOTHING: Final = Split(0, 0, 0, 0)
_SUBSCRIBERS: Final = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS"
_HOST_WORK: Final = (Work.COMPUTE, Work.COMMUNICATION, Work.HOST, Work.INPUT)
_FILE: Final = re.compile(
    r"(.+?)(?:[._-]rank\d+)?(?:\.pt|\.\d+\.pt)?\.(?:xplane\.pb|trace\.json(?:\.gz)?)$"
)
_RANK: Final = re.compile(r"(?:^|[._-])rank[._-]?(\d{1,6})(?=[._-]|$)")


def summary(path: Path, kind: Kind, limits: Limits, *, host: str, rank: int | None) -> Summary:
    reading = _read(path, kind, limits)
    steps = _main_steps(reading.steps)
    window = _window(reading.account, steps)
    devices = [_device(reading.account, device, window) for device in reading.account.devices]
    split = mean_split([d.split for d in devices]) or _processor_split(reading.account, window)
    offset = reading.wall_offset_ns
    begin, end = reading.account.begin_ns, reading.account.end_ns
    count = len(devices)
    return Summary(
        kind=reading.kind,
        file=str(path),
        host=host or reading.host or _host_of(path),
        rank=rank if rank is not None else _rank(reading, path),
        size_bytes=path.stat().st_size,
        events=reading.account.events,
        captured_start_ns=_wall(begin, offset),
        captured_end_ns=_wall(end, offset),
        window_start_ns=_wall(window[0], offset) if split else None,
        window_end_ns=_wall(window[1], offset) if split else None,
        window_ns=window[1] - window[0],
        steps=_steps(steps),
        split=split,
        compute_on="device" if devices else "cpu" if split else "",
        devices=tuple(devices),
        device_idle_percent=sum(d.idle_percent for d in devices) / count if devices else None,
        kernels=sum(d.kernels for d in devices) if devices else None,
        collective_ns=_collective_ns(reading.account, devices, window),
        input_bound_percent=_input_percent(reading.account, window),
        memory_peak_bytes=_memory_peak(reading.memory),
        memory_peaks=dict(sorted(reading.memory.items())),
        device_operations=_operations(reading, is_device=True),
        host_operations=_operations(reading, is_device=False),
        problems=tuple(dict.fromkeys([*reading.problems, *_problems(reading)])),
    )


def _read(path: Path, kind: Kind, limits: Limits) -> Reading:
    try:
        return xplane.read(path, limits) if kind == "xplane" else kineto.read(path, kind, limits)
    except BadTrace as error:
        if str(path) in str(error):
            raise
        raise BadTrace(f"{path}: {error}") from error


# ── steps and window ──────────────────────────────────────────────────────────────────────────


def _main_steps(marked: Iterable[Step]) -> list[Step]:
    """Steps of the annotation with the most time; a step marked by several threads is one."""
    groups: dict[str, dict[int, Step]] = defaultdict(dict)
    for step in marked:
        known = groups[step.of].get(step.number)
        if known is not None:
            begin, end = min(known.start_ns, step.start_ns), max(known.end_ns, step.end_ns)
            step = Step(step.number, begin, end, step.of)
        groups[step.of][step.number] = step
    most = max(groups.values(), key=lambda g: sum(_lasted(s) for s in g.values()), default={})
    return sorted(most.values(), key=lambda step: step.start_ns)


def _lasted(step: Step) -> int:
    return step.end_ns - step.start_ns


def _steps(steps: list[Step]) -> Steps | None:
    if not steps:
        return None
    lasted = sorted(_lasted(step) for step in steps)
    numbers = [step.number for step in steps]
    mean, middle = sum(lasted) // len(lasted), lasted[(len(lasted) - 1) // 2]
    return Steps(len(steps), min(numbers), max(numbers), mean, middle, lasted[-1])


def _window(account: Account, steps: list[Step]) -> tuple[int, int]:
    if steps and (end := max(step.end_ns for step in steps)) > steps[0].start_ns:
        return steps[0].start_ns, end
    return account.begin_ns or 0, account.end_ns or 0


# ── where the time of the window went ─────────────────────────────────────────────────────────


def _device(account: Account, device: int, window: tuple[int, int]) -> Device:
    split, collective_ns, copy_ns = _NOTHING, 0, 0
    for part in account.slices(window):
        compute = account.within(part, device, Work.COMPUTE)
        collective = account.within(part, device, Work.COMMUNICATION)
        copying = account.within(part, device, Work.COPY)
        waiting = account.within(part, device, Work.INPUT)
        host = account.within(part, HOST, *_HOST_WORK)
        host = intervals.together([host, copying, waiting])
        split = _added(split, _split(part, compute, collective, host))
        collective_ns += collective.total_ns
        copy_ns += copying.total_ns
    idle = 100 * (split.host_ns + split.idle_ns) / split.window_ns if split.window_ns else 0.0
    return Device(device, account.kernels[device], split, idle, collective_ns, copy_ns)


def _processor_split(account: Account, window: tuple[int, int]) -> Split | None:
    """Without a device, operators are compute unless they prepare the next batch."""
    if window[1] <= window[0]:
        return None
    split = _NOTHING
    for part in account.slices(window):
        preparing = account.within(part, HOST, Work.INPUT)
        compute = intervals.without(account.within(part, HOST, Work.COMPUTE), preparing)
        collective = account.within(part, HOST, Work.COMMUNICATION)
        host = intervals.together([account.within(part, HOST, Work.HOST), preparing])
        split = _added(split, _split(part, compute, collective, host))
    return split


def _added(one: Split, other: Split) -> Split:
    return Split(*(a + b for a, b in zip(astuple(one), astuple(other), strict=True)))


def _split(window: tuple[int, int], compute: Spans, collective: Spans, host: Spans) -> Split:
    """Every moment counts once: as compute, else as communication, else as host, else as idle."""
    exposed = intervals.without(collective, compute)
    busy = intervals.together([compute, exposed])
    alone = intervals.without(host, busy)
    taken = (compute.total_ns, exposed.total_ns, alone.total_ns)
    return Split(*taken, window[1] - window[0] - sum(taken))


def _collective_ns(account: Account, devices: list[Device], window: tuple[int, int]) -> int | None:
    if devices:
        return sum(device.collective_ns for device in devices) // len(devices)
    host_ns = account.within(window, HOST, Work.COMMUNICATION).total_ns
    return host_ns or None


def _input_percent(account: Account, window: tuple[int, int]) -> float | None:
    """Share of the window spent waiting for a batch while no device works; None if unmarked."""
    marked = [place for place in (HOST, *account.devices) if (place, Work.INPUT) in account.work]
    if not marked or window[1] <= window[0]:
        return None
    waiting_ns = 0
    for part in account.slices(window):
        waiting = [account.within(part, place, Work.INPUT) for place in marked]
        busy = [account.within(part, d, Work.COMPUTE, Work.COMMUNICATION) for d in account.devices]
        alone = intervals.without(intervals.together(waiting), intervals.together(busy))
        waiting_ns += alone.total_ns
    return 100 * waiting_ns / (window[1] - window[0])


# ── the rest ──────────────────────────────────────────────────────────────────────────────────


def _operations(reading: Reading, *, is_device: bool) -> tuple[Operation, ...]:
    """Sums over the whole capture; one name in several categories is one operation."""
    totals = reading.account.totals[is_device]
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for number in np.flatnonzero(totals.count[: len(reading.names)]).tolist():
        name = reading.names[number]
        if name not in reading.hidden and step_number(name) is None:
            for place, column in enumerate((totals.count, totals.total_ns, totals.self_ns)):
                sums[name][place] += int(column[number])
    top = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))[:TOP]
    show = kernel_name if is_device else shorten
    return tuple(Operation(show(name), *numbers) for name, numbers in top if numbers[2])


def _memory_peak(memory: dict[str, int]) -> int | None:
    """The peak of the device that used most; the processor's only if there is no device."""
    devices = [used for where, used in memory.items() if where != "cpu"]
    return max(devices or memory.values(), default=None)


def _problems(reading: Reading) -> list[str]:
    problems = []
    account = reading.account
    if not account.events:
        problems.append("the trace is empty: the profiler recorded nothing while it was on")
    launches = _launches(account.totals[False], reading.names)
    if launches and not account.devices:
        problems.append(
            f"{launches:,} kernels were launched, but no device event was recorded: is another "
            "profiler (or a second framework) using CUPTI, or is access to GPU counters denied?"
        )
    if any(_SUBSCRIBERS in problem for problem in reading.problems):
        problems.append(
            "no device events: another profiler in this process holds CUPTI, which serves one at a "
            "time; capture with one framework's profiler only"
        )
    return problems


def _launches(totals: Totals, names: list[str]) -> int:
    numbers = np.flatnonzero(totals.count[: len(names)]).tolist()
    return sum(int(totals.count[number]) for number in numbers if is_launch(names[number]))


def _wall(time_ns: int | None, offset_ns: int | None) -> int | None:
    return None if time_ns is None or offset_ns is None else time_ns + offset_ns


def _host_of(path: Path) -> str:
    """The host in `<host>.xplane.pb` or `<host>.rank3.trace.json.gz`; else empty."""
    match = _FILE.match(path.name)
    return match[1] if match else ""


def _rank(reading: Reading, path: Path) -> int | None:
    named = _RANK.search(path.name)
    return reading.rank if reading.rank is not None or named is None else int(named[1])
