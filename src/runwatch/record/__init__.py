"""Every shape that travels: what a journal holds and the wire carries.

`base.py` has the records themselves (origins, definitions, points, spans, events, batches), which
are re-exported here.  An event, a command or an answer has a body, which is a JSON object.  Each
kind of body is one frozen dataclass, a `Message` (`message.py`), in the file of its subject:

    life.py       what a training process tells of itself
    console.py    what a program said on its console, and uncaught exceptions
    losses.py     what was not recorded, or was lost
    node.py       what an agent tells of its node, processes and devices
    pods.py       what the cluster tells of the pods of a run
    sessions.py   measuring sessions
    stacks.py     stacks of a process, and incidents
    captures.py   profiles, and captures on demand
    commands.py   what a head asks of an agent
    control.py    what an agent asks of a process

`kinds.py` lists them all.  `door.py` checks what comes in against them.  Nothing here does any I/O.
"""

from runwatch.record.base import (
    BEGIN,
    END,
    NO_STEP,
    START,
    Batch,
    Command,
    Definition,
    Event,
    JournalId,
    Origin,
    Points,
    Position,
    Role,
    RunId,
    RunScope,
    Series,
    SpanName,
    Spans,
    Verdict,
    position,
)

__all__ = [
    "BEGIN",
    "END",
    "NO_STEP",
    "START",
    "Batch",
    "Command",
    "Definition",
    "Event",
    "JournalId",
    "Origin",
    "Points",
    "Position",
    "Role",
    "RunId",
    "RunScope",
    "Series",
    "SpanName",
    "Spans",
    "Verdict",
    "position",
]
