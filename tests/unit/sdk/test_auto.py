"""Hooks that are set as frameworks are imported, and a run that begins at the first sign."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runwatch.sdk import auto, front
from runwatch.sdk.hooks import install
from runwatch.sdk.hooks.teller import Teller
from runwatch.testing import read_stories

HOOK = """
import sys

def install(tell):
    sys.modules["framework"].tellers.append(tell)
"""


@pytest.fixture(autouse=True)
def all_is_undone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    hook = sys.excepthook
    yield
    front.finish()
    auto.end()
    install._process = None
    sys.excepthook = hook


@pytest.fixture
def framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A framework that can be imported, and a hook of ours for it."""
    (tmp_path / "framework.py").write_text("tellers = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    hook: Any = ModuleType("runwatch.sdk.hooks.of_framework")
    exec(textwrap.dedent(HOOK), vars(hook))
    monkeypatch.setitem(sys.modules, hook.__name__, hook)
    for module in (auto, install):
        monkeypatch.setattr(module, "AUTO_HOOKS", (("framework", "of_framework"),))
        monkeypatch.setattr(module, "HOOKS", ())  # another test may have imported torch
    yield "framework"
    sys.modules.pop("framework", None)


def teller_of(framework: str) -> Teller:
    (teller,) = importlib.import_module(framework).tellers
    assert isinstance(teller, Teller)
    return teller


def test_a_hook_is_set_when_its_framework_has_been_imported(framework: str) -> None:
    auto.begin()
    module = importlib.import_module(framework)
    assert len(module.tellers) == 1
    assert module.__spec__ is not None
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(module.__spec__.loader)
    assert front.current_run() is None


def test_a_framework_that_is_there_already_gets_its_hook_at_once(framework: str) -> None:
    importlib.import_module(framework)
    auto.begin()
    assert teller_of(framework).expects


def test_a_run_begins_at_the_first_sign_and_as_early_as_the_process(
    framework: str, place: Path
) -> None:
    auto.begin()
    tell = teller_of(framework)
    before = tell.now()
    tell.elapsed("checkpoint_restore", before - 50_000_000, before, beside=False, source="load")
    assert front.current_run() is None
    tell.metrics({"loss": 0.5}, step=3)
    run = front.current_run()
    assert run is not None and run is tell.run
    tell.metrics({"loss": 0.25}, step=4)
    front.finish()
    (story,) = read_stories(place)
    assert story.values("loss") == [0.5, 0.25]
    (early,) = story.bodies("elapsed")
    assert (early["name"], early["source"]) == ("checkpoint_restore", "load")


def test_the_programs_own_run_is_the_one_that_is_told(framework: str, place: Path) -> None:
    auto.begin()
    tell = teller_of(framework)
    run = front.init("mine")
    tell.metrics({"loss": 0.5})
    assert tell.run is run is front.current_run()
    run.finish()
    tell.metrics({"loss": 0.25})  # the program has said that it is over
    assert front.current_run() is None
    again = front.init("another")
    tell.metrics({"loss": 0.125})
    again.finish()
    first, second = sorted(read_stories(place), key=lambda story: story.values("loss")[0])[::-1]
    assert (first.values("loss"), second.values("loss")) == ([0.5], [0.125])


def test_hooks_for_one_run_end_with_it(framework: str) -> None:
    module = importlib.import_module(framework)
    finders = list(sys.meta_path)
    run = front.init("hooked", auto=True)
    tell = teller_of(framework)
    assert tell.run is run
    run.finish()
    assert sys.meta_path == finders
    assert install._process is None
    module.tellers.clear()
    front.init("plain")
    assert module.tellers == []


def test_hooks_can_be_forbidden(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWATCH_HOOKS", "off")
    finders = list(sys.meta_path)
    auto.begin()
    assert sys.meta_path == finders


def test_a_framework_that_fails_to_import_fails_as_before(framework: str, tmp_path: Path) -> None:
    (tmp_path / "framework.py").write_text("raise RuntimeError('no device')\n")
    auto.begin()
    with pytest.raises(RuntimeError, match="no device"):
        importlib.import_module(framework)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("framework_that_is_not_there")


def test_finders_that_ask_the_others_too_do_not_go_round_in_circles(framework: str) -> None:
    class Curious:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            return importlib.util.find_spec(name) if name == framework and self.once() else None

        asked = False

        def once(self) -> bool:
            first, self.asked = not self.asked, True
            return first

    curious = Curious()
    sys.meta_path.insert(0, curious)
    try:
        auto.begin()
        assert len(importlib.import_module(framework).tellers) == 1
    finally:
        sys.meta_path.remove(curious)


def test_an_uncaught_exception_in_a_process_that_has_a_framework_is_a_failed_run(
    framework: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: shown.append(error))
    auto.begin()
    error = ValueError("no such dataset")
    sys.excepthook(ValueError, error, None)
    assert shown == [error] and front.current_run() is None  # it has no framework
    importlib.import_module(framework)
    sys.excepthook(ValueError, error, None)
    front.finish()
    (story,) = read_stories(place)
    assert [end["status"] for end in story.bodies("run_end")] == ["failed"]
    assert shown == [error, error]


def test_workers_of_loaders_and_pools_are_not_part_of_a_run(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto.begin()
    tell = teller_of(framework)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    tell.metrics({"loss": 0.5})
    assert front.current_run() is None


def test_launchers_are_not_part_of_a_run(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/torchrun", "train.py"])
    auto.begin()
    importlib.import_module(framework)
    sys.excepthook(ValueError, ValueError("a child failed"), None)
    assert front.current_run() is None


@pytest.mark.parametrize("trains", [False, True])
def test_a_run_that_hooks_began_too_early_makes_way_for_the_programs_own(
    trains: bool, framework: str, place: Path
) -> None:
    auto.begin()
    tell = teller_of(framework)
    tell.metrics({"loss": 0.5})
    if trains:
        tell.step_ended("deepspeed")
    mine = front.init("mine")
    tell.metrics({"loss": 0.25})
    mine.finish()
    first, second = read_stories(place)
    if first.bodies("run_start")[0]["name"] == "mine":
        first, second = second, first
    assert [body["run"] for body in first.bodies("joined")] == ([] if trains else ["mine"])
    assert second.values("loss") == [0.25]
