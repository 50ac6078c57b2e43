"""Plays recorded samples in place of devices: for tests, demonstrations and load.

A recording is a text file, one JSON value per line.  The first describes the others:

    {"format": "runwatch-replay", "version": 1, "period_seconds": 1.0,
     "units": {"gpu_power_watts": "W", …}, "devices": {"gpu0": {"name": "NVIDIA H200"}, …}}

Each of the others is one device at one moment, in order of time:

    [12.0, "gpu0", {"gpu_power_watts": 685.0, …}]

The time is in seconds from the recording's beginning.  A metric that is not in a line was not
read then: it keeps its value for two of its own periods, then it is absent.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from runwatch.agent.collectors.base import Held, Labels, Owners, Sample
from runwatch.clock import Clock, system_clock
from runwatch.errors import UsageError

FORMAT: Final = "runwatch-replay"
VERSION: Final = 1
_HOLD_PERIODS: Final = 2.0
# Copies of a device play this many periods apart, so that they do not all show the same.
_PERIODS_APART: Final = 7


@dataclass(slots=True)
class Curve:
    """One metric of one device: its values and the times at which they were read."""

    hold: float
    """How many seconds a value stays valid."""
    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def at(self, seconds: float) -> float | None:
        place = bisect_right(self.seconds, seconds) - 1
        if place < 0 or seconds - self.seconds[place] > self.hold:
            return None
        return self.values[place]

    def finish(self) -> None:
        """Set `hold`.  Some metrics are read less often: the median gap is their period."""
        gaps = [after - before for before, after in pairwise(self.seconds)]
        if gaps:
            self.hold = max(self.hold, _HOLD_PERIODS * median(gaps))


@dataclass(slots=True)
class Recording:
    period_seconds: float
    units: Mapping[str, str]
    devices: Mapping[str, Mapping[str, str]]
    """Device -> its labels."""
    curves: Mapping[str, Mapping[str, Curve]]
    """Device -> metric -> its curve."""
    seconds: float
    """How long the recording lasts, including the last sample's period."""

    def at(self, device: str, seconds: float) -> Iterator[tuple[str, float]]:
        for metric, curve in self.curves[device].items():
            value = curve.at(seconds)
            if value is not None:
                yield metric, value


def load(path: Path) -> Recording:
    try:
        with path.open(encoding="utf-8") as file:
            head = json.loads(file.readline())
            _check(head, path)
            lines = [json.loads(line) for line in file if line.strip()]
        return _recording(head, lines)
    except OSError as error:
        raise UsageError(f"cannot read the recording {path}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path} is not a recording of devices: {error}") from error


def _check(head: Any, path: Path) -> None:
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise UsageError(f"{path} is not a recording of devices: its first line names no {FORMAT}")
    if head.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {head.get('version')}; this agent reads version {VERSION}"
        )


def _recording(head: Mapping[str, Any], lines: Iterable[Any]) -> Recording:
    period = float(head["period_seconds"])
    if not period > 0:
        raise ValueError(f"period_seconds is {period}")
    curves: dict[str, dict[str, Curve]] = {str(device): {} for device in head["devices"]}
    last = 0.0
    for seconds, device, values in lines:
        for metric, value in values.items():
            curve = curves[device].setdefault(metric, Curve(_HOLD_PERIODS * period))
            curve.seconds.append(float(seconds))
            curve.values.append(float(value))
        last = max(last, float(seconds))
    for curve in (curve for metrics in curves.values() for curve in metrics.values()):
        curve.finish()
    return Recording(period, head["units"], head["devices"], curves, last + period)


def save(
    path: Path,
    *,
    period_seconds: float,
    units: Mapping[str, str],
    devices: Mapping[str, Mapping[str, str]],
    rows: Iterable[tuple[float, str, Mapping[str, float]]],
    **more: object,
) -> None:
    """`more` goes into the first line, for human readers."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "period_seconds": period_seconds,
        "units": dict(units),
        "devices": {device: dict(labels) for device, labels in devices.items()},
        **more,
    }
    with path.open("w", encoding="utf-8") as file:
        for line in (head, *rows):
            file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")


class ReplayCollector:
    """Plays a recording from its beginning, at `speed`; with `loop`, over and over.

    `devices` is how many devices to play: those recorded, then copies of them.  For many hosts make
    one collector for each, with its own `shift_seconds`.
    """

    name = "replay"

    def __init__(
        self,
        recording: Recording,
        owners: Owners,
        *,
        period_seconds: float = 1.0,
        devices: int = 0,
        speed: float = 1.0,
        loop: bool = True,
        shift_seconds: float = 0.0,
        clock: Clock = system_clock,
    ) -> None:
        self.period_seconds = period_seconds
        self._recording = recording
        self._owners = owners
        self._speed = speed
        self._loop = loop
        self._clock = clock
        self._begun_ns: int | None = None
        self._shift = shift_seconds
        self._played = list(_copies(recording, devices))
        self._is_told = False

    def collect(self) -> Iterator[Sample]:
        if not self._is_told:
            self._is_told = True
            self._owners.tell(self.name, [each.held for each in self._played])
        now = self._clock.mono_ns()
        self._begun_ns = now if self._begun_ns is None else self._begun_ns
        played = (now - self._begun_ns) / 1e9 * self._speed + self._shift
        if not self._loop and played >= self._recording.seconds:
            return
        for each in self._played:
            yield from self._of(each, played)

    def _of(self, each: _Played, played: float) -> Iterator[Sample]:
        owner = self._owners.of(each.held.device)
        labels = each.labels.with_owner(owner)
        units = self._recording.units
        place = (played + each.shift) % self._recording.seconds
        for metric, value in self._recording.at(each.recorded, place):
            unit = units.get(metric, "")
            yield Sample(metric, value, unit, each.held.device, labels, owner.scope)

    def close(self) -> None:
        self._owners.tell(self.name, ())


@dataclass(slots=True)
class _Played:
    recorded: str
    held: Held
    labels: Labels
    shift: float


def _copies(recording: Recording, count: int) -> Iterator[_Played]:
    recorded = list(recording.devices)
    for place in range(count or len(recorded)):
        copy, which = divmod(place, len(recorded))
        source = recorded[which]
        labels = dict(recording.devices[source])
        device = source if not copy else f"{source.rstrip('0123456789')}{place}"
        uuid = labels.get("uuid", "")
        if copy:
            labels["index"] = str(place)
            labels["uuid"] = uuid = f"{uuid or source}-copy{copy}"
        held = Held(device, place, uuid, None, (), ("CUDA_VISIBLE_DEVICES",))
        shift = copy * _PERIODS_APART * recording.period_seconds
        yield _Played(source, held, Labels(labels), shift)
