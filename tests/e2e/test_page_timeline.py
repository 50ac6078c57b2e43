"""The timeline of a run, in a real browser: seen, zoomed, clicked on, linked to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browsing import Visitor, head, needs_browser, needs_page, visitor
from tests.e2e.page_world import LENGTH, build
from tests.integration.chromium import Chromium

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
LANES = ("axis", "goodput", "events", "incidents", "checkpoints", "steps", "heat")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("world")
    build(root, time.time_ns())
    with head(root, "--base-path", "/team/x") as at:
        yield f"{at.http.removesuffix('/team/x')}/team/x"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


@pytest.fixture
def timeline(browser: Chromium, address: str) -> Iterator[Visitor]:
    with visitor(browser, address, "run/run-llama") as opened:
        opened.sees("attempt 1 stopped: rank 3 killed by SIGKILL", "section[aria-label^=What]")
        opened.there('[data-lane="heat"]')
        yield opened


def plot(lane: str) -> str:
    return f'[data-lane="{lane}"] .plot'


def shown_ns(timeline: Visitor) -> tuple[int, int]:
    query = timeline.query()
    return int(query["from"]), int(query["to"])


def test_everything_that_happened_is_on_one_axis(timeline: Visitor) -> None:
    for lane in LANES:
        timeline.see(f"""document.querySelector('{plot(lane)} canvas')?.width > 100""")
        timeline.see(f"({colours(lane)}) > 1")
    labels = " ".join(timeline.texts(".lane .label"))
    for name in ("Goodput", "Events", "Checkpoints", "Step time", "loss", "8 devices"):
        assert name in labels
    account = " ".join(timeline.texts(".account li"))
    assert "productive steps" in account and "infrastructure recovery" in account
    happened = timeline.texts("section[aria-label^=What]")[0]
    for words in ("attempt 2 started: 8 ranks", "XID 31 on gpu1", "saved checkpoint", "lost"):
        assert words in happened, happened
    left = {timeline.place(plot(lane))[0] for lane in LANES}
    assert len(left) == 1  # aligned


def colours(lane: str) -> str:
    return f"""(() => {{ const c = document.querySelector('{plot(lane)} canvas');
        const image = c.getContext("2d").getImageData(0, 0, c.width, c.height);
        return new Set(new Uint32Array(image.data.buffer)).size; }})()"""


def test_a_brush_zooms_everything_and_the_link_leads_back_here(timeline: Visitor) -> None:
    timeline.drag(plot("goodput"), 0.25, 0.45)
    timeline.see("location.hash.includes('from=')")
    start, end = shown_ns(timeline)
    assert 0.18 * LENGTH * 0.8 < end - start < 0.22 * LENGTH
    timeline.there('[data-lane="overview"]')
    link = timeline.page.evaluate("location.href")
    before = timeline.texts(".range")[0]
    timeline.drag(plot("steps"), 0.4, 0.6)
    timeline.see(f"!document.querySelector('.range').innerText.startsWith('{before[:30]}')")
    timeline.page.evaluate("history.back()")
    timeline.see(f"document.querySelector('.range').innerText === {before!r}")
    timeline.page.ask("Page.navigate", url="about:blank")
    timeline.page.ask("Page.navigate", url=link)
    timeline.see(f"document.querySelector('.range')?.innerText === {before!r}")
    timeline.click_text("Whole run")
    timeline.see("!location.hash.includes('from=')")


def test_wheel_and_keys_move_it(timeline: Visitor) -> None:
    timeline.wheel(plot("goodput"), 0.5, -240)
    timeline.see("location.hash.includes('from=')")
    start, end = shown_ns(timeline)
    timeline.page.evaluate("document.querySelector('.lanes').focus()")
    timeline.key("ArrowRight")
    timeline.see(f"!location.hash.includes('from={start}')")
    moved = shown_ns(timeline)
    assert moved[0] > start and abs((moved[1] - moved[0]) - (end - start)) < 10_000
    timeline.key("+")
    timeline.see(f"!location.hash.includes('from={moved[0]}')")
    assert shown_ns(timeline)[1] - shown_ns(timeline)[0] < 0.7 * (moved[1] - moved[0])
    timeline.key("0")
    timeline.see("!location.hash.includes('from=')")


def test_the_cursor_reads_every_row(timeline: Visitor) -> None:
    left, top, width, height = timeline.place(plot("goodput"))
    timeline.mouse("mouseMoved", left + 0.62 * width, top + 0.7 * height)
    timeline.see("document.querySelector('.lane .at').innerText.length === 8")
    values = timeline.texts(".lane .value")
    assert any(value in ("productive steps", "saving checkpoints") for value in values)
    assert any(value.endswith(" %") for value in values)
    timeline.mouse("mouseMoved", left, top - 300)
    timeline.see("document.querySelector('.lane .at').innerText === ''")


def test_a_click_tells_what_and_why(timeline: Visitor) -> None:
    left, top, width, height = timeline.place(plot("goodput"))
    timeline.press(left + 0.40 * width, top + 0.7 * height)
    timeline.sees("infrastructure recovery", "section[aria-label=Details]")
    timeline.sees("killed by SIGKILL", "section[aria-label=Details]")
    timeline.reload()
    timeline.sees("infrastructure recovery", "section[aria-label=Details]")
    timeline.click_text("Look closer")
    timeline.see("location.hash.includes('from=')")
    timeline.click("section[aria-label=Details] .close")
    timeline.see("!document.querySelector('section[aria-label=Details]')")
    timeline.click_text("Whole run")
    timeline.page.evaluate(
        "[...document.querySelectorAll('section[aria-label^=What] li button')]"
        ".find(e => e.innerText.includes('XID 31')).click()"
    )
    timeline.sees("memory page fault", "section[aria-label=Details]")


def test_each_step_is_seen_from_close_by(timeline: Visitor) -> None:
    timeline.drag(plot("steps"), 0.55, 0.60)
    timeline.sees("Steps of 8 ranks", '[data-lane="steps"]')
    timeline.see(f"{colours('steps')} > 3")


def test_metrics_and_devices_are_chosen(timeline: Visitor) -> None:
    timeline.choose('[data-lane="heat"] select', "gpu_power_watts")
    timeline.see("location.hash.includes('heat=gpu_power_watts')")
    timeline.sees("W", '[data-lane="heat"] .scale')
    timeline.click_text("Metrics", "button")
    timeline.sees("layer_007/gradient_norm", ".menu")
    timeline.page.evaluate(
        "[...document.querySelectorAll('.menu label')]"
        ".find(e => e.innerText.trim() === 'layer_007/gradient_norm').click()"
    )
    timeline.there('[data-lane="band:layer_007/gradient_norm"]')


def test_anyone_can_use_it_in_any_light_and_on_a_phone(timeline: Visitor) -> None:
    timeline.check_accessible()
    timeline.theme("dark")
    timeline.check_accessible()
    timeline.size(390, 900)
    timeline.see("document.documentElement.scrollWidth <= 390")
    timeline.check_accessible()


def test_a_run_that_is_not_there(browser: Chromium, address: str) -> None:
    with browser.open(f"{address}/#/run/nobody") as page:
        page.until("document.body.innerText.includes('there is no run with id or name')")
