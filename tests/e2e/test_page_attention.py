"""What the head knows to be wrong is on every page, with its reason; where nothing is, no word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runwatch.address import Listening, read_address
from runwatch.testing import until
from tests import tokens
from tests.e2e.browsing import Visitor, log_in, needs_browser, needs_page, operating
from tests.integration.chromium import Chromium
from tests.integration.processes import end
from tests.integration.strangers import forge, origin_of

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
BAR = "details.attention"


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """`runwatch ui`, which reads the directory's journals itself."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    environment["RUNWATCH_DIR"] = str(root)
    with (root / "head.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "runwatch.cli", "ui", str(root), "--port", "0"],
            env=environment,
            stdout=log,
            stderr=log,
        )

    def ready() -> Listening | None:
        assert process.poll() is None, (root / "head.log").read_text()
        at = read_address(root)
        return at if at is not None and at.pid == process.pid else None

    try:
        yield tokens.remember(until(ready, 60, "the head to start")).http
    finally:
        end(process, signal.SIGTERM)


@pytest.fixture
def troubled(
    tmp_path: Path, browser: Chromium, request: pytest.FixtureRequest
) -> Iterator[Visitor]:
    """Over two journals that say to be others than they are."""
    (tmp_path / "journals").mkdir()
    for number, name in enumerate(("a-copy", "b-copy")):
        forge(tmp_path, os.geteuid(), origin_of(os.getpid(), number=number), name=name)
    with serving(tmp_path) as address:
        log_in(browser, address)
        with operating(browser, address, request) as opened:
            yield opened


def test_what_needs_attention_is_told_on_every_page(troubled: Visitor) -> None:
    for place in ("", "cluster"):
        troubled.go(place)
        troubled.sees("Needs attention: 2 things", BAR)
    assert "a-copy" not in troubled.texts(BAR)[0], "it is folded"
    troubled.click(f"{BAR} summary")
    troubled.sees("Journal a-copy of host", BAR)
    troubled.sees("a copy, or forged", BAR)
    troubled.sees("This one is retried", BAR)
    troubled.size(390, 844)
    troubled.see("document.documentElement.scrollWidth <= 390")


def test_anyone_can_read_what_needs_attention(troubled: Visitor) -> None:
    troubled.go()
    troubled.there(BAR)
    troubled.page.evaluate(f"document.querySelector('{BAR}').open = true")
    troubled.check_accessible()
    troubled.theme("dark")
    troubled.check_accessible()


def test_where_nothing_is_wrong_there_is_no_bar(page: Visitor) -> None:
    page.go("cluster")
    page.there(".cell")
    page.see(
        "performance.getEntriesByType('resource').some(e => e.name.endsWith('/api/v1/health'))"
    )
    page.place("body")
    assert page.texts(BAR) == []
