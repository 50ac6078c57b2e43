"""The variables that programs read: those of the SDK, of `runwatch exec` and of the drop-ins.

What an agent, a head or a store reads is a field of its settings, in the room that it belongs to.
A program has no settings file: a variable is read where it is needed.  This is their list for
people, `runwatch config` prints it, and a test looks through the sources for one that is missing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from runwatch.journal.segment import DEFAULT_SEGMENT_BYTES
from runwatch.journal.writer import DEFAULT_BUDGET_BYTES


class Variable(NamedTuple):
    name: str
    default: str
    """What holds if it is not set, as text."""
    help: str
    secret: bool = False


PROGRAM: Final = (
    Variable("RUNWATCH_DIR", "~/.runwatch", "where programs record, and commands look"),
    Variable("RUNWATCH_CONFIG", "", "settings file of head, agent, commands (config.toml there)"),
    Variable("RUNWATCH_HEAD", "", "the head that gets the records: the address that people open"),
    Variable("RUNWATCH_TOKEN", "", "the head's token; better is RUNWATCH_TOKEN_FILE", secret=True),
    Variable("RUNWATCH_TOKEN_FILE", "", "a file with the head's token, mode 0600"),
    Variable("RUNWATCH_CA", "", "CA certificate to verify the head with"),
    Variable("RUNWATCH_NAME", "", "the run's name, if the program gives none"),
    Variable("RUNWATCH_GROUP", "", "the run's group, if the program gives none"),
    Variable("RUNWATCH_RUN_ID", "", "the run's id, in place of one made from its name"),
    Variable("RUNWATCH_ATTEMPT", "", "processes with the same word here were started together"),
    Variable(
        "RUNWATCH_QUEUED_AT",
        "",
        "when the job was submitted: seconds since the epoch, or RFC 3339",
    ),
    Variable("RUNWATCH_USER", "", "whose run it is (default: the user's name)"),
    Variable("RUNWATCH_HOST", "", "this node's name, if not the host name"),
    Variable("RUNWATCH_POD_UID", "", "set in a watched pod: its uid"),
    Variable("RUNWATCH_POD_INDEX", "", "set in a watched pod of a StatefulSet: which one it is"),
    Variable("RUNWATCH_CONTAINER", "", "set in a watched pod: the container's name"),
    Variable("RUNWATCH_WORKLOAD", "", "set in a watched pod: JSON of the workload it is part of"),
    Variable("RUNWATCH_AGENT", "on", "off: a program starts no agent"),
    Variable("RUNWATCH_AUTO", "off", "1: hooks follow every framework that the program loads"),
    Variable("RUNWATCH_HOOKS", "on", "off: no framework is hooked"),
    Variable("RUNWATCH_STACKS", "on", "off: no stacks of this program are taken"),
    Variable("RUNWATCH_STACKS_DIR", "/tmp/debugging", "where `diagnose` writes stacks"),  # noqa: S108
    Variable("RUNWATCH_QUIET", "", "1: no line about where to look"),
    Variable("RUNWATCH_CONSOLE", "", "1: what the program prints is recorded, as by console=True"),
    Variable("RUNWATCH_LOCALS", "", "1: a recorded exception holds its local variables"),
    Variable("RUNWATCH_MASK", "", "more names whose values are kept secret: pin,acme_*"),
    Variable("RUNWATCH_MAPPED", "on", "off: journals are written by calls, not through a map"),
    Variable("RUNWATCH_SEGMENT_BYTES", str(DEFAULT_SEGMENT_BYTES), "size of a journal's files"),
    Variable("RUNWATCH_JOURNAL_BYTES", str(DEFAULT_BUDGET_BYTES), "disk for one process's journal"),
    Variable("RUNWATCH_EXEC", "", "set by `runwatch exec` for what it starts: its socket"),
    Variable("RUNWATCH_EXEC_RANK", "", "set by `runwatch exec`: whose output goes its own way"),
    Variable("RUNWATCH_DROPIN", "on", "off: originals that are installed go before the drop-ins"),
    Variable("RUNWATCH_DROPIN_SAID", "", "set by a program that has said which name is not ours"),
    Variable("RUNWATCH_GOODPUT_ACCOUNT", "", "1: the goodput drop-in also uploads our own account"),
    Variable("RUNWATCH_CLOUD_LOGGING", "", "off: the drop-in leaves google.cloud.logging alone"),
    Variable("RUNWATCH_XPROF_ADDRESS", "127.0.0.1", "where the mldiagnostics drop-in listens"),
)
