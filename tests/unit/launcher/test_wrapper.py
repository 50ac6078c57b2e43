"""Which signals of the kernel are for the wrapper alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = """
import signal
from runwatch.launcher.wrapper import is_hangup
codes = [(signal.SIGHUP, 0x80), (signal.SIGCONT, 0x80), (signal.SIGHUP, 0), (signal.SIGTERM, 0x80)]
print([is_hangup(signal.struct_siginfo((*each, 0, 0, 0, 0, 0))) for each in codes])
"""


@pytest.mark.parametrize(
    ("is_leader", "answers"), [(True, "[True, True, False, False]"), (False, str([False] * 4))]
)
def test_a_terminal_that_is_gone_is_for_the_leader_of_the_session(
    is_leader: bool, answers: str
) -> None:
    command = [sys.executable, "-c", LOOK]
    found = subprocess.run(command, start_new_session=is_leader, capture_output=True, text=True)
    assert (found.stdout.strip(), found.stderr) == (answers, "")
