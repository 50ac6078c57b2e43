"""A temporary directory for each test session, and an end for all that its tests have started.

Both go when the session is over, and when it was killed (see `reaper.py`).  A process that outlives
the tests fails the run.  The directory of a run that fails is kept until the next one fails.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from tests import reaper

SECONDS: Final = 20
"""What has been told to end may take a moment."""
PREFIX: Final = "rw-"
KEPT: Final = "runwatch/kept"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Sandbox(config))


class Sandbox:
    """In the pytest controller: workers inherit the directory and the mark."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._keep = False
        self._directory = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self._directory.chmod(0o1777)  # as /tmp: some programs of tests are other users'
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._directory)
        if config.option.basetemp is None:
            config.option.basetemp = self._directory / "t"  # short: paths of sockets are
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            self._reaper, self._mark = reaper.start(self._directory)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Runs after fixtures of the session and workers have ended."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._report_processes(session)
        self._keep = session.testsfailed > 0

    def _report_processes(self, session: pytest.Session) -> None:
        deadline = time.monotonic() + SECONDS
        while (left := reaper.marked(self._mark, os.getpid())) and time.monotonic() < deadline:
            time.sleep(0.1)
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        reports = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
        failed = {report.nodeid for report in reports}
        for process, test in map(reaper.describe, left):
            if test in failed:
                reporter.write_line(f"\nleft by a failed test, {test}: {process}")
                continue
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            report = pytest.TestReport(
                nodeid=test or "tests", location=(test.partition("::")[0], None, test or "tests"),
                keywords={}, outcome="failed", longrepr=f"left behind: {process}", when="teardown",
            )  # fmt: skip
            self._config.hook.pytest_runtest_logreport(report=report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._keep:
            terminalreporter.write_line(f"the files of the tests are kept in {self._directory}")

    def pytest_unconfigure(self) -> None:
        if self._keep and (cache := getattr(self._config, "cache", None)):
            if (before := Path(cache.get(KEPT, ""))).name.startswith(PREFIX):
                reaper.remove(before)
            cache.set(KEPT, str(self._directory))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._reaper.communicate(b"keep" if self._keep else b"end", timeout=2 * reaper.SECONDS)
