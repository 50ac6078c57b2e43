"""One summary for traces of every kind, and one for all traces of a profile.

None means that a trace does not say; it never means zero.  Times are whole nanoseconds.  The four
parts of a split add up to its window exactly.  `account.py` has the rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runwatch.traces.opening import BadTrace, Limits, recognise

__all__ = ["BadTrace", "Limits", "SessionSummary", "Summary", "combine", "summarise"]


@dataclass(frozen=True)
class Split:
    compute_ns: int
    communication_ns: int
    """Only the part without compute at the same time."""
    host_ns: int
    idle_ns: int

    @property
    def window_ns(self) -> int:
        return self.compute_ns + self.communication_ns + self.host_ns + self.idle_ns


@dataclass(frozen=True)
class Steps:
    count: int
    first: int
    last: int
    mean_ns: int
    p50_ns: int
    max_ns: int


@dataclass(frozen=True)
class Operation:
    name: str
    count: int
    total_ns: int
    self_ns: int


@dataclass(frozen=True)
class Device:
    number: int
    kernels: int
    split: Split
    idle_percent: float
    collective_ns: int
    copy_ns: int
    """Between host and device."""


@dataclass(frozen=True)
class Summary:
    kind: str
    """"kineto", "chrome" or "xplane"."""
    file: str
    host: str
    rank: int | None
    size_bytes: int
    events: int
    captured_start_ns: int | None
    """Wall time of the first event; None if the trace does not say."""
    captured_end_ns: int | None
    window_start_ns: int | None
    """The split covers the window: from the first step to the last, or the whole capture."""
    window_end_ns: int | None
    window_ns: int
    steps: Steps | None
    split: Split | None
    """The mean over the devices; None if nothing was recorded."""
    compute_on: str
    """"device"; "cpu" if no device has events (operators on the processor count); or ""."""
    devices: tuple[Device, ...]
    device_idle_percent: float | None
    kernels: int | None
    collective_ns: int | None
    input_bound_percent: float | None
    memory_peak_bytes: int | None
    memory_peaks: Mapping[str, int]
    device_operations: tuple[Operation, ...]
    host_operations: tuple[Operation, ...]
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Summary:
        """Ignores fields of later versions."""
        fields = _known(cls, body)
        fields["steps"] = _read(Steps, body.get("steps"))
        fields["split"] = _read(Split, body.get("split"))
        fields["devices"] = tuple(
            Device(**{**_known(Device, each), "split": Split(**_known(Split, each["split"]))})
            for each in body["devices"]
        )
        for name in ("device_operations", "host_operations"):
            fields[name] = tuple(Operation(**_known(Operation, each)) for each in body[name])
        fields["problems"] = tuple(body["problems"])
        return cls(**fields)


def _known(shape: type, body: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in dataclasses.fields(shape)}
    return {name: value for name, value in body.items() if name in names}


def _read(shape: type, body: Mapping[str, Any] | None) -> Any:
    return None if body is None else shape(**_known(shape, body))


def summarise(
    path: Path | str, *, host: str = "", rank: int | None = None, limits: Limits | None = None
) -> Summary:
    """Summarise the trace in this file.  Pass `host` and `rank` if you know them better.

    Raises BadTrace for a file that is not a trace, is damaged, or exceeds `limits`.
    """
    path = Path(path)
    kind = recognise(path, limits or Limits())
    from runwatch.traces import figures  # imports numpy

    return figures.summary(path, kind, limits or Limits(), host=host, rank=rank)


# ── several ranks ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class SessionSummary:
    traces: tuple[Summary, ...]
    split: Split | None
    """The mean over the traces."""
    slowest: str
    """The trace with the longest mean step, as "host rank 3"; empty if fewer than two have
    steps."""
    slowest_mean_step_ns: int | None
    fastest_mean_step_ns: int | None
    device_idle_percent: float | None
    device_idle_spread: tuple[float, float] | None
    """The lowest and the highest of all traces."""
    windows_overlap_percent: float | None
    """The time that all captures share, as a share of the longest; None without wall times."""
    problems: tuple[str, ...]
    """Each begins with the label of its trace."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SessionSummary:
        fields = _known(cls, body)
        fields["traces"] = tuple(Summary.from_json(each) for each in body["traces"])
        fields["split"] = _read(Split, body.get("split"))
        spread = body.get("device_idle_spread")
        fields["device_idle_spread"] = None if spread is None else (spread[0], spread[1])
        fields["problems"] = tuple(body["problems"])
        return cls(**fields)


def combine(summaries: Sequence[Summary]) -> SessionSummary:
    idle = [s.device_idle_percent for s in summaries if s.device_idle_percent is not None]
    stepping = [s for s in summaries if s.steps is not None]
    means = [s.steps.mean_ns for s in stepping if s.steps is not None]
    several = len(stepping) > 1
    return SessionSummary(
        traces=tuple(summaries),
        split=mean_split([s.split for s in summaries if s.split is not None]),
        slowest=label(stepping[means.index(max(means))]) if several else "",
        slowest_mean_step_ns=max(means) if several else None,
        fastest_mean_step_ns=min(means) if several else None,
        device_idle_percent=sum(idle) / len(idle) if idle else None,
        device_idle_spread=(min(idle), max(idle)) if idle else None,
        windows_overlap_percent=_overlap_percent(summaries),
        problems=tuple(f"{label(s)}: {problem}" for s in summaries for problem in s.problems),
    )


def label(summary: Summary) -> str:
    """The name of a trace among others."""
    rank = "" if summary.rank is None else f"rank {summary.rank}"
    return " ".join(word for word in (summary.host, rank) if word) or Path(summary.file).name


def mean_split(splits: Sequence[Split]) -> Split | None:
    """Rounded so that it adds up to the mean window."""
    if not splits:
        return None
    window = sum(split.window_ns for split in splits) // len(splits)
    parts = [
        sum(getattr(split, field.name) for split in splits) // len(splits)
        for field in dataclasses.fields(Split)
    ]
    parts[parts.index(max(parts))] += window - sum(parts)
    return Split(*parts)


def _overlap_percent(summaries: Sequence[Summary]) -> float | None:
    windows = [(s.captured_start_ns, s.captured_end_ns) for s in summaries]
    known = [(begin, end) for begin, end in windows if begin is not None and end is not None]
    if len(known) < 2 or len(known) < len(windows):
        return None
    longest = max(end - begin for begin, end in known)
    shared = min(end for _, end in known) - max(begin for begin, _ in known)
    return 100 * max(0, shared) / longest if longest else None
