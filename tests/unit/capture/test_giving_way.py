"""How a trace of ours is ended for one of the program's own."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from runwatch.capture.tracing import jax_trace
from runwatch.capture.tracing.traces import TraceOptions, giving_way


def broken() -> bool:
    raise RuntimeError("the profiler is broken")


def test_a_failure_of_ours_does_not_reach_the_program() -> None:
    told: list[str] = []
    giving_way(broken, "torch.profiler", told.append)()
    assert told == ["torch.profiler"]


def test_a_trace_that_has_ended_is_not_told_of_again() -> None:
    told: list[str] = []
    giving_way(lambda: False, "torch.profiler", told.append)()
    assert told == []


def test_a_forked_child_leaves_the_trace_of_its_parent_alone() -> None:
    calls: list[str] = []

    def end() -> bool:
        calls.append("end")
        return True

    give_way = giving_way(end, "torch.profiler", calls.append)
    child = os.fork()
    if child == 0:
        give_way()
        os._exit(len(calls))
    assert os.waitpid(child, 0)[1] == 0
    give_way()
    assert calls == ["end", "torch.profiler"]


def test_the_programs_trace_goes_on_when_ours_could_not_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = SimpleNamespace(
        lock=threading.Lock(), profile_session=SimpleNamespace(stop=broken), reset=lambda: None
    )
    stopped: list[str] = []
    profiler = SimpleNamespace(stop_trace=lambda: stopped.append("the program's"))
    monkeypatch.setitem(sys.modules, "jax.profiler", profiler)
    monkeypatch.setattr(jax_trace, "_state", lambda: state)
    ours = jax_trace.make()
    monkeypatch.setitem(
        sys.modules, "jax", SimpleNamespace(profiler=SimpleNamespace(start_trace=lambda _: None))
    )
    told: list[str] = []
    ours.start(tmp_path, "trace", TraceOptions(), told.append)
    with state.lock:  # as the program's own `start_trace` does
        pass
    assert told == ["jax.profiler"]
    assert ours.stop() == [] and stopped == []
