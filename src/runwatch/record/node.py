"""What an agent tells of its node: processes that ended, waiting jobs, devices, itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runwatch.record.checks import COUNT, NAME, OFFSET, TEXT, TIME, either, flag, number
from runwatch.record.message import Message, checked, listed

# ── processes ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ProcessExit(Message):
    """The kernel told the agent how a process ended."""

    KIND: ClassVar[str] = "process_exit"

    journal: str = checked(NAME, "")
    pid: int | None = checked(COUNT)
    code: int | None = checked(OFFSET)
    signal: int | str | None = checked(either(OFFSET, NAME))
    core_dumped: bool = checked(flag, False)
    oom: bool | None = checked(flag)
    """The kernel killed it because memory ran out; None: that cannot be told."""
    lived_ns: int | None = checked(TIME)
    """The last moment at which it was seen alive; None: the record's own time."""
    fault: str | None = checked(NAME)
    """The signal of the fault whose stacks the process wrote before it died."""


@dataclass(frozen=True, slots=True)
class JobQueued(Message):
    """When the scheduler got the job, and when it gave the job its nodes."""

    KIND: ClassVar[str] = "job_queued"

    journal: str = checked(NAME, "")
    by: str = checked(NAME, "")
    """The scheduler: slurm or kubernetes."""
    job: str = checked(NAME, "")
    queued_at_ns: int | None = checked(TIME)
    granted_at_ns: int | None = checked(TIME)


@dataclass(frozen=True, slots=True)
class QueueUnknown(Message):
    """The scheduler did not say how long the job waited."""

    KIND: ClassVar[str] = "queue_unknown"

    journal: str = checked(NAME, "")
    by: str = checked(NAME, "")
    job: str = checked(NAME, "")
    why: str = checked(TEXT, "")
    tries: int = checked(COUNT, 0)


# ── the agent ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class AgentStart(Message):
    KIND: ClassVar[str] = "agent_start"

    pid: int | None = checked(COUNT)
    version: str = checked(NAME, "")


@dataclass(frozen=True, slots=True)
class AgentEnd(Message):
    KIND: ClassVar[str] = "agent_end"

    pid: int | None = checked(COUNT)
    why: str | None = checked(TEXT)


@dataclass(frozen=True, slots=True)
class GuestConnect(Message):
    """A client of gswarm's protocol has connected to the head."""

    KIND: ClassVar[str] = "guest_connect"

    gpus: int = checked(COUNT, 0)
    slot: int = checked(COUNT, 0)


@dataclass(frozen=True, slots=True)
class CollectorFailed(Message):
    KIND: ClassVar[str] = "collector_failed"

    collector: str = checked(NAME, "")
    error: str = checked(TEXT, "")


# ── devices ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class CollectorStuck(Message):
    """A driver has not answered for a while."""

    KIND: ClassVar[str] = "collector_stuck"

    collector: str = checked(NAME, "")
    seconds: float | None = checked(number())
    why: str | None = checked(TEXT)


@dataclass(frozen=True, slots=True)
class CollectorResumed(Message):
    KIND: ClassVar[str] = "collector_resumed"

    collector: str = checked(NAME, "")
    seconds: float | None = checked(number())


@dataclass(frozen=True, slots=True)
class DeviceNotice(Message):
    """Something happened to a device.  The kinds below tell what."""

    device: str = checked(NAME, "")
    uuid: str | None = checked(NAME)
    name: str | None = checked(NAME)
    metric: str | None = checked(NAME)
    """What of the device; None: the device itself."""
    why: str | None = checked(TEXT)


@dataclass(frozen=True, slots=True)
class DeviceAdded(DeviceNotice):
    KIND: ClassVar[str] = "device_added"


@dataclass(frozen=True, slots=True)
class DeviceLost(DeviceNotice):
    KIND: ClassVar[str] = "device_lost"


@dataclass(frozen=True, slots=True)
class DeviceUnreadable(DeviceNotice):
    KIND: ClassVar[str] = "device_unreadable"


@dataclass(frozen=True, slots=True)
class DeviceLimited(DeviceNotice):
    """A device of this kind does not have some of the metrics."""

    KIND: ClassVar[str] = "device_limited"

    missing: tuple[str, ...] = listed(NAME)


@dataclass(frozen=True, slots=True)
class GpuXid(DeviceNotice):
    """The driver reported an error of the GPU by its number."""

    KIND: ClassVar[str] = "gpu_xid"

    xid: int | None = checked(COUNT)
    meaning: str = checked(TEXT, "")
    since_the_last: int | None = checked(COUNT)
    """How many more of the same came meanwhile."""
    gpu_instance: int | None = checked(COUNT)


@dataclass(frozen=True, slots=True)
class DeviceOwner(Message):
    """From now on a device works for this process, or for none."""

    KIND: ClassVar[str] = "device_owner"

    device: str = checked(NAME, "")
    uuid: str | None = checked(NAME)
    how: str = checked(NAME, "")
    """What says so."""
    rank: str | None = checked(NAME)
    ranks: str | None = checked(NAME)
    """Several processes share the device."""
    pid: str | None = checked(NAME)
    journal: str | None = checked(NAME)
