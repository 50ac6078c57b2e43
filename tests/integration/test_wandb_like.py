"""Programs written for wandb, with one line changed, each as a process of its own."""

from __future__ import annotations

from pathlib import Path

from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import run_program

QUICK_START = """
import random
import runwatch as wandb

wandb.login()
with wandb.init(
    entity="my-team",
    project="my-project",
    config={"learning_rate": 0.02, "architecture": "CNN", "epochs": 10},
) as run:
    print(run.project, wandb.run is run, wandb.config.epochs, run.config["learning_rate"])
    offset = random.random() / 5
    for epoch in range(2, run.config.epochs):
        acc = 1 - 2**-epoch - random.random() / epoch - offset
        loss = 2**-epoch + random.random() / epoch + offset
        run.log({"acc": acc, "loss": loss})
    run.summary["best"] = acc
print(wandb.run)
"""

HABITS = """
def main():
    import runwatch as wandb
    import argparse

    args = argparse.Namespace(lr=0.1, batch=32)
    wandb.init(project="habits", config=args, name=f"lr-{args.lr}", save_code=True, sync=9)
    wandb.define_metric("epoch")
    wandb.define_metric("val/*", step_metric="epoch")
    wandb.watch(object(), log="all", log_freq=10)
    step = 0
    for epoch in range(3):
        for batch in range(4):
            wandb.log({"train/loss": 1.0 / (step + 1)}, step=step)
            step += 1
        wandb.log({"val/acc": epoch / 3, "epoch": epoch})
    table = wandb.Table(columns=["id", "label"])
    table.add_data(0, "cat")
    wandb.log({"examples": table, "picture": wandb.Image(b"...", caption="x")})
    wandb.alert(title="done", text="all of it")
    wandb.run.name = "renamed"
    print(wandb.run.id, wandb.run.summary["train/loss"])
    wandb.finish()

main()
"""

ONE_AFTER_ANOTHER = """
import runwatch as wandb
for lr in (0.1, 0.2, 0.3):
    wandb.init(project="loop", config={"lr": lr})
    wandb.log({"loss": lr})
    wandb.finish()
"""

FAILS = """
import runwatch as wandb
wandb.init(project="fails", name="it")
wandb.log({"loss": float("nan")})
raise ValueError("this went wrong")
"""


def stories(program: str, directory: Path, *, code: int = 0) -> tuple[str, list[Story]]:
    done = run_program(program, directory)
    assert done.returncode == code, done.stderr
    return done.stdout, read_stories(directory)


def test_the_quick_start(tmp_path: Path) -> None:
    said, (story,) = stories(QUICK_START, tmp_path)
    assert said.splitlines() == ["my-project True 10 0.02", "None"]
    assert story.steps("acc") == story.steps("loss") == list(range(8))
    assert story.scopes[0].group == "my-project"
    configs = [body["values"] for body in story.bodies("config") if body["part"] == "user"]
    assert configs[0] == {"learning_rate": 0.02, "architecture": "CNN", "epochs": 10}
    assert configs[-1]["summary"]["best"] == story.values("acc")[-1]
    assert story.end["status"] == "completed"


def test_common_habits(tmp_path: Path) -> None:
    said, (story,) = stories(HABITS, tmp_path)
    assert said.split() == [story.scopes[0].run, str(1.0 / 12)]
    assert story.steps("train/loss") == list(range(12))
    assert story.steps("val/acc") == [3, 7, 11]
    assert story.scopes[0].name == "lr-0.1"
    texts = {body["name"]: body["value"] for body in story.bodies("log")}
    assert texts["examples"]["first_rows"] == [[0, "cat"]]
    assert texts["alert"]["text"] == "all of it"
    assert {"init sync", "wandb watch", "wandb Image"} <= set(story.warnings)


def test_runs_in_a_loop_are_several_runs(tmp_path: Path) -> None:
    _, told = stories(ONE_AFTER_ANOTHER, tmp_path)
    assert len({story.scopes[0].run for story in told}) == 3
    assert [story.values("loss") for story in told] == [[0.1], [0.2], [0.3]]


def test_a_program_that_fails(tmp_path: Path) -> None:
    _, (story,) = stories(FAILS, tmp_path, code=1)
    assert story.end["status"] == "failed"
    assert "this went wrong" in str(story.end["exception"])


def test_a_program_without_a_free_descriptor_goes_on(tmp_path: Path) -> None:
    done = run_program(
        """
        import os, resource
        import runwatch as wandb
        import logging
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        wandb.login()
        run = wandb.init(project="p", name="x", config={"a": 1})
        wandb.config.update({"b": 2})
        run.define_metric("loss", summary="min")
        run.log({"loss": 1.0, "h": wandb.Histogram([1, 2])}, step=3, commit=False)
        run.summary["best"] = 1
        wandb.watch(None)
        wandb.alert("x", "y")
        wandb.finish(exit_code=0)
        print(wandb.run, hasattr(wandb, "__wrapped__"))
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "None False\n"), done.stderr
    assert done.stderr.count("nothing is recorded") == 1


def test_a_run_that_a_hook_began_becomes_the_programs(tmp_path: Path) -> None:
    """A logger is used before `init`, as where an import logs something."""
    done = run_program(
        """
        import sys, types
        trackio = types.ModuleType("trackio")
        class Run:
            config = {}
            def log(self, metrics, step=None): pass
        trackio.Run, trackio.init = Run, Run
        sys.modules["trackio"] = trackio
        from runwatch.sdk import auto
        auto.begin()

        trackio.init().log({"early": 1.0})
        import runwatch as wandb
        wandb.init(project="p", config={"lr": 1}).log({"loss": 2.0})
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (story,) = read_stories(tmp_path)
    assert (story.values("early"), story.values("loss")) == ([1.0], [2.0])
    assert story.scopes[-1].group == "p"
    assert story.warnings == {}
