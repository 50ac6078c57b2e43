"""What a collector is, what it yields, and which run a device belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from runwatch.clock import Clock
from runwatch.record.message import Message

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Target(NamedTuple):
    """A live process of a run."""

    pid: int
    scope: int
    """The agent's number for its run."""
    labels: Mapping[str, str] = NOTHING
    run: str = ""
    start_ticks: int = 0
    host: str = ""
    """The process's own name for its host: in a pod, not the agent's."""
    uid: int | None = None
    """The user of the process and its journal; None: not known."""

    @property
    def rank(self) -> int:
        text = self.labels.get("rank", "0")
        return int(text) if text.lstrip("-").isdigit() else 0


Targets = Callable[[], Iterable[Target]]


class Sample(NamedTuple):
    metric: str
    value: float
    unit: str
    device: str = ""
    labels: Mapping[str, str] = NOTHING
    scope: int = 0
    """The agent's number for its run; 0 is the host itself."""


class Notice(NamedTuple):
    """Something that happened to a device.  The agent records it as an event of the owner's run."""

    device: str
    message: Message


Reading = Sample | Notice


class Collector(Protocol):
    @property
    def name(self) -> str: ...
    def collect(self) -> Iterable[Reading]: ...


class DeviceCollector(Collector, Protocol):
    """Reads devices in its own thread, since a call into a driver may hang."""

    @property
    def period_seconds(self) -> float: ...
    def close(self) -> None: ...


# ── owners of devices ─────────────────────────────────────────────────────────────────────────


class Held(NamedTuple):
    """A device and the processes that have it open, according to its driver."""

    device: str
    number: int
    """Its place in the driver's order."""
    uuid: str
    pids: frozenset[int] | None
    """None if the driver cannot tell."""
    nodes: tuple[str, ...] = ()
    """A process that uses such a device has a file open whose name begins with one of these."""
    variables: tuple[str, ...] = ()
    """Environment variables that say which devices a process may use."""


class Owner(NamedTuple):
    scope: int = 0
    labels: Mapping[str, str] = NOTHING
    how: str = ""
    """How we know: "process", "process tree" or "environment"."""


NOBODY: Final = Owner()


class Owners(Protocol):
    def tell(self, source: str, held: Iterable[Held]) -> None:
        """Tell all devices of one source, and which processes have them open now."""

    def of(self, device: str) -> Owner:
        """Returns the same object as long as the owner stays the same."""

    def of_process(self, pid: int) -> Owner | None: ...


class Devices(NamedTuple):
    """What every device collector needs."""

    owners: Owners
    clock: Clock
    period_seconds: float = 1.0
    pcie: bool = False
    """Measure PCIe rates even with calls that block for 20 ms."""


class Labels:
    """A device's labels and its owner's, joined once per owner."""

    __slots__ = ("_last", "_own")

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = dict(own)
        self._last: tuple[Owner, Mapping[str, str]] = (NOBODY, self._own)

    def with_owner(self, owner: Owner) -> Mapping[str, str]:
        last, joined = self._last  # read once: other threads call this, too
        if owner is not last:
            joined = {**self._own, **owner.labels}
            self._last = (owner, joined)
        return joined


class Rates:
    """Turns counters into change per second; a new counter, or one that was reset, gives None."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.mono_ns()
        self._last: dict[object, tuple[int, float]] = {}
        self._this: dict[object, tuple[int, float]] = {}

    def begin(self) -> None:
        """Begin a new round.  Counters that the last round did not read are forgotten."""
        self._now = self._clock.mono_ns()
        self._last, self._this = self._this, {}

    def per_second(self, key: object, value: float) -> float | None:
        self._this[key] = (self._now, value)
        before = self._last.get(key)
        if before is None or value < before[1] or self._now <= before[0]:
            return None
        return (value - before[1]) / ((self._now - before[0]) / 1e9)


class Due:
    """Tells when work rarer than a collector's rounds is due, without drifting."""

    def __init__(self, seconds: float, clock: Clock, *, round_seconds: float = 0.0) -> None:
        """`round_seconds`: how often `is_due` is called.  Up to half of that early counts as due,
        since the next round would be further off."""
        self.seconds = seconds
        self._clock = clock
        self._slack_ns = int(round_seconds * 1e9) // 2
        self._due_ns: int | None = None

    def is_due(self) -> bool:
        """True once per period; the next time is a whole number of periods later."""
        now, period = self._clock.mono_ns(), max(1, int(self.seconds * 1e9))
        due = now if self._due_ns is None else self._due_ns
        if now + self._slack_ns < due:
            return False
        self._due_ns = due + (max(0, now - due) // period + 1) * period
        return True
