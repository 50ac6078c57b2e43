"""The page beside a run that is going on: it follows, looks at stacks, and captures a profile."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from runwatch.testing import until
from tests.e2e.browsing import Visitor, log_in, needs_browser, needs_page, operating
from tests.integration import capture_programs as programs
from tests.integration.chromium import Chromium
from tests.integration.test_captures import RUN, Site

pytestmark = [
    needs_browser,
    needs_page,
    pytest.mark.xdist_group("page-live"),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is missing"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two ranks that train with torch."""
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.start_head()
        made.start_agent()
        made.start_ranks(programs.TORCH_STEP, "0,1", 2)
        for rank in (0, 1):
            made.goes_on(rank)
        until(lambda: made.ask(f"/runs/{RUN}")[0] == 200, 60, "the head to hear of the run")
        yield made
    finally:
        made.close()


@pytest.fixture
def page(browser: Chromium, site: Site, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    log_in(browser, f"http://127.0.0.1:{site.http_port}")
    with operating(browser, f"http://127.0.0.1:{site.http_port}", request) as opened:
        yield opened


def test_metrics_follow_a_run_without_being_asked_again(page: Visitor) -> None:
    page.go(f"run/{RUN}/metrics?q=step_seconds")
    page.see("document.querySelectorAll('.u-over').length === 1")
    said = "document.querySelector('article .read').innerText"
    shown = f"Number(/at step ([0-9,]+)/.exec({said})[1].replaceAll(',', ''))"
    before = page.see(shown)
    page.see(f"{shown} > {before}")


def test_a_click_shows_where_every_rank_is(page: Visitor) -> None:
    page.go(f"run/{RUN}/stacks")
    page.sees("No stacks of this run yet")
    page.click_text("Take stacks now")
    # What one rank answered is shown before the other has.
    page.see("""[...document.querySelectorAll('article')].flatMap(e => e.ariaLabel.match(/\\d+/g))
             .sort().join(' ') === '0 1'""")
    page.click("article summary")  # the program's own frame may be below many of torch
    page.sees("<string>:", "article details")


def test_a_capture_is_checked_followed_and_opened(
    browser: Chromium, page: Visitor, site: Site
) -> None:
    page.go(f"run/{RUN}/profiles")
    page.sees("No profiles of this run yet")
    page.click_text("Capture")
    page.type(".panel input[type=text]", "0-1")
    page.click_text("Check first")
    page.sees("2 of 2 processes can be captured", ".panel")
    page.type(".panel input[type=number]", "0.5")
    page.click_text("Start")
    page.see("location.hash.includes('capture=')")
    page.see("document.querySelector('[role=progressbar]') !== null")
    page.sees("2 processes captured", ".panel")
    session = page.query()["capture"]
    page.sees(session, "article")
    page.sees("aten::", "article .detail")
    link = page.see("document.querySelector('a[href*=\"viewers/trace\"]')?.href")
    with browser.open(link) as viewer:
        viewer.until("location.pathname.endsWith('/viewers/perfetto/')")
        viewer.until("/python[\\d.]* \\d+/.test(document.body.innerText)")
        answered = viewer.loaded()
        assert not [url for url in answered if not url.startswith((page.address, "data:", "blob:"))]
    site.goes_on(0)
    page.page.ask("Page.bringToFront")
    page.click_text("Capture another")
    page.sees("Capture a profile", ".panel")
    page.see("!location.hash.includes('capture=')")
