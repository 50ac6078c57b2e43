"""What every test may count on."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from runwatch import testing
from runwatch.logs import Sparing
from tests.integration.chromium import NO_BROWSER

HOW_TO_GET_IT = "skipped without a browser (to run them: install chromium)"

LONGEST_PART_OF_A_NAME = 100

# The same examples everywhere; how long one takes only says what else the machine does.
settings.register_profile("runwatch", deadline=None, derandomize=True, database=None)
settings.load_profile("runwatch")

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


def pytest_sessionfinish() -> None:
    """At the end all goes: extensions that look for what was never freed find nothing."""
    gc.unfreeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names stay short, and never hold the clock: a zip has it, and two workers would disagree."""
    if isinstance(val, bytes):
        return argname
    if isinstance(val, str) and len(val) > LONGEST_PART_OF_A_NAME:
        return f"{ascii(val[:40])[1:-1]}~{len(val)}"
    return None


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """The closing line counts what only a missing browser kept from running, and says how to."""
    if report.skipped and NO_BROWSER in str(report.longrepr):
        return HOW_TO_GET_IT, "s", "SKIPPED"
    return None
