"""`import runwatch as wandb`, within one process; `tests/integration` runs whole programs."""

from __future__ import annotations

import argparse
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import runwatch
import runwatch as wandb
from runwatch import _wandb_names
from runwatch.sdk.guard import tally
from runwatch.sdk.run import Run
from runwatch.sdk.wandb_like import calls, media, start
from runwatch.sdk.wandb_like.run import LikeWandb
from runwatch.testing import Story, read_stories


@pytest.fixture(autouse=True)
def nothing_begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(start, "_nameless", [])
    monkeypatch.setattr(media, "_kept", 0)
    for variable in start._ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)
    yield


def begin(**given: Any) -> LikeWandb:
    run = wandb.init(**given)
    assert isinstance(run, LikeWandb)
    return run


def test_the_names_are_there_and_those_that_are_not_say_why() -> None:
    assert set(calls.__all__) == _wandb_names.OFFERED
    for name in _wandb_names.OFFERED:
        assert getattr(wandb, name) is getattr(calls, name)
    for name in ("sweep", "Api"):
        with pytest.raises(AttributeError, match=r"runwatch has|no attribute .*: \w+"):
            getattr(wandb, name)
    assert not hasattr(wandb, "controller")
    assert wandb.run is None
    assert wandb.login(key="x", relogin=True)


def test_name_and_project_are_name_and_group(story: Callable[[], Story]) -> None:
    run = begin(
        project="mnist", entity="us", name="first try", tags=["a", "b"], notes="why", job_type="t"
    )
    assert wandb.run is run
    assert (run.name, run.group, run.project) == ("first try", "mnist", "mnist")
    assert (run.tags, run.notes, run.path) == (("a", "b"), "why", f"us/mnist/{run.id}")
    told = story().config("user")["wandb"]
    assert told == {
        "project": "mnist", "entity": "us", "tags": ["a", "b"], "notes": "why", "job_type": "t"
    }  # fmt: skip


def test_a_group_within_a_project() -> None:
    assert begin(project="mnist", group="sweep", name="x").group == "mnist/sweep"


def test_our_own_init_is_as_it_was(story: Callable[[], Story]) -> None:
    code = compile("run = runwatch.init('ours', group='g', config={'a': 1})", "x", "exec")
    space: dict[str, Any] = {"runwatch": runwatch}
    exec(code, space)  # in a module that does not know us as wandb
    run: Run = space["run"]
    assert type(run) is Run
    run.log(loss=1.0)
    with run.step(7):
        run.log(loss=2.0)
    assert story().steps("loss") == [None, 7]


def test_rows_count_up(story: Callable[[], Story]) -> None:
    run = begin(project="p", name="rows")
    run.log({"loss": 3.0})
    run.log({"loss": 2.0}, commit=False)
    run.log({"acc": 0.5})
    wandb.log({"loss": 1.0})
    run.log({"loss": 0.5}, step=10)
    run.log({"acc": 0.7})
    run.log({"acc": 0.8})
    with run.step(20):
        run.log({"acc": 0.9})
    told = story()
    assert told.steps("loss") == [0, 1, 2, 10]
    assert told.steps("acc") == [1, 10, 11, 20]


def test_the_step_is_a_number_and_a_call(story: Callable[[], Story]) -> None:
    run = begin(project="p", name="steps")
    run.log({"loss": 1.0})
    assert (run.step, run.step % 2, pickle.loads(pickle.dumps(run.step))) == (1, 1, 1)
    wandb.log({"loss": 2.0}, step=run.step)
    with run.step(7):
        assert run.step == 7
        run.log({"loss": 3.0})
    for step, _ in run.steps("ab", start=8):
        assert run.step == step
    told = story()
    assert told.steps("loss") == [0, 1, 7]
    assert [e.step for e in told.edges if e.name == "step"] == [7, 7, 8, 8, 9, 9]
    assert told.warnings == {}


def test_what_programs_print_of_a_run(tmp_path: Path) -> None:
    run = begin(project="p", name="printed", dir=tmp_path)
    told = (run.id, run.name, run.project, run.entity, run.url, run.get_url(), run.dir, run.path)
    assert all(isinstance(word, str) for word in told)
    assert not hasattr(run, "no_such_thing")


def test_what_is_logged_may_be_deep_or_no_number(story: Callable[[], Story]) -> None:
    run = begin(project="p", name="deep")
    table = wandb.Table(columns=["x", "y"], data=[[1, "a"], [2, "b"]])
    table.add_data(3, "c")
    assert table.get_column("x") == [1, 2, 3]
    run.log({"train": {"loss": 1.0, "by": {"layer": 2}}, "note": "hello"})
    run.log({"h": wandb.Histogram([1, 2, 2, 3], num_bins=2), "t": table})
    run.log(
        {"i": wandb.Image("cat.png", caption="a cat"), "is": [wandb.Image("a"), wandb.Image("b")]}
    )
    run.log({"few": [1, 2, 3], "many": [float(n) for n in range(100)], "one": [7]})
    run.log({"plot": wandb.plot.confusion_matrix(preds=[1], y_true=[0])})
    told = story()
    assert told.values("train.loss") == [1.0]
    assert told.values("train.by.layer") == [2.0]
    assert told.values("one") == [7.0]
    texts = {body["name"]: body["value"] for body in told.bodies("log")}
    assert texts["note"] == "hello"
    assert texts["h"] == {"type": "Histogram", "counts": [1.0, 3.0], "bins": [1.0, 2.0, 3.0]}
    assert texts["t"]["columns"] == ["x", "y"]
    assert (texts["t"]["rows"], texts["t"]["first_rows"][2]) == (3, [3, "c"])
    assert texts["i"] == {"type": "Image", "size": "cat.png", "caption": "a cat"}
    assert texts["few"] == "[1, 2, 3]"
    assert sum(texts["many"]["counts"]) == 100
    assert told.warnings["wandb Image"] == 2


def test_histograms_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("numpy")
    for numbers in ([1, 2, 2, 3], [5.0], [0.0, float("nan"), float("inf"), 1.0]):
        with_numpy = wandb.Histogram(numbers, num_bins=4)
        array = wandb.Histogram(numpy.array([numbers]), num_bins=4)
        with monkeypatch.context() as without:
            without.delitem(sys.modules, "numpy")
            slowly = wandb.Histogram(numbers, num_bins=4)
        assert with_numpy.told() == array.told() == slowly.told()
    assert wandb.Histogram([]).told()["counts"] == []
    assert wandb.Histogram(np_histogram=([1, 2], [0, 1, 2])).histogram == [1.0, 2.0]
    assert wandb.Histogram(object()).histogram == []  # counted


def test_pictures_are_counted_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    monkeypatch.setattr(media, "MAX_KEPT", 3)
    run = begin(project="p", name="pictures")
    for _ in range(10):
        run.log({"i": wandb.Image("x")})
    told = story()
    assert len(told.bodies("log")) == 3
    assert told.warnings["wandb media"] == 7


def test_the_summary_is_what_was_logged_last_and_what_the_program_sets(
    story: Callable[[], Story],
) -> None:
    run = begin(project="p", name="summary")
    run.define_metric("loss", summary="min")
    wandb.define_metric("val/*", step_metric="epoch", summary="max")
    for loss in (3.0, 1.0, 2.0):
        run.log({"loss": loss, "val/acc": 1 / loss, "lr": 0.1})
    assert run.summary["lr"] == run.summary.lr == 0.1
    assert run.summary["loss"] == {"min": 1.0}
    assert run.summary["val/acc"] == {"max": 1.0}
    wandb.summary["best"] = 0.9
    run.summary.update({"epochs": 3})
    assert story().config("user") == {"summary": {"best": 0.9, "epochs": 3}}


def test_the_config_in_all_its_ways(story: Callable[[], Story]) -> None:
    run = begin(
        project="p",
        name="config",
        config={"lr": 1, "secretive": 2, "kept": 3},
        config_exclude_keys=["secretive"],
    )
    wandb.config.batch = 32
    wandb.config.update(argparse.Namespace(epochs=5), allow_val_change=True)
    wandb.config.setdefaults({"lr": 7, "depth": 4})
    expected = {"lr": 1, "kept": 3, "batch": 32, "epochs": 5, "depth": 4}
    assert wandb.config.as_dict() == dict(run.config) == expected
    wandb.config = {"assigned": True}  # type: ignore[assignment]  # as old programs do
    assert story().config("user") == {**expected, "assigned": True}
    assert "config" not in vars(runwatch)


def test_runs_without_a_name_are_one_after_another(tmp_path: Path) -> None:
    first = begin(project="p")
    assert begin(project="p") is first
    wandb.finish()
    second = begin(project="p")
    assert second is not first
    assert second.name == f"{first.name}-2"
    third = begin(project="p", reinit=True)
    assert (third.name, second.status) == (f"{first.name}-3", "completed")
    assert begin(project="p", id="mine", resume="allow").id == "mine"


def test_a_disabled_run_records_nothing(place: Path) -> None:
    run = begin(project="p", mode="disabled")
    for step in range(3):
        with run.step(step):
            run.log({"loss": 1.0, "i": wandb.Image("x")})
    run.summary["x"] = 1
    wandb.finish()
    assert read_stories(place) == []
    assert "no journal" not in tally.counts


def test_wandbs_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "from outside")
    monkeypatch.setenv("WANDB_NAME", "named")
    monkeypatch.setenv("WANDB_TAGS", "a,b")
    run = begin()
    assert (run.name, run.group, run.tags) == ("named", "from outside", ("a", "b"))


def test_unknown_arguments_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    run = begin(project="p", name="x", settings=wandb.Settings(quiet=True), warp_drive=9)
    assert run.name == "x"
    (record,) = [r for r in caplog.records if "warp_drive" in r.getMessage()]
    assert tally.counts == {"init warp_drive": 1}


def test_what_has_no_effect_is_taken_politely(
    story: Callable[[], Story], caplog: pytest.LogCaptureFixture
) -> None:
    run = begin(project="p", name="polite")
    wandb.watch(object(), log="all")
    run.watch(object())
    run.unwatch()
    wandb.save("model.pt")
    artifact = wandb.Artifact("weights", type="model", metadata={"a": 1})
    artifact.add_file("model.pt")
    with artifact.new_file("notes.txt") as file:
        file.write("hello")
    assert run.log_artifact(artifact).wait() is artifact
    wandb.alert("Low accuracy", "it is 0.1", level=wandb.AlertLevel.WARN)
    run.mark_preempting()
    assert wandb.use_artifact("data:latest").name == "data:latest"
    assert len(wandb.util.generate_id()) == 8
    told = story()
    texts = {body["name"]: body["value"] for body in told.bodies("log")}
    assert texts["artifact"]["files"] == ["model.pt", "notes.txt"]
    assert texts["alert"] == {"title": "Low accuracy", "text": "it is 0.1", "level": "WARN"}
    assert told.warnings["wandb watch"] == 2
    assert sum("watch" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("given", "status"),
    [({}, "completed"), ({"exit_code": 0}, "completed"), ({"exit_code": 3}, "failed")],
)
def test_an_exit_code_is_a_failure(
    given: dict[str, Any], status: str, story: Callable[[], Story]
) -> None:
    begin(project="p", name="ends")
    wandb.finish(**given)
    assert story().end["status"] == status


def test_finish_takes_the_code_first_too(story: Callable[[], Story]) -> None:
    begin(project="p", name="ends").finish(1)  # type: ignore[arg-type]
    assert (story().end["status"], story().end["reason"]) == ("failed", "exit code 1")


def test_wandbs_own_arguments_are_known() -> None:
    ours = inspect.signature(wandb.init).parameters
    given = pytest.importorskip("wandb")
    theirs = set(inspect.signature(given.init).parameters)
    assert theirs <= set(ours) | start._WANDB


def test_files_have_a_folder(tmp_path: Path) -> None:
    run = begin(project="p", name="files", dir=tmp_path / "there")
    (Path(run.dir) / "weights").write_text("x")
    assert run.dir.startswith(str(tmp_path / "there"))
