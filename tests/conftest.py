"""What every test may count on."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from runwatch import testing
from runwatch.logs import Sparing
from tests import fork_server

pytest_plugins = ["tests.sandbox", "tests.time_report"]

LONGEST_PART_OF_A_NAME = 100
EXAMPLES_IN_A_TEST, EXAMPLES_IN_A_SOAK = 1 / 3, 10.0
"""Share of the examples that a Hypothesis test asks for by its settings."""
FEWEST_EXAMPLES = 5

# The same examples everywhere; how long one takes only says what else the machine does.
settings.register_profile("runwatch", deadline=None, derandomize=True, database=None)
settings.load_profile("runwatch")

# Threads of torch and of OpenBLAS spin while they wait for each other: on a busy machine that costs
# several times what a program costs with one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# With `make shake` `until` checks late, too: a test that waits for a state that passes is found.
if "SHAKEN" in os.environ:
    _late, _until = sys.modules["sitecustomize"].late, testing.until
    testing.until = lambda condition, *more, **named: _until(
        _late(condition, 0.2, 1.0), *more, **named
    )

# A shell without job control starts what runs in the background with Ctrl-C ignored, and children
# inherit that: programs under test would never be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def commands_are_forked() -> Iterator[None]:
    """Started by a fork server, which has imported them already."""
    with fork_server.install():
        yield


@pytest.fixture(autouse=True)
def limit_of_open_files_stays() -> Iterator[None]:
    """A head that a test serves in this process raises it, and no command would be forked then."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    if resource.getrlimit(resource.RLIMIT_NOFILE) != before:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(autouse=True)
def all_is_said() -> Iterator[None]:
    """A command that a test runs in this process holds lines back, on pytest's handlers too."""
    yield
    for handler in (*logging.getLogger().handlers, logging.lastResort):
        if handler is None:
            continue
        for each in handler.filters[:]:
            if isinstance(each, Sparing):
                handler.removeFilter(each)


def pytest_runtest_setup() -> None:
    """Raises deadlines with the machine's load.  A deadline only ends a test that fails."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    testing.patience = min(max(2.0, 2 * load), 5.0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Eight thousand tests stay until the end: the garbage collector need not look at them again,
    neither while they are found nor after each test that collects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # extensions report what is never freed


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Hypothesis tests try a part of their examples in a run of the tests, and many in a soak."""
    soak = config.option.markexpr == "soak"
    share = EXAMPLES_IN_A_SOAK if soak else EXAMPLES_IN_A_TEST
    scaled = set()
    for item in items:
        function = getattr(item, "function", None)
        if not is_hypothesis_test(function) or item.get_closest_marker("soak"):
            continue
        if soak:
            item.add_marker("soak")
        if function not in scaled:
            scaled.add(function)
            scale_examples(function, share)


def scale_examples(function: Any, share: float) -> None:
    usual = function._hypothesis_internal_use_settings
    fewest = min(usual.max_examples, FEWEST_EXAMPLES)
    examples = max(int(usual.max_examples * share), fewest)
    function._hypothesis_internal_use_settings = settings(usual, max_examples=examples)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names stay short, and never hold the clock: a zip has it, and two workers would disagree."""
    if isinstance(val, bytes):
        return argname
    if isinstance(val, str) and len(val) > LONGEST_PART_OF_A_NAME:
        return f"{ascii(val[:40])[1:-1]}~{len(val)}"
    return None
