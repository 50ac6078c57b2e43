"""Objects that hold a run are copied and pickled as if it were not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program

_RUN = "import runpy\nrunpy.run_path({!r}, run_name='__main__')\n"
_HOLDS = """
import copy, pickle, sys
import runwatch
run = runwatch.init("held", config={"lr": 0.1})
for step, _ in run.steps(range(3)):
    run.log(loss=step)
held = {
    "run": run, "span": run.span("save"), "step": run.step(7), "config": run.config,
    "data": run.data([1, 2]), "bound": run.log,
}
"""


def test_a_copy_of_what_holds_a_run_holds_the_run(tmp_path: Path) -> None:
    text = """
for again in (copy.copy(held), copy.deepcopy(held), pickle.loads(pickle.dumps(held))):
    assert again["run"] is run
    again["bound"](loss=9.0)
    with again["span"], again["step"]:
        pass
    assert list(again["data"]) == [1, 2] and again["config"] == {"lr": 0.1}
run.finish()
print("copied")
"""
    done = run_program(_HOLDS + text, tmp_path)
    assert (done.stdout, done.stderr) == ("copied\n", "")
    (story,) = read_stories(tmp_path)
    assert story.values("loss") == [0.0, 1.0, 2.0, 9.0, 9.0, 9.0]


def test_in_another_process_all_can_be_called_and_nothing_is_recorded(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing
import runwatch

class Dataset:
    def __init__(self, run):
        self.run = run
        self.items = run.data([1, 2, 3])

def work(dataset):
    from runwatch.sdk.guard import tally
    run = dataset.run
    with run, run.span("read"), run.step(1):
        run.log(loss=1.0)
        run.log(loss=1.0, rate=2.0)
    for _, item in run.steps(dataset.items):
        run.config["seen"] = item
    run.finish()
    assert (run.name, run.id, run.config["lr"]) == ("held", "held", 0.1), run
    return dict(tally.counts), list(dataset.items)

def join(dataset):
    mine = runwatch.init("held")
    dataset.run.log(joined=5.0)
    mine.finish()

if __name__ == "__main__":
    run = runwatch.init("held", config={"lr": 0.1})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(work, (Dataset(run),)))
        pool.apply(join, (Dataset(run),))
        pool.close()
        pool.join()
    run.log(loss=3.0)
    run.finish()
"""
    )
    done = run_program(_RUN.format(str(program)), tmp_path)
    assert (done.stdout, done.stderr) == ('({"another process\'s run": 3}, [1, 2, 3])\n', "")
    first, second = read_stories(tmp_path)
    assert first.values("loss") == [3.0]
    assert second.values("joined") == [5.0]


@pytest.mark.soak
def test_a_torch_loader_with_spawned_workers_takes_a_dataset_that_holds_a_run(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "program.py"
    program.write_text(
        """
import runwatch, torch

class Numbers(torch.utils.data.Dataset):
    def __init__(self, run):
        self.run = run
    def __len__(self):
        return 4
    def __getitem__(self, index):
        self.run.log(read=index)
        return index

if __name__ == "__main__":
    run = runwatch.init("loader")
    loader = torch.utils.data.DataLoader(
        Numbers(run), num_workers=1, multiprocessing_context="spawn")
    for step, item in run.steps(loader):
        run.log(loss=float(item))
    run.finish()
    print("loaded")
"""
    )
    done = run_program(_RUN.format(str(program)), tmp_path)
    assert (done.stdout, done.stderr) == ("loaded\n", "")
    (story,) = read_stories(tmp_path)
    assert story.values("loss") == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("free", [0, 1, 2, 3, 4, 8])
def test_without_a_free_descriptor_a_program_gets_a_run_all_the_same(
    free: int, tmp_path: Path
) -> None:
    text = f"""
import os, resource, sys
import runwatch
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for fd in held[:{free}]:
    os.close(fd)
with runwatch.init("poor", config={{"a": 1}}) as run:
    runwatch.log(loss=1.0)
    for step, item in run.steps("abc"):
        run.log(loss=step, rate=1.0)
    with run.step(4), run.span("save"):
        run.config["b"] = 2
    assert list(run.data([1])) == [1]
    assert run.span("x")(len)([1, 2]) == 2
print(run.name, run.config["b"])
"""
    done = run_program(text, tmp_path, TMPDIR=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (0, "poor 2\n"), done.stderr
    said = done.stderr.splitlines()
    recorded = [story.values("loss") for story in read_stories(tmp_path)]
    assert recorded == [[1.0, 0.0, 1.0, 2.0]] or sum("nothing is recorded" in s for s in said) == 1
    assert len(said) <= 3
