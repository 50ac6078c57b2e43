"""A run's tabs and the cluster, in a real browser over a real head."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browsing import Visitor, head, needs_browser, needs_page, visitor
from tests.e2e.page_world import HANG, build
from tests.integration.chromium import Chromium

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
TABS = ("goodput", "metrics", "devices", "stacks", "profiles", "processes", "config")
LLAMA = "run/run-llama"
DRAWN = "document.querySelectorAll('.u-over').length"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("world")
    # A device that has not reported for half a minute is silent, and these tests take longer.
    build(root, time.time_ns() + 150 * 10**9)
    with head(root) as at:
        yield at.http


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Chromium, address: str) -> Iterator[Visitor]:
    with visitor(browser, address) as opened:
        yield opened


def drawn(page: Visitor, selector: str = "canvas") -> bool:
    """Whether a canvas has more than one colour."""
    found: bool = page.see(
        f"""(() => {{ const c = document.querySelector({json.dumps(selector)});
        if (!c || !c.width) return false;
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer;
        return new Set(new Uint32Array(d)).size > 2; }})()"""
    )
    return found


# ── goodput ───────────────────────────────────────────────────────────────────────────────────


def test_goodput_says_where_the_time_went_and_what_disruptions_cost(page: Visitor) -> None:
    page.go(f"{LLAMA}/goodput")
    page.sees("60.2 %", ".lead")
    page.sees("mean time between failures (MTBF)", ".facts")
    page.sees("mean time to recovery (MTTR)", ".facts")
    rows = page.texts("[aria-labelledby=spent-title] tbody tr")
    assert rows[0].split("\t")[:4] == ["productive steps", "12 min", "719.9", "60.2 %"]
    shares = [float(row.split("\t")[3].removesuffix(" %")) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))
    (disruption,) = page.texts("[aria-labelledby=disruptions-title] tbody tr")
    assert "rank 3 killed by SIGKILL, out of memory" in disruption and "\t30\t" in disruption


def test_goodput_over_time_is_read_with_the_mouse_and_with_keys(page: Visitor) -> None:
    page.go(f"{LLAMA}/goodput")
    left, top, width, height = page.place("svg[role=img]")
    page.mouse("mouseMoved", left + width * 0.37, top + height / 2)
    page.sees("infrastructure recovery", ".read")
    page.page.evaluate("document.querySelector('svg[role=img]').focus()")
    before = page.texts(".read")
    page.key("ArrowRight")
    page.see(f"document.querySelector('.read').innerText !== {json.dumps(before[0])}")


def test_a_stretch_of_the_run_is_accounted_for_by_itself(page: Visitor) -> None:
    page.go(f"{LLAMA}/goodput")
    page.sees("60.2 %", ".lead")
    start = page.page.evaluate(
        "fetch('api/v1/runs/run-llama').then(r => r.json()).then(r => r.started_ns)"
    )
    page.go(f"{LLAMA}/goodput?from={start + 15 * 60 * 10**9}&to={start + 17 * 60 * 10**9}")
    page.sees("2 min", ".facts")
    page.see("parseFloat(document.querySelector('.lead b').innerText) > 85")
    page.sees("None: no attempt was stopped in this stretch.")
    page.click_text("Whole run")
    page.sees("60.2 %", ".lead")
    assert page.query() == {}


# ── metrics ───────────────────────────────────────────────────────────────────────────────────


def test_of_hundreds_of_metrics_only_those_in_sight_are_drawn(page: Visitor) -> None:
    page.go(f"{LLAMA}/metrics")
    page.sees("120 metrics")
    page.see(f"{DRAWN} > 4")
    assert page.page.evaluate(DRAWN) < 40
    assert page.page.evaluate("document.querySelectorAll('article').length") == 120
    assert page.texts("article h3")[:2] == ["learning_rate", "loss"]
    page.page.evaluate("document.querySelectorAll('article')[119].scrollIntoView()")
    page.see("!!document.querySelectorAll('article')[119].querySelector('.u-over')")


def test_metrics_are_found_and_shown_in_every_way_that_the_address_keeps(page: Visitor) -> None:
    page.go(f"{LLAMA}/metrics")
    page.see(f"{DRAWN} > 4")
    page.type("input[type=search]", "LOSS")
    page.sees("1 of 120 metrics")
    page.see(f"{DRAWN} === 1")
    page.sees("1.8", "article .read")
    page.choose("input[type=range]", "0.9")
    page.click_text("Log scale")
    page.click_text("Each rank")
    page.click_text("Wall time")
    page.see("location.hash.includes('along=wall')")
    wanted = {"q": "LOSS", "smooth": "0.9", "log": "1", "ranks": "all", "along": "wall"}
    assert page.query() == wanted
    page.reload()
    page.see(f"{DRAWN} === 1")
    assert page.page.evaluate("document.querySelector('input[type=search]').value") == "LOSS"
    pressed = page.texts("button[aria-pressed=true]")
    assert pressed == ["Wall time", "Log scale", "Each rank"]
    page.type("input[type=search]", "no such thing")
    page.sees("No metric is called like")
    page.click_text("Show all")
    page.sees("120 metrics")


def test_dragging_in_a_chart_zooms_all_of_them(page: Visitor) -> None:
    page.go(f"{LLAMA}/metrics?q=loss")
    page.see(f"{DRAWN} === 1")
    page.drag(".u-over", 0.25, 0.5)
    page.see("location.hash.includes('first=')")
    asked = page.query()
    assert 70 <= int(asked["first"]) <= 110 and 160 <= int(asked["last"]) <= 200
    page.see(f"{DRAWN} === 1")
    left, top, width, height = page.place(".u-over")
    page.mouse("mouseMoved", left + width / 2, top + height / 2)
    page.see("/step 1[0-9][0-9]/.test(document.querySelector('article .read').innerText)")
    page.click_text("Whole run")
    page.see("!location.hash.includes('first=')")


# ── devices ───────────────────────────────────────────────────────────────────────────────────


def test_devices_have_a_map_curves_and_incidents(page: Visitor) -> None:
    page.go(f"{LLAMA}/devices")
    page.sees("8 devices")
    assert drawn(page, ".plot canvas")
    page.sees("gpu1 XID 31: memory page fault")
    left, top, width, height = page.place(".plot[role=application]")
    page.press(left + width / 2, top + height * 6.5 / 8)
    page.sees("gpu-2 gpu2", "#curves-title")
    page.sees("gpu-2 gpu2, rank 6", ".above")
    assert page.query() == {"device": "gpu-2/gpu2"}
    page.see(f"{DRAWN} === 8")
    page.choose(".tools select", "gpu_temperature_celsius")
    page.sees("°C", ".scale")
    page.click_text("All devices")
    page.see(f"{DRAWN} === 1")


# ── stacks ────────────────────────────────────────────────────────────────────────────────────


def test_an_incident_names_the_rank_and_shows_its_stack_first(page: Visitor) -> None:
    page.go(f"{LLAMA}/stacks")
    page.sees(HANG, "[aria-labelledby=incidents-title]")
    page.sees("likely", "[aria-labelledby=incidents-title]")
    page.click_text("Show its stacks")
    page.sees("rank 5 is in no collective")
    assert page.query() == {"incident": "i1"}
    assert [text.split("\n")[0] for text in page.texts("article h3")] == [
        "▲ rank 5 1 rank · sleeping · MainThread",
        "ranks 0–4, 6, 7 7 ranks · sleeping · MainThread",
    ]
    assert page.texts("article:first-of-type ol")[0].split("\n")[0] == "recv loader.py:41"
    page.click_text("Full stacks of 7 processes", "summary")
    page.see("document.querySelectorAll('article:last-of-type h4').length === 7")
    page.sees("loader-0", "article:last-of-type")


def test_stacks_open_as_a_flame_graph(browser: Chromium, page: Visitor) -> None:
    page.go(f"{LLAMA}/stacks?incident=i1")
    link = page.see("document.querySelector('a[href*=speedscope]')?.href")
    with browser.open(link) as viewer:
        viewer.until("document.querySelector('canvas') && document.title.includes('llama')")
        asked = [e["request"]["url"] for e in viewer.events("Network.requestWillBeSent")]
        assert any("/flame?incident=i1" in url for url in asked)
        assert not [url for url in asked if not url.startswith((page.address, "data:", "blob:"))]
        assert not viewer.events("Runtime.exceptionThrown")


# ── profiles ──────────────────────────────────────────────────────────────────────────────────


def test_profiles_are_summarised_and_open_in_viewers(page: Visitor) -> None:
    page.go(f"{LLAMA}/profiles?session=warm-up")
    page.sees("compute", ".legend")
    assert "aten::addmm" in " ".join(page.texts(".detail tbody tr"))
    viewer = page.see("document.querySelector('a[href*=\"viewers/trace\"]')?.href")
    with urllib.request.urlopen(viewer) as answer:
        assert answer.status == 200
    assert "viewers/xprof" in page.see("document.querySelector('a[href*=xprof]')?.href")
    page.click_text("Delete …")
    page.click_text("Keep it")
    page.click_text("Less")
    page.see("!document.querySelector('.detail')")
    page.sees("The run has ended", ".tools")


# ── processes and configuration ───────────────────────────────────────────────────────────────


def test_processes_tell_how_each_ended_and_what_it_said(page: Visitor) -> None:
    page.go(f"{LLAMA}/processes")
    page.sees("16 of 16 processes")
    page.sees("UserWarning: the gradient overflowed", ".log")
    page.type("input[type=number]", "3")
    page.sees("2 of 16 processes")
    page.choose("select", "1")
    page.sees("1 of 16 processes")
    (row,) = page.texts(".part tbody tr")[:1]
    assert "SIGKILL, out of memory" in row and "gpu-1" in row and "\t129\t" in row
    page.reload()
    page.sees("1 of 16 processes")


def test_a_configuration_is_searched_and_compared(page: Visitor) -> None:
    page.go(f"{LLAMA}/config")
    page.sees("gs://corpus/shards")
    page.type("input[type=search]", "betas")
    page.see("document.querySelectorAll('.leaf').length === 1")
    page.sees("[0.9,0.95]", ".leaf")
    page.go(f"{LLAMA}/config")
    page.sees("What it was told")
    page.see("!!document.querySelector('option[value=run-bert]')")
    page.choose("select", "run-bert")
    page.sees("differences among")
    changed = page.texts("tr.changed")
    assert any("optimizer.name" in row and "adamw" in row and "sgd" in row for row in changed)
    assert not any("data.path" in row for row in page.texts("tbody tr"))
    page.click("input[type=checkbox]")
    page.sees("data.path", "tbody")
    assert page.query() == {"with": "run-bert", "same": "1"}


# ── the cluster ───────────────────────────────────────────────────────────────────────────────


def test_the_cluster_shows_what_hurts_first(page: Visitor) -> None:
    page.go("cluster")
    page.sees("12 devices", ".facts")
    page.sees("silent", ".facts")
    assert page.texts("[aria-labelledby=devices-title] tbody tr")[0].startswith("gpu-3 gpu0\t▲")
    page.see("document.querySelectorAll('.cell').length === 12")
    page.sees("fell silent", "[aria-labelledby=nodes-title]")
    assert page.texts("[aria-labelledby=nodes-title] tbody tr")[0].startswith("gpu-3\t▲ silent")
    left, top, width, height = page.place(".cell")
    page.mouse("mouseMoved", left + width / 2, top + height / 2)
    page.sees("gpu-1 gpu0 · llama", ".above")
    page.click_text("Temperature")
    page.see("location.hash.includes('shown=temperature')")
    page.sees("°C", ".scale")
    page.type("input[type=search]", "xid")
    page.sees("1 of 12 devices")
    page.click_text("llama", "tbody a")
    page.see("location.hash.startsWith('#/run/run-llama/devices')")


def test_sessions_are_started_and_stopped(page: Visitor) -> None:
    page.go("cluster")
    page.type("[aria-label='Name of the new session']", "a look")
    page.click_text("Start a session")
    page.sees("active", "[aria-labelledby=sessions-title] tbody")
    page.click("[aria-label='Stop session a look']")
    page.sees("stopped", "[aria-labelledby=sessions-title] tbody")
    page.click("[aria-label='Go on with session a look']")
    page.sees("active", "[aria-labelledby=sessions-title] tbody")
    page.click("[aria-label='Stop session a look']")
    page.sees("stopped", "[aria-labelledby=sessions-title] tbody")


# ── everywhere ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tab", [*TABS, "cluster"])
def test_anyone_can_use_it_in_any_light_and_on_a_phone(page: Visitor, tab: str) -> None:
    page.go("cluster" if tab == "cluster" else f"{LLAMA}/{tab}")
    page.see("document.querySelector('main h2, main article') && !document.body.innerText"
             ".includes('Loading …')")  # fmt: skip
    page.check_accessible()
    page.theme("dark")
    page.check_accessible()
    page.size(390, 844)
    page.see("document.documentElement.scrollWidth <= 390")


@pytest.mark.parametrize(
    ("tab", "words"),
    [
        ("devices", "No devices were seen in this run"),
        ("stacks", "Nobody has looked at this run’s processes yet"),
        ("profiles", "No profiles of this run yet"),
        ("processes", "Nothing was said."),
        ("goodput", "None: no attempt was stopped."),
    ],
)
def test_where_there_is_nothing_it_says_so(page: Visitor, tab: str, words: str) -> None:
    page.go(f"run/run-bert/{tab}")
    page.sees(words)


def test_every_tab_is_a_click_away(page: Visitor) -> None:
    page.go(f"{LLAMA}/{TABS[-1]}")
    for tab in TABS:
        page.click_text(tab.capitalize(), "nav a")
        page.see(f"location.hash.startsWith('#/{LLAMA}/{tab}')")
        page.see("document.querySelector('nav a[aria-current]').innerText.toLowerCase() === 'runs'"
                 f" && [...document.querySelectorAll('nav a[aria-current]')].pop().innerText"
                 f".toLowerCase() === '{tab}'")  # fmt: skip
