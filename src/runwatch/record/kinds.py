"""Every kind of event there is.  A new message is a dataclass in its file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runwatch.record.captures import CaptureAsked, CommandResult, ProfileDeleted, ProfileTold
from runwatch.record.life import (
    ClockJump,
    Config,
    Elapsed,
    Fork,
    GoodputEntry,
    JournalLoss,
    LogText,
    RunEnd,
    RunStart,
    SdkWarning,
)
from runwatch.record.losses import (
    JournalAside,
    JournalGap,
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
    DeviceLimited,
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
    PointsNotRecorded, LimitReached, JobQueued, QueueUnknown, ProfileTold, ProfileDeleted,
    StacksTaken, IncidentTold, SessionStart, SessionStop, SessionResume, SessionClock,
    CaptureAsked, CommandResult, AgentStart, AgentEnd, GuestConnect, CollectorFailed,
    CollectorStuck, CollectorResumed, DeviceOwner, DeviceAdded, DeviceLost, DeviceUnreadable,
    DeviceLimited, GpuXid,
)  # fmt: skip
BY_KIND: Final[Mapping[str, type[Message]]] = {message.KIND: message for message in EVENTS}
