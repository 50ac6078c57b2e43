"""The event `profile`: what is told of one process's part in a profile session.

It is told twice, when the capture begins and when it ends.  A process with the SDK tells of itself;
of any other its agent tells.  Both write this one shape, and `read` takes any body of before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

PROFILE: Final = "profile"
STARTED: Final = "started"
DONE: Final = "done"
FAILED: Final = "failed"
STATES: Final = (STARTED, DONE, FAILED)
_MOST_FILES: Final = 10_000
_MOST_PROBLEMS: Final = 20
_LONGEST_WHY: Final = 4_000
_LONGEST_PROBLEM: Final = 1_000


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    session: str
    state: str
    """One of STATES."""
    why: str = ""
    frameworks: Sequence[str] = ()
    files: Sequence[str] = ()
    directory: str = ""
    """Where the files are, as the process that wrote them names it."""
    bytes: int = 0
    start_ns: int = 0
    end_ns: int = 0
    """0: not yet, or not known."""
    first_step: int | None = None
    last_step: int | None = None
    origin: str = ""
    """program, or demand: someone asked from outside."""
    command: str = ""
    problems: Sequence[str] = ()
    rank: int | None = None
    """None: the event's own."""
    host: str = ""
    pid: int = 0
    run: str = ""
    """The folder that its profiles go to; for a program of no run the name of one."""
    way: str = ""
    """How the trace was taken: sdk, port, …"""

    @property
    def framework(self) -> str:
        return "+".join(self.frameworks)

    def body(self) -> dict[str, Any]:
        return {
            "session": self.session[:200],
            "state": self.state,
            "why": self.why[:_LONGEST_WHY],
            "framework": self.framework,
            "frameworks": list(self.frameworks),
            "files": list(self.files),
            "directory": self.directory,
            "bytes": self.bytes,
            "start_ns": self.start_ns,
            "end_ns": 0 if self.state == STARTED else self.end_ns,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "origin": self.origin,
            "command": self.command,
            "problems": [problem[:_LONGEST_PROBLEM] for problem in self.problems[:_MOST_PROBLEMS]],
            "rank": self.rank,
            "host": self.host,
            "pid": self.pid,
            "run": self.run,
            "way": self.way,
        }


def read(body: Mapping[str, Any]) -> ProfileEvent | None:
    """None: it is told of no session, or of no state that we know."""
    session, state = body.get("session"), body.get("state")
    if not isinstance(session, str) or state not in STATES:
        return None
    return ProfileEvent(
        session=session,
        state=str(state),
        why=_text(body, "why")[:_LONGEST_WHY],
        frameworks=tuple(filter(None, _text(body, "framework").split("+"))),
        files=_texts(body, "files", _MOST_FILES),
        directory=_text(body, "directory"),
        bytes=max(0, _whole(body, "bytes") or 0),
        start_ns=_whole(body, "start_ns") or 0,
        end_ns=_whole(body, "end_ns") or 0,
        first_step=_whole(body, "first_step"),
        last_step=_whole(body, "last_step"),
        origin=_text(body, "origin"),
        command=_text(body, "command"),
        problems=_texts(body, "problems", _MOST_PROBLEMS),
        rank=_whole(body, "rank"),
        host=_text(body, "host"),
        pid=_whole(body, "pid") or 0,
        run=_text(body, "run"),
        way=_text(body, "way"),
    )


def _text(body: Mapping[str, Any], name: str) -> str:
    return str(body.get(name) or "")


def _texts(body: Mapping[str, Any], name: str, most: int) -> tuple[str, ...]:
    said = body.get(name)
    texts = said[:most] if isinstance(said, list | tuple) else ()
    return tuple(text for text in texts if isinstance(text, str) and text)


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
