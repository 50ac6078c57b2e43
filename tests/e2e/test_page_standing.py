"""How runs stand, in a real browser: a hang, a loss that is NaN, many runs on a phone, zones."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e import standing_world
from tests.e2e.browsing import Visitor, head, log_in, needs_browser, needs_page, visitor
from tests.integration.chromium import Chromium

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
BADGE = ".head .state"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, browser: Chromium) -> Iterator[str]:
    root = tmp_path_factory.mktemp("standing")
    standing_world.build(root, time.time_ns())
    with head(root) as at:
        log_in(browser, at.http)
        yield at.http


@pytest.fixture
def page(browser: Chromium, address: str) -> Iterator[Visitor]:
    with visitor(browser, address) as opened:
        yield opened


def colour(page: Visitor, selector: str) -> str:
    found: str = page.page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).color")
    return found


def row(name: str) -> str:
    return f"[...document.querySelectorAll('tbody tr')].find(e => e.innerText.includes('{name}'))"


def test_a_run_that_hangs_is_not_called_running(page: Visitor) -> None:
    page.go()
    page.see(f"{row('mixtral-hung')}?.innerText.includes('■ stalled')")
    page.see(f"{row('mixtral-hung')}?.innerText.includes('all wait for rank 3')")
    page.see(f"{row('gemma-still-training')}?.innerText.includes('▶ running')")
    page.click_text("stalled")
    page.see("document.querySelectorAll('tbody .name').length === 1")
    assert page.query()["state"] == "stalled"
    page.go("run/mixtral-hung")
    page.sees("■ stalled", BADGE)
    page.sees(standing_world.HANG)


def test_a_loss_that_is_nan_is_not_green(page: Visitor) -> None:
    page.go()
    said = "train/loss is NaN since step 150"
    page.see(f"{row('llama-70b')}?.innerText.includes('⚠ completed')")
    page.see(f"{row('llama-70b')}?.innerText.includes('{said}')")
    page.go("run/sweep-resnet50-lr-000-seed-0")
    page.sees("✔ completed", BADGE)
    healthy = colour(page, BADGE)
    page.go("run/llama-70b-pretraining")
    page.sees("⚠ completed", BADGE)
    assert colour(page, BADGE) != healthy
    page.sees(said, ".reason")
    page.see(f"document.querySelector('main').innerText.split('{said}').length > 2")  # a mark, too
    page.go("run/llama-70b-pretraining/metrics")
    page.sees("50 values not finite")


def test_names_can_be_read_on_a_phone(page: Visitor) -> None:
    page.size(390, 844)
    for place in ("", "?by=group", "?q=nothing-like-it"):
        page.go(place)
        page.there("tbody tr td")
        width = "document.querySelector('th:nth-child(2)').getBoundingClientRect().width"
        page.see(f"{width} > 120")
    page.go()
    page.sees("sweep-resnet50-lr-003-seed-0", "tbody")
    clipped = (
        "[...document.querySelectorAll('.name a')].some(e => e.scrollHeight > e.clientHeight + 1)"
    )
    page.see(f"!{clipped}")
    page.see("document.querySelector('.scroller').scrollHeight > 2000")
    page.page.evaluate("document.querySelector('.scroller').scrollTo(0, 1200), 0")
    page.see("document.querySelectorAll('tbody tr[aria-hidden]').length === 2")
    page.see(f"{width} > 120")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_times_are_in_the_readers_zone_which_is_named(page: Visitor) -> None:
    page.page.ask("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    page.go("run/whisper-killed")
    page.sees("GMT+5:30", "dl")
    when = "\\d+ \\w+ \\d{4} \\d\\d:\\d\\d:\\d\\d GMT\\+5:30"
    page.see(f"/ at {when}/.test(document.querySelector('.reason')?.innerText)")
    assert "Z" not in page.texts(".reason")[0]


def test_an_agent_that_ended_is_no_trouble(page: Visitor) -> None:
    page.go("cluster")
    page.sees("1 agent ended in order", "[aria-labelledby=nodes-title]")
    assert page.texts("[aria-labelledby=nodes-title] tbody tr")[0].startswith("node-1\t■ ended")
    page.see("!document.querySelector('[aria-labelledby=nodes-title] .bad')")


def test_a_wrong_name_leads_to_the_run_that_is_meant(page: Visitor) -> None:
    page.meant = "404"
    page.go("run/whisper-kiled")
    page.sees("did you mean 'whisper-killed'?", ".problem")
    page.click_text("whisper-killed", ".problem a")
    page.sees("whisper-killed", "h1")
