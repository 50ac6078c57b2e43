"""Every kind of event and of command.  A new one is a dataclass in its file, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runwatch.record.captures import CaptureRequested, ProfileDeleted, ProfileEvent
from runwatch.record.commands import CommandResult, Holdings, Ping, ProfileCommand, StacksWanted
from runwatch.record.console import Console, ExceptionTold
from runwatch.record.life import (
    ClockJump,
    Config,
    Elapsed,
    Fork,
    GoodputEntry,
    Joined,
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
from runwatch.record.otlp import MlRun, OtlpReceived, SpanTold
from runwatch.record.pods import PodTold
from runwatch.record.sessions import (
    SessionClock,
    SessionFile,
    SessionResume,
    SessionStart,
    SessionStop,
)
from runwatch.record.stacks import Incident, Stacks

EVENTS: Final[tuple[type[Message], ...]] = (
    RunStart, RunEnd, ProcessExit, Fork, Config, LogText, Elapsed, GoodputEntry, SdkWarning,
    ClockJump, JournalLoss, JournalGap, JournalAside, RecordsSkipped, SeriesNotRecorded,
    PointsNotRecorded, LimitReached, JobQueued, QueueUnknown, ProfileEvent, ProfileDeleted,
    Stacks, Incident, SessionStart, SessionStop, SessionResume, SessionClock, SessionFile,
    CaptureRequested, CommandResult, AgentStart, AgentEnd, GuestConnect, CollectorFailed,
    CollectorStuck, CollectorResumed, DeviceOwner, DeviceAdded, DeviceLost, DeviceUnreadable,
    DeviceLimited, GpuXid, Console, ExceptionTold, Joined, OtlpReceived, SpanTold, MlRun,
    PodTold,
)  # fmt: skip
BY_KIND: Final[Mapping[str, type[Message]]] = {message.KIND: message for message in EVENTS}
COMMANDS: Final[tuple[type[Message], ...]] = (Ping, Holdings, StacksWanted, ProfileCommand)
"""What a head may ask of an agent.  The answer is an event `command_result`."""
