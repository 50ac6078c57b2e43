"""What a program said on its console, and the exceptions that nobody caught."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from runwatch.record.checks import COUNT, NAME, TEXT, fields, flag, whole
from runwatch.record.message import Message, checked, listed, one_of, unless_empty

Stream = Literal["out", "err", "both"]
STREAMS: Final[tuple[Stream, ...]] = ("out", "err", "both")
MOST_LINES: Final = 2_000
MOST_FRAMES: Final = 200
_LINE: Final = TEXT


@dataclass(frozen=True, slots=True)
class Console(Message):
    """Some lines that the program wrote, one after the other.  The event has the first one's time.

    Colours and other codes for terminals are removed, secrets are masked.  A progress bar that
    rewrites its line is one line, of its newest state.
    """

    KIND: ClassVar[str] = "console"

    stream: Stream = one_of(STREAMS, "out")
    """`both`: a terminal, where nobody can tell the two apart."""
    lines: tuple[str, ...] = listed(_LINE, MOST_LINES)
    after_ms: tuple[int, ...] = listed(COUNT, MOST_LINES)
    """When each line came, in milliseconds from the event's time.  A missing one is 0."""
    left_out_lines: int = unless_empty(checked(COUNT, 0))
    """Lines before these that were more than the budget allows."""
    left_out_bytes: int = unless_empty(checked(COUNT, 0))
    """Their bytes, and those of the ends of lines that were too long."""
    of_command: bool = unless_empty(checked(flag, False))
    """A command that `exec` ran wrote these, or a child of it that is not known to be a rank."""

    def times_ns(self, time_ns: int) -> list[int]:
        """When each line came, if the event has this time."""
        after = self.after_ms + (0,) * (len(self.lines) - len(self.after_ms))
        return [time_ns + each * 1_000_000 for each in after[: len(self.lines)]]


@dataclass(frozen=True, slots=True)
class ExceptionTold(Message):
    """An exception that nobody caught, as the interpreter would print it."""

    KIND: ClassVar[str] = "exception"

    type: str = checked(NAME, "")
    """With its module, as in the last line of a traceback: `torch.OutOfMemoryError`."""
    message: str = checked(TEXT, "")
    text: str = checked(TEXT, "")
    """The whole traceback, with causes, contexts and groups.  Of a deep one the first and the last
    frames."""
    thread: str = checked(NAME, "")
    handled: bool = checked(flag, False)
    frames: tuple[str, ...] = listed(TEXT, MOST_FRAMES)
    """`file:line:function` of each frame, the innermost last."""
    left_out_frames: int = unless_empty(checked(whole(0, 1 << 31), 0))
    local_variables: tuple[dict[str, str], ...] = unless_empty(listed(fields(), MOST_FRAMES))
    """The local variables of each frame, short and masked, if the user asked for them."""

    @property
    def line(self) -> str:
        """Type and message in one line."""
        first = self.message.strip().partition("\n")[0]
        return f"{self.type}: {first}" if first else self.type
