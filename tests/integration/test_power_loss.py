"""What is on the disk when the power goes: all but the last seconds, and a young run, too.

The disk of a machine that loses its power is the image of a file system that is mounted, copied
without being told: what nobody has put there yet is not in it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.file_systems import run_on

_PROGRAM = '''
from pathlib import Path
from runwatch.agent.lock import end_agents
from runwatch.journal.reader import JournalReader

image, again = Path(disk).with_name("image"), Path(disk).with_name("again")
again.mkdir(exist_ok=True)

def after_power_loss(journal):
    """How many values of it are left."""
    copy = again.with_name("image-copy")
    subprocess.run(["cp", "--sparse=always", image, copy], check=True)
    how = "loop,nouuid" if os.environ["KIND"] == "xfs" else "loop"
    mounted = subprocess.run(["mount", "-o", how, copy, again], stderr=subprocess.DEVNULL)
    if mounted.returncode:
        return 0
    try:
        reader = JournalReader(again / "runwatch/journals" / journal)
        count = 0
        while reader.origin and (batch := reader.read(final=True)):
            count += len(batch.points)
        reader.close()
        return count
    finally:
        subprocess.run(["umount", again], check=True)

def is_safe(writer):
    deadline = time.monotonic() + 25  # after 30 s the kernel writes it back by itself
    while (found := after_power_loss(writer.origin.journal)) < 1000:
        if time.monotonic() > deadline:
            return found
        time.sleep(0.25)
    return "safe"

try:
    for number in range(1000):
        run.log(loss=float(number))
    print("first", is_safe(run._writer))
    # One that begins later, while the agent is there already.
    run.finish()
    run = runwatch.init("younger", dir=f"{disk}/runwatch")
    for number in range(1000):
        run.log(loss=float(number))
    print("younger", is_safe(run._writer))
    run.finish()
finally:
    end_agents(Path(f"{disk}/runwatch"))
'''


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_loss_costs_seconds_and_no_young_run(kind: str, tmp_path: Path) -> None:
    done = run_on(kind, _PROGRAM, tmp_path, RUNWATCH_AGENT="on", KIND=kind)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["first safe", "younger safe"]
