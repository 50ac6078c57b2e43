"""Values on a real device.  Skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program


def test_a_cuda_scalar_is_recorded_without_waiting_for_the_device(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    done = run_program(
        """
        import json, torch, runwatch
        run = runwatch.init("cuda")
        matrix = torch.randn(8192, 8192, device="cuda")
        # The first pinned page, and the first use of each kernel, wait for the device.
        run.log(first=(matrix @ matrix / 90)[0, 0] * 0 + 1)
        torch.cuda.synchronize()
        finished = torch.cuda.Event()
        product, unfinished = matrix, []
        for step in range(10):
            for _ in range(20):
                product = product @ matrix / 90
            run.log(loss=product[0, 0] * 0 + step, step=step)
            finished.record()
            unfinished.append(not finished.query())
        run.log(row=torch.arange(4, device="cuda"), table=torch.ones(2, 2, device="cuda"))
        torch.cuda.synchronize()
        print(json.dumps(unfinished))
        """,
        tmp_path,
    )
    (story,) = read_stories(tmp_path)
    assert json.loads(done.stdout) == [True] * 10  # every call came back before its value was there
    assert story.values("loss") == [float(step) for step in range(10)]
    assert story.steps("loss") == list(range(10))
    assert story.values("row", "3") == [3.0]
    assert story.warnings == {"value tensor of 2 dimensions": 1}
