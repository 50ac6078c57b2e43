"""Every kind of event there is.  A new message is a dataclass in its file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runwatch.record.captures import CaptureRequested, ProfileDeleted, ProfileEvent
from runwatch.record.commands import CommandResult
from runwatch.record.life import (
    Config,
    Elapsed,
    Fork,
    GoodputEntry,
    LogText,
    RunEnd,
    RunStart,
    SdkWarning,
)
from runwatch.record.losses import (
    ClockJump,
    JournalAside,
    JournalGap,
    JournalLoss,
    LimitReached,
    PointsNotRecorded,
    RecordsSkipped,
    SeriesNotRecorded,
)
from runwatch.record.message import Message
from runwatch.record.node import (
    AgentEnd,
    AgentStart,
    CollectorFailed,
    CollectorResumed,
    CollectorStuck,
    DeviceAdded,
    DeviceLost,
    DeviceOwner,
    DeviceUnreadable,
    GpuXid,
    GuestConnect,
    JobQueued,
    ProcessExit,
    QueueUnknown,
)
from runwatch.record.sessions import SessionClock, SessionResume, SessionStart, SessionStop
from runwatch.record.stacks import IncidentTold, StacksTaken

EVENTS: Final[tuple[type[Message], ...]] = (
    RunStart, RunEnd, ProcessExit, Fork, Config, LogText, Elapsed, GoodputEntry, SdkWarning,
    ClockJump, JournalLoss, JournalGap, JournalAside, RecordsSkipped, SeriesNotRecorded,
    PointsNotRecorded, LimitReached, JobQueued, QueueUnknown, ProfileEvent, ProfileDeleted,
    StacksTaken, IncidentTold, SessionStart, SessionStop, SessionResume, SessionClock,
    CaptureRequested, CommandResult, AgentStart, AgentEnd, GuestConnect, CollectorFailed,
    CollectorStuck, CollectorResumed, DeviceOwner, DeviceAdded, DeviceLost, DeviceUnreadable,
    GpuXid,
)  # fmt: skip
BY_KIND: Final[Mapping[str, type[Message]]] = {message.KIND: message for message in EVENTS}
