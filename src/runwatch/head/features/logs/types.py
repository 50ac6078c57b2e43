"""The log of a run as the HTTP API answers with it."""

from __future__ import annotations

from runwatch.head.http.types import Answer
from runwatch.views.logs import Source


class LogException(Answer):
    """An exception that nobody caught."""

    type: str
    message: str
    text: str
    """The whole traceback, as the interpreter prints it."""
    thread: str
    frames: list[str]
    """`file:line:function`, the innermost last."""
    left_out_frames: int
    local_variables: list[dict[str, str]]
    """Of each frame, if the program was asked to tell them (RUNWATCH_LOCALS=1)."""


class LogEntry(Answer):
    id: str
    """The same in every answer.  Who asks for a stretch again knows by it what is new."""
    time_ns: int
    rank: int
    """-1: the command that started the ranks, and no rank of it."""
    host: str
    attempt: int | None
    step: int | None
    """The step that the program was in, where it is known."""
    source: Source
    """`both`: a terminal, where out and err cannot be told apart."""
    text: str
    """A line; of an exception, type and message."""
    left_out_lines: int = 0
    """Lines just before this one that were not recorded: they came too fast, or were too many."""
    left_out_bytes: int = 0
    exception: LogException | None = None


class LogPage(Answer):
    """Entries in order of time."""

    run: str
    entries: list[LogEntry]
    older: str | None
    """Ask with `before` for what is before these; null: there is nothing."""
    newer: str | None
    """Ask with `after` for what is stored after these; null: there is nothing at all yet."""
    searched_ns: int | None
    """How far back (or forth, with `after`) was looked.  With a filter, an answer may have few
    entries or none though there are more further on."""
    left_out_lines: int
    """Lines in this stretch that were not recorded."""
    left_out_bytes: int
    ranks: list[int]
    """All ranks of the run, for a choice."""
