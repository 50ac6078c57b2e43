"""The page while things happen: a run that trains, a head that goes away and comes back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.address import Listening
from runwatch.testing import until
from tests import tokens
from tests.e2e.browsing import Visitor, log_in, needs_browser, needs_page, visitor
from tests.integration.chromium import Chromium
from tests.integration.processes import Cluster, end

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page-live")]
HAPPENED = "section[aria-label^=What]"


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[str]:
    """`runwatch demo` from its first moment on; the address of its page."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    environment["RUNWATCH_DIR"] = str(tmp_path)
    command = [
        sys.executable,
        "-m",
        "runwatch.cli",
        "demo",
        "--serve",
        "--dir",
        str(tmp_path / "d"),
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)", process.stdout.readline())
        assert found is not None
        yield tokens.remember(Listening(found[1], "", found[2], process.pid)).http
    finally:
        end(process, signal.SIGINT)
        process.stdout.close()


STEP = (
    "Number([...document.querySelectorAll('.head dl div')]"
    ".find(e => e.innerText.startsWith('step'))?.querySelector('dd').innerText.replace(',', ''))"
)


def longest_wait(page: Visitor) -> int:
    """Which line of the list tells of it, from 1 on."""
    found: int = page.see(
        f"""(() => {{ const lines = [...document.querySelectorAll('{HAPPENED} li')];
        const size = {{ms: 1e-3, s: 1, min: 60}};
        const waited = lines.map((e) => /([\\d.]+) (ms|s|min)[^a-z]*([\\d.]+ s )?waiting for data/
            .exec(e.innerText)).map((m) => (m ? m[1] * size[m[2]] : 0));
        return Math.max(...waited) ? waited.indexOf(Math.max(...waited)) + 1 : 0; }})()"""
    )
    return found


def test_a_newcomer_sees_the_demo_train_crash_and_go_on(browser: Chromium, demo: str) -> None:
    log_in(browser, demo)
    with visitor(browser, demo) as page:
        page.go()
        page.sees("demo-spirals", "tbody")
        page.sees("running", "tbody")
        page.page.evaluate("window.sameAsBefore = true")
        page.click_text("demo-spirals", "a")
        page.see("document.querySelector('.head dl')?.innerText.includes('step')")
        page.see(f"{STEP} > 20")
        seen = page.page.evaluate(STEP)
        page.see(f"{STEP} > {seen}")
        page.sees("live", ".range")
        for words, where in (
            ("rank 1 killed by SIGKILL", HAPPENED),
            ("attempt 2 started: 4 ranks", HAPPENED),
            ("completed", ".head"),
        ):  # each after processes have started and trained
            page.sees(words, where, seconds=90)
        page.sees("waiting for data", HAPPENED)
        page.sees("steps lost", HAPPENED)

        def is_blamed() -> bool:
            """The list may still change: what was said last comes when the run is over."""
            page.click(f"{HAPPENED} li:nth-of-type({longest_wait(page)}) button")
            page.there("section[aria-label=Details]")
            return "Rank 2 on" in " ".join(page.texts("section[aria-label=Details]"))

        until(is_blamed, 60, "rank 2 to be named")
        assert page.page.evaluate("window.sameAsBefore") is True  # nobody had to reload


def test_a_head_that_is_away_is_told_and_comes_back_by_itself(
    browser: Chromium, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    try:
        at = cluster.start_head()
        cluster.start_agent()
        trainer = cluster.start_trainer(hertz=20)
        trainer.wait_for(20)
        with browser.open("about:blank") as page:
            log_in(browser, at.http)
            seen = Visitor(page, at.http)
            seen.go(f"run/{trainer.run}")
            seen.see(f"{STEP} >= 0")
            cluster.stop_head()
            seen.sees("The head has not answered since", "[role=alert]")
            before = seen.page.evaluate(STEP)
            cluster.start_head()
            seen.see("!document.querySelector('[role=alert]')")
            seen.see(f"{STEP} > {before}")
    finally:
        cluster.close()
