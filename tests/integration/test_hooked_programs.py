"""What hooks see of programs that do not know us.  That these stay as they are is a matter of
`test_exec_programs.py`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from runwatch.testing import Story
from tests.integration.hooked_programs import Ran, ran, seconds, spans, steps


def needs(package: str) -> pytest.MarkDecorator:
    missing = find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


def at(story: Story, metric: str) -> list[int | None]:
    return [number.step for number in story.numbers if number.metric == metric]


# ── plain torch ───────────────────────────────────────────────────────────────────────────────


@needs("torch")
def test_a_program_that_fails_before_it_trains_is_a_failed_run(tmp_path: Path) -> None:
    program = "import torch\nprint('begun')\nraise ValueError('no such data')\n"
    hooked = ran(program, tmp_path)
    assert (hooked.code, hooked.out) == (1, "begun\n")
    assert hooked.err.endswith("ValueError: no such data\n") and "runwatch" not in hooked.err
    (end,) = hooked.story.bodies("run_end")
    assert end["status"] == "failed"


# One process for many loops: importing torch is most of the time.
LOOPS = """
import contextlib, sys, threading, time
import torch, runwatch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
data = TensorDataset(torch.arange(24.0).reshape(24, 1))
model = lambda: torch.nn.Linear(1, 1)
sgd = lambda net, **more: torch.optim.SGD(net.parameters(), lr=1e-6, **more)

@contextlib.contextmanager
def loop(name):
    with runwatch.init(name, auto=True):
        yield model()

def learn(net, batch, *optimizers):
    net(batch[0]).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()

with loop("accumulation") as net:
    update = sgd(net)
    for number, batch in enumerate(DataLoader(data, 2)):
        net(batch[0]).sum().backward()
        if number % 4 == 3:
            update.step()
            update.zero_grad()

with loop("gan") as net:
    other = model()
    both = sgd(net), sgd(other)
    for batch in DataLoader(data, 4):
        learn(net, batch, both[0])
        learn(other, batch, both[1])

with loop("gan-alone") as net:
    other = model()
    both = sgd(net), sgd(other)
    for number in range(6):
        learn(net, data[:4], both[0])
        learn(other, data[:4], both[1])

with loop("lbfgs") as net:
    update = torch.optim.LBFGS(net.parameters(), lr=1e-6, max_iter=5)
    def closure():
        update.zero_grad()
        loss = net(batch[0]).pow(2).sum()
        loss.backward()
        return loss
    for batch in DataLoader(data, 4):
        update.step(closure)

with loop("meta") as net:
    outer = sgd(net)
    for batch in DataLoader(data, 4):
        for task in range(2):
            copy = model()
            inner = sgd(copy)
            for _ in range(3):
                learn(copy, batch, inner)
        learn(net, batch, outer)

with loop("scaler") as net:
    update, scaler = sgd(net), torch.amp.GradScaler("cpu", init_scale=4.0)
    for number, batch in enumerate(DataLoader(data, 4)):
        update.zero_grad()
        loss = net(batch[0]).sum() * (float("inf") if number == 2 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()

with loop("evaluations") as net:
    update = sgd(net)
    for epoch in range(2):
        for batch in DataLoader(data, 4):
            learn(net, batch, update)
        with torch.no_grad():
            for batch in DataLoader(data, 4):
                net(batch[0])
        with torch.inference_mode():
            for batch in DataLoader(data, 4):
                break

with loop("evaluations-inside") as net:
    update = sgd(net)
    for epoch in range(3):
        for batch in DataLoader(data, 4):
            learn(net, batch, update)
        for batch in DataLoader(data, 4):
            with torch.no_grad():
                net(batch[0])
                time.sleep(0.003)

with loop("evaluations-amid") as net:
    update = sgd(net)
    for epoch in range(2):
        for number, batch in enumerate(DataLoader(data, 4)):
            net(batch[0]).sum().backward()
            if number == 4:
                break  # amid a step; and the next iterator may have the address of this one
            if number % 2:
                update.step()
        with torch.no_grad():
            for batch in DataLoader(data, 4):
                net(batch[0])

with loop("kept-workers") as net:
    update = sgd(net)
    batches = DataLoader(data, 4, num_workers=1, persistent_workers=True)  # one iterator for all
    for epoch in range(2):
        for number, batch in enumerate(batches):
            net(batch[0]).sum().backward()
            if number % 4 == 3:
                update.step()

with loop("whole-passes") as net:
    update = sgd(net)
    for epoch in range(4):
        for batch in DataLoader(data, 4):
            net(batch[0]).sum().backward()
            time.sleep(0.003)
        update.step()
        update.zero_grad()

with loop("resumed") as net:
    update = torch.optim.Adam(net.parameters(), lr=1e-6)
    learn(net, data[:4], update)
    state = update.state_dict()
    for entry in state["state"].values():
        entry["step"] += 99
    again = torch.optim.Adam(net.parameters(), lr=1e-6)
    again.load_state_dict(state)
    runwatch.init("resumed-later", auto=True)
    for batch in DataLoader(data, 12):
        learn(net, batch, again)

with loop("explicit") as net:
    update = sgd(net)
    for number, batch in runwatch.steps(DataLoader(data, 4), start=50):
        learn(net, batch, update)

with loop("elsewhere") as net:
    update, other = sgd(net), model()
    theirs = sgd(other)
    def beside():
        for batch in DataLoader(data, 1):
            learn(other, batch, theirs)
    for batch in DataLoader(data, 4):
        learn(net, batch, update)
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()

with loop("workers") as net:
    update = sgd(net)
    for batch in DataLoader(data, 4, num_workers=1):
        learn(net, batch, update)

class Slow:
    def __getstate__(self):
        time.sleep(0.06)
        return {}

with loop("saves") as net:
    update = sgd(net)
    for batch in DataLoader(data, 4):
        learn(net, batch, update)
        torch.save({"net": net.state_dict(), "slow": Slow()}, sys.argv[1] + "/saved.pt")

with contextlib.suppress(ImportError), loop("accelerate") as net:
    from accelerate import Accelerator
    helper = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net, update, batches = helper.prepare(net, sgd(net), DataLoader(data, 2))
    for epoch in range(2):
        for batch in batches:
            with helper.accumulate(net):
                helper.backward(net(batch[0]).sum())
                update.step()
                update.zero_grad()
        helper.log({"loss": 0.5, "note": "as a tracker would get it"}, step=epoch)
    helper.save_state(sys.argv[1] + "/state")
    helper.load_state(sys.argv[1] + "/state")

with loop("only-loading"):
    for batch in DataLoader(data, 4):
        pass
"""
EXPECTED = {
    "accumulation": range(3),
    "gan": range(6),
    "gan-alone": range(6),
    "lbfgs": range(6),
    "meta": range(6),
    "scaler": range(6),
    "evaluations": range(12),
    "evaluations-inside": range(18),
    "evaluations-amid": range(4),
    "kept-workers": range(2),
    "whole-passes": range(4),
    "resumed": range(1),
    "resumed-later": range(100, 102),
    "explicit": range(50, 56),
    "elsewhere": range(6),
    "workers": range(6),
    "saves": range(6),
    "accelerate": range(12),
    "only-loading": range(0),
}


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    return ran(LOOPS, tmp_path_factory.mktemp("loops"), hooks=False)


@pytest.mark.xdist_group("hooked loops")
@pytest.mark.parametrize("name", EXPECTED)
def test_a_loop_has_as_many_steps_as_it_takes(name: str, loops: Ran) -> None:
    assert (loops.code, loops.err) == (0, "")
    (told,) = (s for s in loops.stories if s.bodies("run_start")[0]["name"] == name)
    assert list(steps(told)) == list(EXPECTED[name])
    assert told.bodies("warning") == []
    assert spans(told, "evaluation") == {"evaluations": 4, "evaluations-amid": 2}.get(name, 0)
    assert len(seconds(told, "evaluation")) == (3 if name == "evaluations-inside" else 0)
    assert len(seconds(told, "checkpoint_save")) == (6 if name == "saves" else 0)
    first_is_late = name == "whole-passes"  # its loader had no more before the first update
    by_loader = name not in ("gan-alone", "resumed", "only-loading")
    waits = len(EXPECTED[name]) - first_is_late if by_loader else 0
    assert len(told.values("data_wait_seconds")) == waits


@pytest.mark.xdist_group("hooked loops")
@needs("accelerate")
def test_what_accelerate_logs_and_saves_is_told(loops: Ran) -> None:
    (told,) = (s for s in loops.stories if s.bodies("run_start")[0]["name"] == "accelerate")
    assert at(told, "loss") == [0, 1]
    assert spans(told, "checkpoint_save") == spans(told, "checkpoint_restore") == 1


# ── trainers ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.soak
@needs("transformers")
def test_a_trainer_of_hugging_face(tmp_path: Path) -> None:
    hooked = ran("hf_trainer", tmp_path, HF_HUB_OFFLINE="1")
    assert hooked.code == 0, hooked.err
    told = hooked.story
    assert list(steps(told)) == list(range(1, 13))  # as it counts itself
    assert at(told, "loss") == [3, 6, 9, 12]
    assert at(told, "eval_loss") == [6, 12]
    assert told.values("epoch")[0] == 0.0 and told.values("epoch")[-1] == 1.5
    assert spans(told, "evaluation") == spans(told, "checkpoint_save") == 2
    assert len(told.values("data_wait_seconds")) == 12
    (end,) = told.bodies("run_end")
    assert (end["status"], end["done"]) == ("completed", True)
    assert told.bodies("warning") == []


@pytest.mark.soak
@needs("pytorch_lightning")
def test_a_trainer_of_lightning(tmp_path: Path) -> None:
    hooked = ran("lightning_fit", tmp_path)
    assert hooked.code == 0, hooked.err
    told = hooked.story
    assert list(steps(told)) == list(range(1, 17))
    assert at(told, "train_loss") == [2, 4, 6, 8, 10, 12, 14, 16]
    assert at(told, "val_loss") == [8, 16]
    assert told.values("epoch") == [0.0, 1.0]
    assert spans(told, "evaluation") == spans(told, "checkpoint_save") == 2
    (end,) = told.bodies("run_end")
    assert (end["status"], end["done"]) == ("completed", True)
    assert told.bodies("warning") == []
