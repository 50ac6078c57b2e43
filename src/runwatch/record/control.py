"""What an agent asks of a process at its control socket, and the answers.

These are not in `commands.py`: a training process loads them when somebody asks, and what it does
not load costs it nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from runwatch.errors import UsageError
from runwatch.record.capture_limits import (
    DEFAULT_MS,
    MAX_AHEAD_SECONDS,
    MAX_MS,
    MAX_STEPS,
    STEPS_SECONDS,
)
from runwatch.record.checks import NAME, TEXT, TIME, anything, flag, whole
from runwatch.record.message import Message, checked, listed, mapping, read_strictly

MS: Final = whole(1, MAX_MS)
STEPS: Final = whole(1, MAX_STEPS)
AT_STEP: Final = whole(0, (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class ProfileStart(Message):
    """A request to one process: record yourself."""

    KIND: ClassVar[str] = "profile"

    session: str = checked(NAME, "")
    """The profile's name."""
    command: str = checked(NAME, "")
    """The id of the head's command."""
    start_ns: int = checked(TIME, 0)
    """By the node's clock; 0: at once."""
    duration_ms: int | None = checked(MS)
    steps: int | None = checked(STEPS)
    at_step: int | None = checked(AT_STEP)
    path: str = checked(TEXT, "")
    expires_ns: int | None = checked(TIME)
    """A step that has not come by then is not waited for."""
    frameworks: tuple[str, ...] = listed(NAME)
    """Those to trace; empty: all that the process has loaded."""
    options: Mapping[str, Any] = mapping(anything)
    """Fields of `TraceOptions`."""

    @property
    def window_ms(self) -> int:
        """How long to record where steps cannot be counted."""
        return self.duration_ms or DEFAULT_MS

    @property
    def seconds(self) -> float:
        """The longest time from the start to the end."""
        return STEPS_SECONDS if self.duration_ms is None else self.duration_ms / 1e3

    def check(self, now_ns: int) -> None:
        """Raises UsageError if it says no end, or a start that is too far ahead."""
        if self.duration_ms is None and self.steps is None:
            raise UsageError("a capture needs duration_ms or steps")
        if self.start_ns > now_ns + MAX_AHEAD_SECONDS * 1e9:
            raise UsageError(f"start_ns {self.start_ns}: more than {MAX_AHEAD_SECONDS:.0f} s ahead")


@dataclass(frozen=True, slots=True)
class ProfilePreflight(Message):
    """Could the process record itself now?"""

    KIND: ClassVar[str] = "profile"

    preflight: bool = checked(flag, True)


@dataclass(frozen=True, slots=True)
class ProfileStatus(Message):
    """How far is the recording of that name?  The answer is a `ProfileEvent`."""

    KIND: ClassVar[str] = "profile"

    status: str = checked(NAME, "")
    """The profile's name."""


@dataclass(frozen=True, slots=True)
class ProfileReply(Message):
    """The process's answer to `ProfileStart` and `ProfilePreflight`."""

    accepted: bool = checked(flag, False)
    why: str = checked(TEXT, "")
    """Why not."""
    frameworks: tuple[str, ...] = listed(NAME)
    """Those that it has loaded and that can be traced."""
    session: str | None = checked(NAME)
    """The profile's name, if it will be recorded."""


def asked_of_process(body: Mapping[str, Any]) -> ProfileStart | ProfilePreflight | ProfileStatus:
    """What the body of a `profile` at the control socket asks.  Raises UsageError."""
    if body.get("status") is not None:
        return read_strictly(ProfileStatus, body)
    if body.get("preflight"):
        return ProfilePreflight()
    return read_strictly(ProfileStart, body)
