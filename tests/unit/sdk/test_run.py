from __future__ import annotations

import argparse
import math
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import runwatch
from runwatch.record import BEGIN, END
from runwatch.sdk import front
from runwatch.sdk.guard import record, tally
from runwatch.sdk.run import Run
from runwatch.testing import Story, read_stories

Tell = Callable[[], Story]


def test_what_is_logged_is_in_the_journal(story: Tell) -> None:
    run = runwatch.init("first", group="sweep")
    run.log(loss=0.5)
    run.log(loss=0.25, lr=0.001)
    run.log({"loss": 0.125, "lr": 1}, step=7)
    told = story()
    assert told.values("loss") == [0.5, 0.25, 0.125]
    assert told.values("lr") == [0.001, 1.0]
    assert told.steps("loss") == [None, None, 7]
    assert told.scopes[0].run == "first"
    assert told.scopes[0].group == "sweep"
    assert told.end == {"status": "completed", "explicit": True, "done": True}


def test_a_record_is_there_before_the_call_returns(place: Path) -> None:
    run = runwatch.init("at-once")
    run.log(loss=1.5)
    (told,) = read_stories(place)
    assert told.values("loss") == [1.5]


def test_the_start_says_who_and_where(story: Tell) -> None:
    runwatch.init("who")
    (start,) = story().bodies("run_start")
    assert start["run"] == "who"
    assert start["argv"] == sys.argv
    assert start["world_size"] == 1


def test_repeated_keys_take_the_quick_way_with_the_same_result(story: Tell) -> None:
    run = runwatch.init("plans")
    for i in range(3):
        run.log({"a": i, "b": i / 2, "c": 0.5}, step=i)
        run.log({"c": 9.0, "a": 8.0}, step=i)
    told = story()
    assert told.values("a") == [0.0, 8.0, 1.0, 8.0, 2.0, 8.0]
    assert told.values("c") == [0.5, 9.0] * 3
    assert told.steps("b") == [0, 1, 2]


def test_a_dict_and_keywords_go_together(story: Tell) -> None:
    run = runwatch.init("both")
    for _ in range(2):
        run.log({"a": 1.0}, b=2.0)
        run.log({"a": 1.0, "b": 5.0}, a=3.0)
        run.log({}, b=4.0)
        run.log()
    told = story()
    assert told.values("a") == [1.0, 3.0] * 2
    assert told.values("b") == [2.0, 5.0, 4.0] * 2
    assert told.warnings == {}


def test_steps_record_spans_times_and_the_number(story: Tell) -> None:
    run = runwatch.init("steps")
    seen = []
    for step, item in run.steps("abc", start=10):
        seen.append((step, item))
        run.log(loss=float(step))
    told = story()
    assert seen == [(10, "a"), (11, "b"), (12, "c")]
    assert told.steps("loss") == [10, 11, 12]
    assert told.steps("step_seconds") == told.steps("data_wait_seconds") == [10, 11, 12]
    assert [(e.edge, e.step) for e in told.edges] == [
        (BEGIN, 10), (END, 10), (BEGIN, 11), (END, 11), (BEGIN, 12), (END, 12)
    ]  # fmt: skip
    seconds = told.values("step_seconds")[0]
    begin, end = told.edges[0].time_ns, told.edges[1].time_ns
    assert seconds == pytest.approx((end - begin) / 1e9)


def test_leaving_the_loop_ends_the_step(story: Tell) -> None:
    run = runwatch.init("break")
    for _step, _item in run.steps(range(5)):
        break
    assert [e.edge for e in story().edges] == [BEGIN, END]


def test_a_loader_that_fails_fails_in_the_program(story: Tell) -> None:
    def loader() -> Any:
        yield 1
        raise OSError("no more data")

    run = runwatch.init("loader")
    with pytest.raises(OSError, match="no more data"):
        for _ in run.steps(loader()):
            pass
    assert len(story().edges) == 2


def test_a_step_cut_short_has_an_end_and_no_time(story: Tell) -> None:
    run = runwatch.init("cut")
    with pytest.raises(RuntimeError), run.step(3):
        raise RuntimeError
    with run.step(4):
        pass
    told = story()
    assert [e.step for e in told.edges] == [3, 3, 4, 4]
    assert told.steps("step_seconds") == [4]


def test_spans_carry_the_step_they_are_in(story: Tell) -> None:
    run = runwatch.init("spans")
    with run.step(5), run.span("checkpoint_save"):
        pass
    told = story()
    assert [(e.name, e.edge, e.step) for e in told.edges] == [
        ("step", BEGIN, 5),
        ("checkpoint_save", BEGIN, 5),
        ("checkpoint_save", END, 5),
        ("step", END, 5),
    ]


def test_strings_and_dicts_become_log_lines(story: Tell) -> None:
    run = runwatch.init("lines")
    run.log(note="warming up", table={"a": [1, math.nan], 2: object})
    lines = story().bodies("log")
    assert lines[0] == {"name": "note", "value": "warming up"}
    assert lines[1]["value"]["a"] == [1, "nan"]
    assert lines[1]["value"]["2"] == str(object)


def test_a_list_keeps_each_device_and_the_mean(story: Tell) -> None:
    run = runwatch.init("devices")
    run.log(duty=[10, 20, 60.0])
    told = story()
    assert told.values("duty") == [30.0]
    assert [told.values("duty", str(i)) for i in range(3)] == [[10.0], [20.0], [60.0]]


def test_nan_and_infinity_are_kept(story: Tell) -> None:
    run = runwatch.init("nonfinite")
    for value in (math.nan, math.inf, -math.inf):
        run.log(loss=value)
    values = story().values("loss")
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize("value", [None, [], (), 1j, object(), b"12", ["a"], [[1, 2], [3]], {1, 2}])
def test_what_cannot_be_recorded_is_counted_and_the_rest_recorded(
    value: Any, story: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    run = runwatch.init("odd")
    for _ in range(3):
        run.log({"odd": value, "loss": 1.0})
    told = story()
    assert told.values("loss") == [1.0, 1.0, 1.0]
    assert list(told.warnings.values()) == [3]
    assert len([r for r in caplog.records if r.name == "runwatch"]) == 1


class _Hostile:
    def __float__(self) -> float:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_a_hostile_value_harms_nothing(story: Tell) -> None:
    run = runwatch.init("hostile", config={"it": _Hostile()})
    run.log({"it": _Hostile(), "loss": 1.0})
    run.log({"it": {"deep": _Hostile()}})
    run.log(_Hostile())  # type: ignore[arg-type]
    run.log({_Hostile(): 1.0})  # type: ignore[dict-item]
    run.log(loss=2.0, step=_Hostile())  # type: ignore[arg-type]
    told = story()
    assert told.values("loss") == [1.0, 2.0]
    assert told.config("user") == {"it": "<_Hostile>"}


@pytest.mark.parametrize("step", [2**63, -(2**70), "7", 1.5, object()])
def test_a_step_that_is_none_leaves_the_value(step: Any, story: Tell) -> None:
    run = runwatch.init("step")
    run.log(loss=1.0)
    run.log(loss=2.0, step=step)
    told = story()
    assert told.values("loss") == [1.0, 2.0]
    assert told.steps("loss") == [None, None]
    assert list(told.warnings.values()) == [1]


def test_names_may_be_anything_written(story: Tell) -> None:
    run = runwatch.init("names")
    run.log({"a/b c": 1.0, "\ud800x": 2.0, "é" * 2000: 3.0, "": 4.0})
    told = story()
    metrics = {n.metric: n.value for n in told.numbers}
    assert metrics == {"a/b c": 1.0, "?x": 2.0, "é" * 512: 3.0}
    assert told.warnings == {"name too long": 1, "name empty": 1}


def test_the_config_is_recorded_again_when_it_changes(story: Tell) -> None:
    run = runwatch.init("config", config={"lr": 1e-3, "nested": {"a": (1, 2)}})
    run.config["batch"] = 32
    run.config.seed = 4
    run.config.update(lr=2e-3)
    told = story()
    assert told.config("user") == {"lr": 2e-3, "nested": {"a": [1, 2]}, "batch": 32, "seed": 4}
    assert told.config("software")["runwatch"] == runwatch.__version__
    assert told.config("system")["cpu_count"] >= 1


@dataclass
class _Settings:
    lr: float = 0.1


@pytest.mark.parametrize("config", [{"lr": 0.1}, _Settings(), argparse.Namespace(lr=0.1)])
def test_a_config_may_be_kept_in_many_ways(config: Any, story: Tell) -> None:
    runwatch.init("config", config=config)
    assert story().config("user") == {"lr": 0.1}


def test_the_software_is_recorded_again_after_an_import(story: Tell) -> None:
    run = runwatch.init("imports")
    run._collect()
    run._collected = ()  # as if numpy had not been there yet
    import numpy as np

    told = story()
    assert told.config("software")["versions"]["numpy"] == np.__version__


def test_init_again_returns_the_run_that_is_going_on(story: Tell) -> None:
    run = runwatch.init("same", config={"a": 1})
    assert runwatch.init("same", config={"b": 2}) is run
    told = story()
    assert told.config("user") == {"a": 1, "b": 2}
    assert len(told.bodies("run_start")) == 1


def test_another_name_ends_the_first_run(place: Path) -> None:
    first = runwatch.init("one")
    second = runwatch.init("two")
    second.log(loss=1.0)
    second.finish()
    one, two = read_stories(place)
    assert first.status == "completed"
    assert (one.scopes[0].run, one.end["status"]) == ("one", "completed")
    assert two.values("loss") == [1.0]


def test_after_the_end_a_new_attempt_of_the_same_run(place: Path) -> None:
    runwatch.init("again").finish()
    runwatch.init("again").finish()
    assert [s.scopes[0].run for s in read_stories(place)] == ["again", "again"]


def test_two_runs_of_one_job_stay_apart(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWATCH_RUN_ID", "job-17")
    runwatch.init("one")
    runwatch.init("two").finish()
    one, two = (s.scopes[0].run for s in read_stories(place))
    assert one == "job-17"
    assert two.startswith("job-17-")


def test_said_before_there_is_a_run_is_delivered_with_its_time(story: Tell) -> None:
    runwatch.log(loss=1.0)
    record("loss", 2.0, step=4)
    runwatch.log(note="early")
    before = front._state.waiting._clock.wall_ns()
    runwatch.init("late")
    runwatch.log(loss=3.0)
    told = story()
    assert told.values("loss") == [1.0, 2.0, 3.0]
    assert [n.time_ns < before for n in told.numbers if n.metric == "loss"] == [True, True, False]
    assert told.bodies("log") == [{"name": "note", "value": "early"}]


def test_what_waits_is_bounded_and_the_rest_counted(story: Tell) -> None:
    for i in range(10_007):
        runwatch.log(loss=float(i))
    runwatch.init("bounded")
    told = story()
    assert len(told.values("loss")) == 10_000
    assert told.warnings["before a run"] == 7


def test_after_finish_nothing_is_recorded_and_it_is_counted(story: Tell) -> None:
    run = runwatch.init("over")
    run.log(loss=1.0)
    told = story()
    run.log(loss=2.0)
    record("loss", 3.0)
    run.finish()
    with run.span("late"), run.step(1):
        pass
    run.config.x = 1
    assert told.values("loss") == [1.0]
    assert tally.counts["after finish"] == 2


def test_other_ranks_record_steps_but_not_metrics(
    story: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    run = runwatch.init("ranks")
    for _step, _ in run.steps(range(2)):
        run.log(loss=1.0)
        run.log(loss=1.0, lr=0.5)
    told = story()
    assert (told.scopes[0].rank, told.scopes[0].world_size) == (3, 8)
    assert {n.metric for n in told.numbers} == {"step_seconds", "data_wait_seconds"}


def test_all_ranks_record_when_asked(story: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    run = runwatch.init("ranks", record_on_all_hosts=True)
    run.log(loss=1.0)
    assert story().values("loss") == [1.0]


def test_the_context_manager_says_how_it_ended(place: Path) -> None:
    with runwatch.init("fine"):
        pass
    with pytest.raises(ValueError, match="broken"), runwatch.init("bad"):
        raise ValueError("broken")
    fine, bad = read_stories(place)
    assert fine.end["status"] == "completed"
    assert (bad.end["status"], bad.end["exception"]) == ("failed", "ValueError: broken")


def test_finish_takes_a_status_and_a_reason(story: Tell) -> None:
    runwatch.init("status").finish(status="failed", reason="loss diverged")
    assert story().end == {"status": "failed", "reason": "loss diverged", "explicit": True}


def test_threads_log_at_once_and_nothing_is_lost(story: Tell) -> None:
    run = runwatch.init("threads")
    together = threading.Barrier(4)

    def work(thread: int) -> None:
        together.wait()
        for i in range(5_000):
            run.log({f"t{thread}": float(i)}, step=i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = story()
    for i in range(4):
        assert told.values(f"t{i}") == [float(n) for n in range(5_000)]


@pytest.mark.parametrize("name", ["..", "/etc/passwd", "a\0b", "x" * 10_000, "\ud800", "", "  "])
def test_no_name_of_a_run_can_do_harm(name: str, place: Path, story: Tell) -> None:
    runwatch.init(name).log(loss=1.0)
    told = story()
    run_id = told.scopes[0].run
    assert told.values("loss") == [1.0]
    assert 0 < len(run_id) <= 64
    assert set(run_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-._")
    assert run_id.strip(".") == run_id
    assert len(told.scopes[0].name) <= 200
    assert [p.name for p in place.iterdir()] == ["journals"]


def test_a_place_that_cannot_be_written_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("RUNWATCH_DIR", str(blocked / "runwatch"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    runwatch.init("moved").log(loss=1.0)
    runwatch.finish()
    (fallback,) = tmp_path.glob("runwatch-*")
    (told,) = read_stories(fallback)
    assert told.values("loss") == [1.0]
    (warning,) = [r.getMessage() for r in caplog.records if r.name == "runwatch"]
    assert str(blocked / "runwatch") in warning
    assert str(fallback) in warning


def test_where_there_is_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RUNWATCH_DIR", "~no-such-user-here/runwatch")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    runwatch.init("lost").log(loss=1.0)
    runwatch.finish()
    (fallback,) = tmp_path.iterdir()
    assert fallback.name.startswith("runwatch-")
    assert "no home" in caplog.text


def test_a_fallback_that_is_someone_elses_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"runwatch-{os.getuid()}").symlink_to(elsewhere)
    monkeypatch.setenv("RUNWATCH_DIR", "/dev/null/runwatch")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    runwatch.init("refused").log(loss=1.0)
    assert list(elsewhere.iterdir()) == []
    assert tally.counts["no journal"] == 2


def test_with_no_place_at_all_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("RUNWATCH_DIR", str(blocked / "a"))
    monkeypatch.setenv("TMPDIR", str(blocked))
    run = runwatch.init("homeless", config={"a": 1})
    for _ in run.steps(range(3)):
        run.log(loss=1.0)
    run.config.b = 2
    run.finish()
    assert tally.counts["no journal"] == 4  # the place itself, and three values


def test_without_a_run_the_calls_do_nothing() -> None:
    assert list(runwatch.steps("ab", start=3)) == [(3, "a"), (4, "b")]
    with runwatch.step(1), runwatch.span("x"):
        pass
    runwatch.finish()
    assert runwatch.current_run() is None
    assert tally.counts == {"no run": 3}


def test_the_config_set_before_the_run_is_its_beginning(story: Tell) -> None:
    runwatch.config.update(lr=0.5)
    runwatch.init("config")
    runwatch.config.seed = 1
    assert story().config("user") == {"lr": 0.5, "seed": 1}


def test_hooks_are_ours_only_while_the_run_goes_on() -> None:
    before = sys.excepthook
    run = runwatch.init("hooks")
    assert sys.excepthook is not before
    run.finish()
    assert sys.excepthook is before


def test_a_hook_set_later_by_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(sys, "excepthook", lambda *_: calls.append("first"))
        run = runwatch.init("hooks")
        ours = sys.excepthook

        def theirs(*error: Any) -> None:
            calls.append("theirs")
            ours(*error)

        sys.excepthook = theirs
        run.finish()
        assert sys.excepthook is theirs
        theirs(ValueError, ValueError(), None)
        assert calls == ["theirs", "first"]


def test_too_many_metrics_are_counted_not_fatal(
    story: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_SEGMENT_BYTES", str(1 << 20))
    run = runwatch.init("many")
    for i in range(1_500):
        run.log({f"{i:04}" + "x" * 900: 1.0})
    run.log({"0000" + "x" * 900: 2.0})
    told = story()
    assert 0 < len(told.numbers) < 1_500
    assert told.numbers[-1].value == 2.0
    assert sum(told.warnings.values()) == 1_501 - len(told.numbers)


def test_a_run_says_what_it_is() -> None:
    run: Run = runwatch.init("shown")
    assert repr(run) == "<runwatch run shown rank 0/1 running>"
    assert runwatch.current_run() is run
