"""The page beside a run that is going on: it follows, looks at stacks, and captures a profile."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.e2e.browsing import Visitor, needs_browser, needs_page, visitor
from tests.integration import capture_programs as programs
from tests.integration.chromium import Chromium
from tests.integration.test_captures import RUN, Site

pytestmark = [
    needs_browser,
    needs_page,
    pytest.mark.xdist_group("page"),
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
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Chromium, site: Site) -> Iterator[Visitor]:
    with visitor(browser, f"http://127.0.0.1:{site.http_port}") as opened:
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
    page.sees("Nobody has looked at this run’s processes yet")
    page.click_text("Look now")
    page.see("document.querySelectorAll('article').length >= 1")
    page.sees("<string>:", "article")
    words = " ".join(page.texts("article h3"))
    assert "0" in words and "1" in words


def test_a_capture_is_checked_followed_and_opened(
    browser: Chromium, page: Visitor, site: Site
) -> None:
    page.go(f"run/{RUN}/profiles")
    page.sees("No profiles of this run yet")
    page.click_text("Capture")
    page.type(".panel input[type=text]", "everyone")
    page.sees("names no ranks")
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
        viewer.until("/python \\d+/.test(document.body.innerText)")
        answered = viewer.loaded()
        assert not [url for url in answered if not url.startswith((page.address, "data:", "blob:"))]
    site.goes_on(0)


def test_who_may_only_look_is_offered_nothing_else(browser: Chromium, site: Site) -> None:
    address = f"http://127.0.0.1:{site.http_port}"
    wanted = urllib.request.Request(
        f"{address}/api/v1/shares",
        json.dumps({"run": RUN}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(wanted) as answer:
        path = json.load(answer)["path"]
    with browser.open(f"{address}/{path}") as opened:
        guest = Visitor(opened, address)
        guest.sees(RUN, "h1")
        guest.click_text("Profiles", "nav a")
        guest.sees("All sessions of this head")
        guest.see("![...document.querySelectorAll('button')].some(b => b.innerText === 'Capture')")
        guest.click_text("Stacks", "nav a")
        guest.sees("Incidents")
        guest.see("![...document.querySelectorAll('button')].some(b => b.innerText === 'Look now')")
        opened.ask("Network.clearBrowserCookies")
