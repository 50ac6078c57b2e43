"""The timeline of a run, in a real browser: seen, zoomed, clicked on, linked to."""

from __future__ import annotations

import pytest

from tests.e2e.browsing import READ, Visitor, needs_browser, needs_page
from tests.e2e.page_world import LENGTH

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
LANES = ("axis", "goodput", "events", "incidents", "checkpoints", "profiles", "steps", "heat")
DETAILS = "section[aria-label=Details]"
ZOOMED = "location.hash.includes('from=')"
MINUTES = 19.93
"""How long the run took."""


@pytest.fixture
def timeline(page: Visitor) -> Visitor:
    page.go("run/run-llama")
    page.sees("attempt 1 stopped: rank 3 killed by SIGKILL", "section[aria-label^=What]")
    page.there('[data-lane="heat"]')
    page.there('[data-lane="band:loss"]')
    return page


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
    return f"""new Set({READ}(document.querySelector('{plot(lane)} canvas'))).size"""


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
    timeline.focus(".lanes")
    timeline.key("ArrowRight")
    timeline.see(f"!location.hash.includes('from={start}')")
    moved = shown_ns(timeline)
    assert moved[0] > start and abs((moved[1] - moved[0]) - (end - start)) < 10_000
    timeline.key("+")
    timeline.see(f"!location.hash.includes('from={moved[0]}')")
    assert shown_ns(timeline)[1] - shown_ns(timeline)[0] < 0.7 * (moved[1] - moved[0])
    closer = shown_ns(timeline)
    timeline.key("-")
    timeline.see(f"!location.hash.includes('from={closer[0]}')")
    assert shown_ns(timeline)[1] - shown_ns(timeline)[0] > 1.4 * (closer[1] - closer[0])
    before = shown_ns(timeline)
    timeline.key("ArrowLeft")
    timeline.see(f"!location.hash.includes('from={before[0]}')")
    assert shown_ns(timeline)[0] < before[0]
    before = shown_ns(timeline)
    timeline.wheel(plot("goodput"), 0.5, 200, held="Shift")
    timeline.see(f"!location.hash.includes('from={before[0]}')")
    assert shown_ns(timeline)[0] > before[0]
    timeline.focus(".lanes")
    timeline.key("0")
    timeline.see(f"!{ZOOMED}")


def test_every_way_back_to_the_whole_run(timeline: Visitor) -> None:
    def zoomed() -> None:
        timeline.click("[aria-label='Zoom in']")
        timeline.see(ZOOMED)

    zoomed()
    timeline.focus(".lanes")
    timeline.key("Home")
    timeline.see(f"!{ZOOMED}")
    zoomed()
    left, top, width, height = timeline.place(plot("steps"))
    timeline.press(left + width / 2, top + height / 2, times=2)
    timeline.see(f"!{ZOOMED}")
    zoomed()
    timeline.click(plot("overview"))
    timeline.see(f"!{ZOOMED}")
    zoomed()
    timeline.click("[aria-label='Zoom out']")
    timeline.see(f"!{ZOOMED}")


def test_a_drag_is_dropped_with_escape(timeline: Visitor) -> None:
    left, top, width, height = timeline.place(plot("goodput"))
    timeline.focus(".lanes")
    timeline.mouse("mouseMoved", left + 0.2 * width, top + height / 2)
    timeline.mouse("mousePressed", left + 0.2 * width, top + height / 2)
    timeline.mouse("mouseMoved", left + 0.6 * width, top + height / 2, buttons=1)
    timeline.there(".brush")
    timeline.key("Escape")
    timeline.see("!document.querySelector('.brush')")
    timeline.mouse("mouseReleased", left + 0.6 * width, top + height / 2)
    assert "from" not in timeline.query()


def test_a_brush_works_on_every_row(timeline: Visitor) -> None:
    for lane in ("axis", "band:loss", "heat", "steps", "events"):
        timeline.drag(plot(lane), 0.5, 0.7)
        timeline.see(ZOOMED)
        start, end = shown_ns(timeline)
        assert end - start == pytest.approx(0.2 * MINUTES * 60e9, rel=0.1)
        timeline.drag(plot("overview"), 0.1, 0.3)
        timeline.see(f"!location.hash.includes('from={start}')")
        assert shown_ns(timeline)[1] < start
        timeline.click_text("Whole run")
        timeline.see(f"!{ZOOMED}")


def test_the_cursor_reads_every_row(timeline: Visitor) -> None:
    left, top, width, height = timeline.place(plot("goodput"))
    timeline.point(plot("goodput"), 0.62, 0.7)
    timeline.see("document.querySelector('.lane .at').innerText.length === 8")
    values = timeline.texts(".lane .value")
    assert any(value in ("productive steps", "saving checkpoints") for value in values)
    assert any(value.endswith(" %") for value in values)
    timeline.mouse("mouseMoved", left, top - 300)
    timeline.see("document.querySelector('.lane .at').innerText === ''")
    timeline.point(plot("heat"), 0.3, 5.5 / 8)
    timeline.sees("gpu-2 1 · rank 5", '[data-lane="heat"]')


def test_a_click_tells_what_and_why(timeline: Visitor) -> None:
    left, top, width, height = timeline.place(plot("goodput"))
    timeline.press(left + 0.40 * width, top + 0.7 * height)
    timeline.sees("infrastructure recovery", DETAILS)
    timeline.sees("killed by SIGKILL", DETAILS)
    timeline.reload()
    timeline.sees("infrastructure recovery", DETAILS)
    timeline.click_text("Zoom in")
    timeline.see("location.hash.includes('from=')")
    timeline.click("section[aria-label=Details] .close")
    timeline.see("!document.querySelector('section[aria-label=Details]')")
    timeline.click_text("Whole run")
    listed = "[...document.querySelectorAll('section[aria-label^=What] li')]"
    at = timeline.see(f"1 + {listed}.findIndex(e => e.innerText.includes('XID 31'))")
    timeline.click(f"section[aria-label^=What] li:nth-of-type({at}) button")
    timeline.sees("memory page fault", DETAILS)


def test_a_click_on_a_mark_tells_of_it(timeline: Visitor) -> None:
    for lane, minute, words in (
        ("events", 16.0, "XID 31 on gpu1"),
        ("checkpoints", 2.0, "saved checkpoint"),
    ):
        press_at(timeline, lane, minute)
        timeline.sees(words, DETAILS)
        press_at(timeline, lane, 0.42 * MINUTES)  # nothing is there
        timeline.see(f"!document.querySelector('{DETAILS}')")


def test_a_click_on_a_box_tells_of_it_and_leads_on(timeline: Visitor) -> None:
    for lane, minute, words, link, tab in (
        ("incidents", 18.5, "rank 5 waits in a read from a socket", "See the stacks", "stacks"),
        ("profiles", 12.3, "profile warm-up", "Open the profiles", "profiles"),
    ):
        press_at(timeline, lane, minute)
        timeline.sees(words, DETAILS)
        timeline.reload()
        timeline.sees(words, DETAILS)
        timeline.click_text(link, f"{DETAILS} a")
        timeline.see(f"location.hash.startsWith('#/run/run-llama/{tab}')")
        timeline.page.evaluate("history.back()")
        timeline.there(plot(lane))


def press_at(timeline: Visitor, lane: str, minute: float) -> None:
    left, top, width, height = timeline.place(plot(lane))
    timeline.press(left + minute / MINUTES * width, top + height / 2)


def test_the_link_is_copied(timeline: Visitor) -> None:
    assert timeline.copy("Copy link") == timeline.page.evaluate("location.href")


def test_each_step_is_seen_from_close_by(timeline: Visitor) -> None:
    timeline.drag(plot("steps"), 0.55, 0.60)
    timeline.sees("Steps of 8 ranks", '[data-lane="steps"]')
    timeline.see(f"{colours('steps')} > 3")


def test_metrics_and_devices_are_chosen(timeline: Visitor) -> None:
    timeline.choose('[data-lane="heat"] select', "gpu_power_watts")
    timeline.see("location.hash.includes('heat=gpu_power_watts')")
    timeline.sees("W", '[data-lane="heat"] .scale')
    timeline.click_text("Metrics", "button")
    timeline.type(".menu input[type=search]", "layer_007")
    timeline.see("document.querySelectorAll('.menu label').length === 1")
    timeline.click(".menu label")
    timeline.there('[data-lane="band:layer_007/gradient_norm"]')


def test_anyone_can_use_it_in_any_light_and_on_a_phone(timeline: Visitor) -> None:
    timeline.check_accessible()
    timeline.theme("dark")
    timeline.check_accessible()
    timeline.size(390, 900)
    timeline.see("document.documentElement.scrollWidth <= 390")
    timeline.check_accessible()
