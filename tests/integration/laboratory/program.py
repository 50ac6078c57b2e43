"""Runs one case as a training program: python -m tests.integration.laboratory.program NAME …

NAME FOLDER SECONDS SEED PORT.  A case of several ranks is forked once torch is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from tests.integration.laboratory.case import AFTER, BEFORE, STEP_SECONDS, Case, Scene
from tests.integration.laboratory.cases import CASES


def main(name: str, folder: str, seconds: str, seed: str, port: str) -> None:
    os.setsid()  # who ends us ends what we start
    case = CASES[name]
    for module in case.needs:
        importlib.import_module(module)
    if case.world == 1:
        train(case, Scene(None, Path(folder), float(seconds), int(seed)))
        return
    import torch
    import torch.distributed
    import torch.utils.data

    torch.set_num_threads(1)
    ranks = []
    for rank in range(case.world):
        pid = os.fork()
        if pid == 0:
            join(rank, case.world, int(port))
            scene = Scene(None, Path(folder), float(seconds), int(seed), rank, case.world)
            train(case, scene)
            return
        ranks.append(pid)
    for pid in ranks:
        os.waitpid(pid, 0)


def join(rank: int, world: int, port: int) -> None:
    import torch.distributed as dist

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world,
        timeout=timedelta(minutes=30),
    )


def train(case: Case, scene: Scene) -> None:
    import runwatch

    with runwatch.init(f"lab-{case.name}") as run:
        scene.run = run
        for step, _ in run.steps(range(BEFORE + AFTER)):
            time.sleep(STEP_SECONDS)
            if scene.world > 1:
                together()
            if step == BEFORE - 1:
                case.does(scene)


def together() -> None:
    from tests.integration.laboratory.hanging_ranks import together

    together()


if __name__ == "__main__":
    main(*sys.argv[1:6])
