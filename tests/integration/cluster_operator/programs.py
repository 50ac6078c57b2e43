"""The programs of the pods: small trainings that are captured, and one that hangs."""

from __future__ import annotations

from tests.integration.capture_programs import COUNTING, TORCH_STEP

# Ranks from one process that has imported torch once.  Each is in a pod of its own.
TRAINING = (
    COUNTING
    + TORCH_STEP
    + """
def train(rank, world):
    import runwatch
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"POD_NAME": f"llama-{rank}", "RUNWATCH_POD_UID": sys.argv[3 + rank]}
    counting = Counting(f"{sys.argv[1]}/steps-{rank}")
    run = runwatch.init(sys.argv[2])
    for _ in run.steps(range(10**9)):
        work()
        counting.step()
        time.sleep(0.1)  # a processor that nobody needs is left to others

world = len(sys.argv) - 3
for rank in range(1, world):
    if os.fork() == 0:
        train(rank, world)
train(0, world)
"""
)

# A rank that waits for others who do not come, as in a collective: somebody stops it from outside.
# Told by a file, it goes on, or dies of an error.
STANDING = """
import os, sys, time
import runwatch
from pathlib import Path
gate = Path(sys.argv[2])
def all_reduce():
    while not gate.exists():
        time.sleep(0.02)
run = runwatch.init(sys.argv[1])
for step, _ in run.steps(range(10**9)):
    time.sleep(0.02)
    if step == 10:
        all_reduce()
    if gate.exists() and gate.read_text() == "die":
        raise ValueError("the loss is not a number")
"""

# A run for each workload that is told on standard input, a line of JSON each; they have all ended.
SEVERAL = """
import os, sys, json
import runwatch
for line in sys.stdin:
    told = json.loads(line)
    if os.fork() == 0:
        os.environ |= told
        run = runwatch.init(None)
        for _ in run.steps(range(3)):
            pass
        run.finish()
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
