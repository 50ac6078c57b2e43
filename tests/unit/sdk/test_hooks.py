"""What all hooks have in common.  The frameworks themselves are in the integration tests."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from runwatch.record import BEGIN, END
from runwatch.sdk import front
from runwatch.sdk.guard import tally
from runwatch.sdk.hooks import HOOKS, compile_jax
from runwatch.sdk.hooks.checkpoint_torch import _is_state
from runwatch.sdk.hooks.install import Hooks, is_loaded, wanted
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.identity import identify
from runwatch.sdk.run import Run
from runwatch.testing import FakeClock, Story
from tests.unit.journal.journal_help import (
    SECOND,
)

Tell = Callable[[], Story]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def run(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Without hooks of its own, so that a test's are the only ones."""
    monkeypatch.setenv("RUNWATCH_HOOKS", "off")
    made = front.begin(identify("clocked"), lambda who: Run(who, clock=clock), {}, Run)
    monkeypatch.delenv("RUNWATCH_HOOKS")
    return made


@pytest.fixture
def tell(run: Run) -> Teller:
    return Teller(run)


def elapsed(story: Story) -> list[tuple[str, float]]:
    return [(body["name"], body["seconds"]) for body in story.bodies("elapsed")]


def names(story: Story) -> list[str]:
    return [edge.name for edge in story.edges if edge.edge == BEGIN]


# ── standing in for a function ────────────────────────────────────────────────────────────────


def two_modules() -> tuple[Any, Any]:
    """A package that offers a function of one of its modules."""

    def save(obj: object, /, path: str, *, fast: bool = True) -> str:
        """Write it."""
        return f"{path} {fast}"

    inner: Any = ModuleType("framework.inner")
    outer: Any = ModuleType("framework")
    inner.save = outer.save = save
    return outer, inner


def test_a_wrapped_function_looks_and_works_as_before_and_comes_back(tell: Teller) -> None:
    outer, inner = two_modules()
    original = outer.save
    tell.replace("save", [outer, inner], lambda f: tell.spanned("checkpoint_save", f))
    assert outer.save is inner.save is not original
    assert inspect.signature(outer.save) == inspect.signature(original)
    assert (outer.save.__name__, outer.save.__doc__) == ("save", "Write it.")
    assert outer.save(1, "here", fast=False) == "here False"
    with pytest.raises(TypeError, match="path"):
        outer.save(1)
    for undo in tell.at_the_end:
        undo()
    assert outer.save is inner.save is original


def test_a_place_that_keeps_something_else_under_the_name_is_left_alone(tell: Teller) -> None:
    outer, inner = two_modules()
    inner.save = print
    tell.replace("save", [outer, inner], lambda f: tell.spanned("checkpoint_save", f))
    assert inner.save is print


def test_what_another_has_wrapped_since_stays_and_ours_inside_is_silent(
    tell: Teller, story: Tell
) -> None:
    outer, _ = two_modules()
    tell.replace("save", [outer], lambda f: tell.spanned("checkpoint_save", f))
    ours = outer.save

    def theirs(*args: Any) -> Any:
        return ours(*args)

    outer.save = theirs
    for undo in tell.at_the_end:
        undo()
    tell.deaf = True
    assert outer.save is theirs
    assert outer.save(1, "here") == "here True"
    assert story().edges == []


# ── telling ───────────────────────────────────────────────────────────────────────────────────


def test_calls_inside_one_another_are_told_once(
    tell: Teller, clock: FakeClock, story: Tell
) -> None:
    torch_save = tell.timed("checkpoint_save", lambda: clock.advance(1))
    distributed_save = tell.spanned("checkpoint_save", torch_save)
    tell.spanned("checkpoint_save", distributed_save)()
    tell.timed("checkpoint_save", torch_save)()
    told = story()
    assert names(told) == ["checkpoint_save"]
    assert elapsed(told) == [("checkpoint_save", 1.0)]


def test_what_is_sure_is_told_inside_what_was_only_likely(
    tell: Teller, clock: FakeClock, story: Tell
) -> None:
    save = tell.spanned("checkpoint_save", lambda: clock.advance(1))

    def manage() -> None:
        clock.advance(2)
        save()

    tell.timed("checkpoint_save", manage)()
    told = story()
    assert names(told) == ["checkpoint_save"]
    assert elapsed(told) == [("checkpoint_save", 3.0)]


def test_a_call_is_told_after_an_exception_has_ended_an_earlier_one(
    tell: Teller, clock: FakeClock, story: Tell
) -> None:
    def fail(how: bool) -> None:
        clock.advance(1)
        if how:
            raise OSError("disk full")

    sure, likely = tell.spanned("compile", fail), tell.timed("evaluation", fail)
    for call in (sure, likely):
        with pytest.raises(OSError, match="disk full"):
            call(True)
        call(False)
    told = story()
    assert [e.edge for e in told.edges] == [BEGIN, END] * 2
    assert elapsed(told) == [("evaluation", 1.0)]


@pytest.mark.parametrize(("milliseconds", "told"), [(49, 0), (50, 1)])
def test_a_short_call_is_not_told(
    milliseconds: int, told: int, tell: Teller, clock: FakeClock, story: Tell
) -> None:
    tell.timed("checkpoint_save", lambda: clock.advance(milliseconds / 1e3), short_ns=50_000_000)()
    assert len(elapsed(story())) == told


def test_a_likely_call_in_another_thread_or_a_wait_for_data_is_not_told(
    run: Run, tell: Teller, clock: FakeClock, story: Tell
) -> None:
    load = tell.timed("checkpoint_restore", lambda: clock.advance(1))
    thread = threading.Thread(target=load)
    thread.start()
    thread.join()

    def shards() -> Iterator[int]:
        load()
        yield 1

    for _ in run.steps(shards()):
        pass
    for _ in run.data(shards()):
        pass
    told = story()
    assert elapsed(told) == []
    assert told.values("data_wait_seconds") == [1.0]


def test_a_sure_call_in_another_thread_is_beside_the_steps(tell: Teller, story: Tell) -> None:
    def save() -> None: ...

    thread = threading.Thread(target=tell.spanned("checkpoint_save", save))
    thread.start()
    thread.join()
    assert names(story()) == ["checkpoint_save/background"]


def test_a_question_about_a_call_that_fails_stays_with_us(
    tell: Teller, clock: FakeClock, story: Tell
) -> None:
    def ask(args: Any, kwargs: Any, result: Any) -> bool:
        raise RuntimeError(result)

    def save(seconds: int) -> str:
        clock.advance(seconds)
        return "saved"

    assert tell.timed("checkpoint_save", save, counts=ask)(1) == "saved"
    assert elapsed(story()) == []
    assert list(tally.counts.values()) == [1]


@pytest.mark.parametrize(
    ("value", "counts"),
    [({"weights": 1}, True), ([1, 2], False), ("text", False), (None, False)],
)
def test_what_looks_like_the_state_of_a_model(value: object, counts: bool) -> None:
    assert _is_state(value) is counts


# ── setting hooks ─────────────────────────────────────────────────────────────────────────────


def test_every_hook_has_a_file_that_needs_no_framework() -> None:
    for _, home in HOOKS:
        assert callable(import_module(f"runwatch.sdk.hooks.{home}").install)


def test_a_module_counts_when_it_has_been_imported_to_its_end() -> None:
    module = ModuleType("framework")
    module.__spec__ = ModuleSpec("framework", None)
    assert not is_loaded("framework", {})
    module.__spec__._initializing = True  # type: ignore[attr-defined]
    assert not is_loaded("framework", {"framework": module})
    module.__spec__._initializing = False  # type: ignore[attr-defined]
    assert is_loaded("framework", {"framework": module})
    assert is_loaded("bare", {"bare": ModuleType("bare")})


@pytest.mark.parametrize(("value", "is_wanted"), [("off", False), (" OFF ", False), ("", True)])
def test_hooks_can_be_forbidden(value: str, is_wanted: bool) -> None:
    assert wanted({"RUNWATCH_HOOKS": value}) is is_wanted


def test_a_framework_that_is_not_what_it_was_is_left_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, _ in HOOKS:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    hooks = Hooks(run)
    for _ in range(2):
        hooks.look()
    hooks.remove()
    assert tally.counts == {  # each tried once
        "set the hook checkpoint_torch: KeyError": 1,
        "set the hook compile_torch: KeyError": 1,
        "set the hook compile_jax: AttributeError": 1,
    }


def test_a_finished_run_sets_no_more_hooks(run: Run) -> None:
    hooks = Hooks(run)
    hooks.remove()
    hooks.look({name: ModuleType(name) for name, _ in HOOKS})
    assert hooks._seen == set()


# ── JAX's stages ──────────────────────────────────────────────────────────────────────────────

TRACE, LOWER, COMPILE = compile_jax.STAGES


class Jax:
    """Says what JAX would say."""

    def __init__(self, listener: compile_jax.Listener, clock: FakeClock) -> None:
        self.listener, self.clock = listener, clock

    def begin(self, stage: str) -> None:
        self.listener._on_scalar(stage, 0.0, fun_name="f")

    def end(self, stage: str, seconds: float) -> None:
        self.listener._on_duration(stage, seconds, fun_name="f")

    def stage(self, stage: str, seconds: float) -> None:
        self.begin(stage)
        self.clock.advance(seconds)
        self.end(stage, seconds)


@pytest.fixture
def jax(tell: Teller, clock: FakeClock) -> Jax:
    return Jax(compile_jax.Listener(tell), clock)


def test_the_stages_of_a_compilation_are_one_stretch(
    jax: Jax, clock: FakeClock, story: Tell
) -> None:
    began = clock.wall_ns()
    for stage, seconds in ((TRACE, 1), (LOWER, 2), (COMPILE, 4)):
        jax.stage(stage, seconds)
        clock.advance(0.03125)
    (event,) = (e for e in story().events if e.kind == "elapsed")
    assert event.body == {"name": "compile", "seconds": 7.0625, "source": "jax"}
    assert event.time_ns - began == 7.0625 * SECOND


def test_a_stage_inside_another_counts_once(jax: Jax, clock: FakeClock, story: Tell) -> None:
    jax.begin(TRACE)
    for stage in (TRACE, LOWER, COMPILE):
        jax.stage(stage, 1)
    clock.advance(1)
    jax.end(TRACE, 4)
    jax.stage(LOWER, 1)
    jax.stage(COMPILE, 1)
    assert elapsed(story()) == [("compile", 6.0)]


def test_compilations_one_after_another_are_apart(jax: Jax, story: Tell) -> None:
    for seconds in (1, 2):
        jax.stage(TRACE, seconds)
        jax.stage(COMPILE, seconds)
    assert elapsed(story()) == [("compile", 2.0), ("compile", 4.0)]


def test_stages_far_from_one_another_are_apart(jax: Jax, clock: FakeClock, story: Tell) -> None:
    jax.stage(TRACE, 1)
    clock.advance(5)
    jax.stage(COMPILE, 2)
    assert elapsed(story()) == [("compile", 1.0), ("compile", 2.0)]


def test_what_is_traced_and_not_compiled_is_told_when_nothing_follows(
    jax: Jax, clock: FakeClock, story: Tell
) -> None:
    jax.stage(TRACE, 1)
    jax.listener.look()
    assert len(jax.listener._last) == 1  # the next stage may be about to begin
    clock.advance(1)
    jax.begin(LOWER)
    jax.listener.look()
    assert len(jax.listener._last) == 1  # it has begun
    clock.advance(3)
    jax.end(LOWER, 3)
    clock.advance(1)
    jax.listener.look()
    assert elapsed(story()) == [("compile", 1.0), ("compile", 3.0)]


def test_short_compilations_are_not_told(jax: Jax, story: Tell) -> None:
    for _ in range(3):
        for stage in (TRACE, LOWER, COMPILE):
            jax.stage(stage, 0.003)
    assert elapsed(story()) == []


def test_a_version_that_does_not_say_when_a_stage_begins(
    jax: Jax, clock: FakeClock, story: Tell
) -> None:
    for stage in (TRACE, LOWER, COMPILE):
        clock.advance(1)
        jax.end(stage, 1)
    jax.end("/jax/orbax/write/total_duration_secs", 9)
    assert elapsed(story()) == [("compile", 3.0)]


def test_a_compilation_in_another_thread_is_beside_the_steps(jax: Jax, story: Tell) -> None:
    thread = threading.Thread(target=jax.stage, args=(COMPILE, 1))
    thread.start()
    thread.join()
    assert elapsed(story()) == [("compile/background", 1.0)]
