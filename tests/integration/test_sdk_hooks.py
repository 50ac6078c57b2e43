"""Hooks into the real frameworks, on the CPU, each in a process of its own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from runwatch.record import BEGIN, END
from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import run_program

# A value that takes its time to be written and to be read, on any machine.
SLOW = """
import time
class Slow:
    def __getstate__(self):
        time.sleep(0.06)
        return {"slow": True}
    def __setstate__(self, state):
        time.sleep(0.06)
"""
UNTIL = """
import time
def until(condition):
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""

torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
orbax = pytest.mark.skipif(
    find_spec("orbax") is None or find_spec("orbax.checkpoint") is None,
    reason="orbax-checkpoint is not installed",
)


def tell(program: str, directory: Path, *parts: str, **environment: str) -> Story:
    """What the program's only journal says; the program must have ended well."""
    lines = program.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join([*parts, *(line[indent:] for line in lines)])
    done = run_program(text, directory, **environment)
    assert done.returncode == 0, done.stderr
    (story,) = read_stories(directory)
    return story


def elapsed(story: Story) -> list[tuple[str, str]]:
    return [(body["name"], body["source"]) for body in story.bodies("elapsed")]


def within(story: Story, name: str) -> set[int | None]:
    """The steps that spans or elapsed stretches of this name lie in, by time."""
    begins = {e.span: e for e in story.edges if e.name == "step" and e.edge == BEGIN}
    steps = [
        (begins[e.span].time_ns, e.time_ns, e.step)
        for e in story.edges
        if e.name == "step" and e.edge == END
    ]
    ends = [e.time_ns for e in story.edges if e.name == name and e.edge == END]
    ends += [e.time_ns for e in story.events if e.kind == "elapsed" and e.body["name"] == name]
    return {
        next((step for begin, end, step in steps if begin <= moment <= end), None)
        for moment in ends
    }


@torch
def test_torch_save_and_load_of_a_model_are_checkpoints(tmp_path: Path) -> None:
    story = tell(
        """
        import inspect, pickle, torch, runwatch
        before = torch.save, torch.load
        run = runwatch.init("torch")
        assert torch.save is torch.serialization.save is not before[0]
        assert inspect.signature(torch.load) == inspect.signature(before[1])
        assert pickle.loads(pickle.dumps(torch.save)) is torch.save

        model = {"weights": torch.ones(3), "slow": Slow()}
        with run.step(3):
            torch.save(model, "model.pt")
        torch.save([model], "list.pt")
        def load(name):
            return torch.load(name, weights_only=False)
        with run.span("training_preparation"):
            assert load("model.pt")["weights"].tolist() == [1.0, 1.0, 1.0]
        for _ in run.steps(load(name) for name in ["model.pt"]):
            pass
        load("list.pt")
        try:
            torch.load("nothing.pt")
        except FileNotFoundError:
            run.finish()
        assert (torch.save, torch.load) == before
        """,
        tmp_path,
        f"import os; os.chdir({str(tmp_path)!r})",
        SLOW,
    )
    assert elapsed(story) == [
        ("checkpoint_save", "torch.serialization.save"),
        ("checkpoint_restore", "torch.serialization.load"),
    ]
    assert within(story, "checkpoint_save") == {3}
    assert all(body["seconds"] >= 0.05 for body in story.bodies("elapsed"))
    assert story.warnings == {}


@torch
def test_distributed_checkpoints_are_spans_and_what_they_do_beside_is_marked(
    tmp_path: Path,
) -> None:
    story = tell(
        """
        import torch, runwatch, torch.distributed.checkpoint as dcp
        before = dcp.save, dcp.async_save, dcp.load, dcp.state_dict_saver.save
        run = runwatch.init("distributed")
        state = {"weights": torch.arange(4.0), "slow": Slow()}
        with run.step(1):
            dcp.save(state, checkpoint_id="one")
        pending = dcp.async_save({"weights": torch.ones(4)}, checkpoint_id="two")
        getattr(pending, "upload_completion", pending).result()
        target = {"weights": torch.zeros(4)}
        dcp.load(target, checkpoint_id="one")
        assert target["weights"].tolist() == [0.0, 1.0, 2.0, 3.0]
        try:
            dcp.load(target, checkpoint_id="nothing")
        except dcp.CheckpointException:
            run.finish()
        assert (dcp.save, dcp.async_save, dcp.load, dcp.state_dict_saver.save) == before
        """,
        tmp_path,
        f"import os; os.chdir({str(tmp_path)!r})",
        SLOW,
    )
    save, restore = "checkpoint_save", "checkpoint_restore"
    spans = [(e.name, e.edge) for e in story.edges if e.name in (save, restore)]
    assert spans == [(name, edge) for name in (save, save, restore, restore) for edge in (0, 1)]
    beside = [e.edge for e in story.edges if e.name == "checkpoint_save/background"]
    assert beside == [BEGIN, END]
    assert elapsed(story) == []  # the torch.save inside is part of it
    assert 1 in within(story, save)
    assert story.warnings == {}


@torch
def test_a_process_killed_in_a_checkpoint_has_told_that_it_was_in_one(tmp_path: Path) -> None:
    done = run_program(
        f"""
        import os, signal, runwatch, torch.distributed.checkpoint as dcp
        class Model:
            def state_dict(self):
                os.kill(os.getpid(), signal.SIGKILL)
            def load_state_dict(self, state):
                pass
        run = runwatch.init("killed")
        with run.step(5):
            dcp.save({{"model": Model()}}, checkpoint_id={str(tmp_path / "one")!r})
        """,
        tmp_path,
    )
    assert done.returncode == -9
    (story,) = read_stories(tmp_path)
    assert [(e.name, e.edge, e.step) for e in story.edges] == [
        ("step", BEGIN, 5),
        ("checkpoint_save", BEGIN, 5),
    ]


@torch
def test_torch_compiles_in_spans_forward_and_backward(tmp_path: Path) -> None:
    story = tell(
        """
        import threading, torch, runwatch
        before = torch.compile
        run = runwatch.init("compile")
        model = torch.compile(torch.nn.Linear(4, 4), backend="aot_eager")
        for step in range(2):
            with run.step(step):
                loss = model(torch.ones(2, 4)).sum()
                backward = threading.Thread(target=loss.backward)  # as autograd has for a GPU
                backward.start(); backward.join()
        from torch._dynamo.callback import callback_handler
        lists = callback_handler.start_callbacks, callback_handler.end_callbacks
        torch._dynamo.reset()
        assert lists == ([], [])
        until(lambda: [len(each) for each in lists] == [1, 1])
        run.finish()
        assert lists == ([], []) and torch.compile is before
        model(torch.ones(2, 4))
        """,
        tmp_path,
        UNTIL,
    )
    assert within(story, "compile") == {0}
    assert {e.name for e in story.edges} == {"step", "compile"}
    edges = [e.edge for e in story.edges if e.name == "compile"]
    assert edges == [BEGIN, END] * (len(edges) // 2)
    assert story.warnings == {}


@torch
def test_a_framework_imported_after_the_run_began_is_noticed(tmp_path: Path) -> None:
    story = tell(
        """
        import runwatch
        run = runwatch.init("late")
        import torch
        original = torch.serialization.save
        original = getattr(original, "__wrapped__", original)
        until(lambda: torch.save is not original)
        torch.save({"slow": Slow()}, "model.pt")
        """,
        tmp_path,
        f"import os; os.chdir({str(tmp_path)!r})",
        SLOW,
        UNTIL,
    )
    assert elapsed(story) == [("checkpoint_save", "torch.serialization.save")]


@torch
def test_a_forked_child_keeps_its_checkpoints_to_itself(tmp_path: Path) -> None:
    story = tell(
        """
        import os, torch, runwatch, torch.distributed.checkpoint as dcp
        run = runwatch.init("parent")
        child = os.fork()
        if child == 0:
            torch.save({"slow": Slow()}, "model.pt")
            dcp.save({"step": 1}, checkpoint_id="one")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        tmp_path,
        f"import os; os.chdir({str(tmp_path)!r})",
        SLOW,
    )
    assert (story.edges, elapsed(story)) == ([], [])


@jax
def test_jax_compiles_once_per_function_and_says_so(tmp_path: Path) -> None:
    story = tell(
        """
        import time, threading, jax, jax.numpy as jnp, runwatch
        from jax._src import monitoring
        run = runwatch.init("jax")
        slowly = lambda x: (time.sleep(0.02), x @ x)[1]  # as it is traced, not as it runs
        x = jnp.ones((4, 4))
        inner = jax.jit(slowly)
        outer = jax.jit(lambda x: inner(inner(x)) + 1)
        for step in range(2):
            with run.step(step):
                outer(x).block_until_ready()
        thread = threading.Thread(target=lambda: jax.jit(slowly)(x + 1))
        thread.start(); thread.join()
        run.finish()
        assert monitoring.get_event_duration_listeners() == []
        assert monitoring.get_scalar_listeners() == []
        """,
        tmp_path,
    )
    compiled = [e for e in story.events if e.kind == "elapsed" and e.body["name"] == "compile"]
    assert 0 in within(story, "compile")
    assert 1 not in within(story, "compile")
    stretches = sorted((e.time_ns - round(e.body["seconds"] * 1e9), e.time_ns) for e in compiled)
    pairs = zip(stretches, stretches[1:], strict=False)
    assert all(end <= begin for (_, end), (begin, _) in pairs)  # none in two of them
    assert ("compile/background", "jax") in elapsed(story)
    assert story.warnings == {}


@jax
def test_listeners_that_someone_has_cleared_are_no_trouble(tmp_path: Path) -> None:
    story = tell(
        """
        import jax, runwatch
        run = runwatch.init("cleared")
        jax.monitoring.clear_event_listeners()
        jax.jit(lambda x: x + 1)(1.0)
        """,
        tmp_path,
    )
    assert story.warnings == {}


@orbax
def test_orbax_saves_and_restores_are_checkpoints(tmp_path: Path) -> None:
    story = tell(
        """
        import inspect, jax.numpy as jnp, orbax.checkpoint as ocp, runwatch
        before = ocp.CheckpointManager.save, ocp.Checkpointer.restore, ocp.AsyncCheckpointer.save
        run = runwatch.init("orbax")
        assert inspect.signature(ocp.CheckpointManager.save) == inspect.signature(before[0])
        tree = {"weights": jnp.arange(4.0)}
        options = ocp.CheckpointManagerOptions(save_interval_steps=2)
        with ocp.CheckpointManager(os.path.abspath("managed"), options=options) as manager:
            for step in range(3):
                with run.step(step):
                    saved = manager.save(step, args=ocp.args.StandardSave(tree))
                    assert saved is (step != 1)
            manager.wait_until_finished()
            restored = manager.restore(2, args=ocp.args.StandardRestore())
        assert restored["weights"].tolist() == [0.0, 1.0, 2.0, 3.0]
        with ocp.PyTreeCheckpointer() as plain:
            plain.save(os.path.abspath("plain"), tree)
            assert plain.restore(os.path.abspath("plain"))["weights"].shape == (4,)
            try:
                plain.restore(os.path.abspath("nothing"))
            except FileNotFoundError:
                run.finish()
        after = ocp.CheckpointManager.save, ocp.Checkpointer.restore, ocp.AsyncCheckpointer.save
        assert after == before
        """,
        tmp_path,
        f"import os; os.chdir({str(tmp_path)!r})",
    )
    spans = [e.name for e in story.edges if e.name.startswith("checkpoint") and e.edge == END]
    save, restore = "checkpoint_save", "checkpoint_restore"
    assert spans == [save, save, restore, save, restore, restore]
    assert [e.step for e in story.edges if e.name == save and e.edge == END] == [0, 2, 2]
    assert story.warnings == {}


@torch
@jax
def test_nothing_is_touched_when_hooks_are_off(tmp_path: Path) -> None:
    story = tell(
        """
        import jax, torch, torch.distributed.checkpoint as dcp, runwatch
        before = torch.save, torch.load, torch.compile, dcp.save
        run = runwatch.init("off")
        assert (torch.save, torch.load, torch.compile, dcp.save) == before
        assert jax._src.monitoring.get_event_duration_listeners() == []
        torch.save({"slow": Slow()}, "model.pt")
        """,
        tmp_path,
        f"import os; os.chdir({str(tmp_path)!r})",
        SLOW,
        RUNWATCH_HOOKS="off",
    )
    assert (story.edges, elapsed(story)) == ([], [])
