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

world = len(sys.argv) - 3
for rank in range(1, world):
    if os.fork() == 0:
        train(rank, world)
train(0, world)
"""
)
