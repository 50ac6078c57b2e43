"""A run's tabs and the cluster, in a real browser over a real head."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.e2e.browsing import Visitor, needs_browser, needs_page
from tests.e2e.page_world import HANG
from tests.integration.chromium import Chromium

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
LLAMA = "run/run-llama"
MISTRAL = "run/run-mistral"
DRAWN = "document.querySelectorAll('.u-over').length"


def started_ns(page: Visitor) -> int:
    found: int = page.page.evaluate(
        "fetch('api/v1/runs/run-llama').then(r => r.json()).then(r => r.started_ns)"
    )
    return found


def stretch(page: Visitor, first: float, last: float) -> str:
    """From one minute of the run to another, for the address."""
    start_ns = started_ns(page)
    return f"from={start_ns + int(first * 60e9)}&to={start_ns + int(last * 60e9)}"


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
    page.sees("productive of 19 min 55 s counted", ".lead")
    page.sees("Shares are of the 19 min 55 s counted.")
    (disruption,) = page.texts("[aria-labelledby=disruptions-title] tbody tr")
    assert "rank 3 killed by SIGKILL, out of memory" in disruption and "\t30\t" in disruption
    assert "lost work 60 s + recovery 1 min 50 s + warm-up" in disruption
    ettr, overall, hours = page.texts("[aria-labelledby=figures-title] tbody tr")
    assert ettr.split("\t")[:2] == ["ETTR", "46.3 %"] and "6 min in the queue" in ettr
    assert "scheduling 76.8 % × runtime 60.2 % × program" in overall
    assert overall.endswith("(tensor activity)")
    assert "on 8 accelerators" in hours


def test_a_run_that_goes_on_tells_what_its_accelerators_do(page: Visitor) -> None:
    page.go(f"{MISTRAL}/goodput")
    page.sees("× program 42.0 % (MFU); scheduling unknown", "[aria-labelledby=figures-title]")
    asked = [e["request"]["url"] for e in page.page.events("Network.requestWillBeSent")]
    accounts = [url for url in asked if "/run-mistral/goodput?" in url]
    assert sum("program=true" in url for url in accounts) == 1, "the rest is asked for more often"
    assert any("program" not in url for url in accounts)


def test_goodput_over_time_is_read_with_the_mouse_and_with_keys(page: Visitor) -> None:
    page.go(f"{LLAMA}/goodput")
    page.sees("60.2 %", ".lead")
    page.point("svg[role=img]", 0.37)
    page.sees("infrastructure recovery", ".read")
    page.focus("svg[role=img]")
    (before,) = page.texts(".read")
    page.key("ArrowRight")
    page.see(f"document.querySelector('.read').innerText !== {json.dumps(before)}")
    page.key("ArrowLeft")
    page.see(f"document.querySelector('.read').innerText === {json.dumps(before)}")


def test_a_stretch_of_the_run_is_accounted_for_by_itself(page: Visitor) -> None:
    page.go(f"{LLAMA}/goodput")
    page.sees("60.2 %", ".lead")
    page.go(f"{LLAMA}/goodput?{stretch(page, 15, 17)}")
    page.sees("2 min", ".facts")
    page.see("parseFloat(document.querySelector('.lead b').innerText) > 85")
    page.sees("None: no attempt stopped in this time.")
    page.click_text("Whole run")
    page.sees("60.2 %", ".lead")
    assert page.query() == {}


# ── metrics ───────────────────────────────────────────────────────────────────────────────────


def test_of_hundreds_of_metrics_only_those_in_sight_are_drawn(page: Visitor) -> None:
    page.go(f"{LLAMA}/metrics")
    page.sees("120 metrics")
    page.see(f"{DRAWN} > 4")
    assert page.page.evaluate(DRAWN) < 40
    assert len(page.texts("article")) == 120
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
    before = page.pixels("article canvas")
    page.choose("input[type=range]", "0.9")
    before = page.pixels("article canvas", besides=before)
    page.click_text("Log scale")
    before = page.pixels("article canvas", besides=before)
    page.click_text("Relative time")
    before = page.pixels("article canvas", besides=before)
    page.click_text("Step")
    page.click_text("Wall time")
    page.pixels("article canvas", besides=before)
    page.click_text("Each rank")
    wanted = {"q": "LOSS", "smooth": "0.9", "log": "1", "ranks": "all", "along": "wall"}
    assert page.query() == wanted
    page.reload()
    page.see(f"{DRAWN} === 1")
    assert page.page.evaluate("document.querySelector('input[type=search]').value") == "LOSS"
    pressed = page.texts("button[aria-pressed=true]")
    assert pressed == ["Wall time", "Log scale", "Each rank"]
    page.type("input[type=search]", "no such thing")
    page.sees("No metric matches")
    page.click_text("Show all")
    page.sees("120 metrics")


def test_each_rank_has_a_line_and_sections_fold(page: Visitor) -> None:
    page.go(f"{LLAMA}/metrics?q=step_seconds")
    page.see(f"{DRAWN} === 1")
    page.click_text("Each rank")
    page.see("document.querySelector('[role=img]').ariaLabel === 'step_seconds, 16 lines'")
    page.point("article .u-over", 0.6)
    page.sees("rank ", "article .read")
    page.click("summary")
    page.see("!document.querySelector('details').open")
    page.see("!document.querySelector('article').checkVisibility()")


def test_dragging_in_a_chart_zooms_all_of_them(page: Visitor) -> None:
    page.go(f"{LLAMA}/metrics?q=loss")
    page.see(f"{DRAWN} === 1")
    page.drag(".u-over", 0.25, 0.5)
    page.see("location.hash.includes('first=')")
    asked = page.query()
    assert 70 <= int(asked["first"]) <= 110 and 160 <= int(asked["last"]) <= 200
    page.see(f"{DRAWN} === 1")
    page.point(".u-over")
    page.see("/step 1[0-9][0-9]/.test(document.querySelector('article .read').innerText)")
    page.click_text("Whole run")
    page.see("!location.hash.includes('first=')")


# ── devices ───────────────────────────────────────────────────────────────────────────────────


def test_devices_have_a_map_curves_and_incidents(page: Visitor) -> None:
    page.go(f"{LLAMA}/devices")
    page.sees("8 devices")
    page.pixels(".plot canvas")
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
    page.see("document.querySelectorAll('.legend li').length === 8")
    assert page.texts(".legend li")[6] == "gpu-2 gpu2"
    page.point("figure .u-over")
    page.see("/gpu-. gpu. [0-9.]+ °C/.test(document.querySelector('figcaption').innerText)")
    page.drag("figure .u-over", 0.2, 0.4)
    page.sees("Only", ".window")
    page.click_text("Whole run")
    page.see("!location.hash.includes('from=')")


def test_the_map_of_devices_is_read_with_keys(page: Visitor) -> None:
    page.go(f"{LLAMA}/devices")
    page.pixels(".plot canvas")
    page.focus("[role=application]")
    page.key("ArrowDown")
    page.sees("gpu-1 gpu0, rank 0", ".above")
    page.key("ArrowDown")
    page.sees("gpu-1 gpu1, rank 1", ".above")
    (before,) = page.texts(".above p")
    page.key("ArrowLeft")
    page.see(f"document.querySelector('.above p').innerText !== {json.dumps(before)}")
    page.key("ArrowRight")
    page.see(f"document.querySelector('.above p').innerText === {json.dumps(before)}")
    page.key("ArrowUp")
    page.sees("gpu-1 gpu0, rank 0", ".above")
    page.key("Enter")
    page.sees("gpu-1 gpu0", "#curves-title")
    assert page.query() == {"device": "gpu-1/gpu0"}


def test_devices_are_shown_by_another_statistic_and_chosen_in_the_table(page: Visitor) -> None:
    page.go(f"{LLAMA}/devices?metric=gpu_power_watts")
    page.pixels(".plot canvas")
    before = page.pixels(".plot canvas")
    page.choose(".tools label:nth-of-type(2) select", "maximum")
    page.pixels(".plot canvas", besides=before)
    assert page.query()["statistic"] == "maximum"
    page.click_text("gpu-2 gpu1", "tbody button")
    page.sees("gpu-2 gpu1", "#curves-title")
    page.see("document.querySelector('tr.chosen').innerText.startsWith('gpu-2 gpu1')")


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
    page.click_text("Hide its stacks")
    page.see("!document.querySelector('#detail-title')")
    page.click_text("on the timeline", "main a")
    page.see("location.hash.startsWith('#/run/run-llama/timeline?from=')")
    page.sees("rank 5 waits in a read", "section[aria-label^=What]")


def test_where_nobody_can_be_asked_it_says_why(page: Visitor) -> None:
    """There is no agent on either host."""
    page.go(f"{MISTRAL}/stacks")
    page.click("input[type=checkbox]")
    page.see("document.querySelector('input[type=checkbox]').checked")
    page.click_text("Take stacks now")
    page.sees("gpu-1 could not be reached: no agent of it is connected")


def test_stacks_open_as_a_flame_graph(browser: Chromium, page: Visitor) -> None:
    page.go(f"{LLAMA}/stacks?incident=i1")
    link = page.see("document.querySelector('a[href*=speedscope]')?.href")
    assert page.opens("Flame graph of this incident") == link
    page.go(f"{LLAMA}/stacks")
    page.sees("Latest stacks", "main")
    assert "incident" not in page.opens("Flame graph")
    with browser.open(link) as viewer:
        viewer.until("document.querySelector('canvas') && document.title.includes('llama')")
        asked = [e["request"]["url"] for e in viewer.events("Network.requestWillBeSent")]
        assert any("/flame?incident=i1" in url for url in asked)
        assert not [url for url in asked if not url.startswith((page.address, "data:", "blob:"))]
        assert not viewer.events("Runtime.exceptionThrown")


# ── profiles ──────────────────────────────────────────────────────────────────────────────────


def test_profiles_are_summarised_and_open_in_viewers(page: Visitor, tmp_path: Path) -> None:
    page.go(f"{LLAMA}/profiles?session=warm-up")
    page.sees("compute", ".legend")
    assert "aten::addmm" in " ".join(page.texts(".detail tbody tr"))
    assert "run-llama%2Fstep-200" in page.opens("Open in Perfetto", at="/viewers/perfetto/")
    assert "/viewers/xprof" in page.opens("Open in XProf")
    assert page.opens("All profiles of this head").endswith("/viewers/")
    trace = page.downloads("download", tmp_path, "[aria-label$=step-200] a")
    assert b"traceEvents" in gzip.decompress(trace)
    page.click_text("Delete …")
    page.click_text("Keep it")
    page.click_text("Hide summary")
    page.see("!document.querySelector('.detail')")
    page.click("[aria-label$=step-200] button")
    page.sees("compute", "[aria-label$=step-200] .legend")
    assert page.query() == {"session": "step-200"}
    page.sees("The run has ended", ".tools")
    page.see("document.querySelector('.tools .primary').disabled")


def test_a_capture_that_nobody_can_make_says_why(page: Visitor) -> None:
    """There is no agent on either host."""
    page.go(f"{MISTRAL}/profiles")
    page.click_text("Capture")
    page.type(".panel input[type=text]", "everyone")
    page.sees("is not a list of ranks", ".panel")
    page.see("document.querySelector('.panel [type=submit]').disabled")
    page.type(".panel input[type=text]", "0-1")
    page.choose(".panel [aria-label=Unit]", "steps")
    page.type(".panel input[type=number]", "0")
    page.see("document.querySelector('.panel [type=submit]').disabled")
    page.type(".panel input[type=number]", "3")
    page.click(".panel option[value='gpu-2']")
    page.click_text("Check first")
    page.sees("gpu-2: ", ".panel")
    assert "gpu-1: " not in page.texts(".panel")[0]
    page.meant = "422"
    page.click_text("Start")
    page.sees("no agent of it is connected", ".panel [role=alert]")
    page.click("[aria-label='Close the capture panel']")
    page.see("!document.querySelector('.panel')")


# ── processes and configuration ───────────────────────────────────────────────────────────────


def test_processes_tell_how_each_ended_and_what_it_said(page: Visitor) -> None:
    page.go(f"{LLAMA}/processes")
    page.sees("16 of 16 processes")
    page.sees("UserWarning: the gradient overflowed", ".log")
    page.sees("killed by SIGKILL, out of memory (pid 4003)", ".log")
    page.type("input[type=number]", "3")
    page.sees("2 of 16 processes")
    page.choose("select", "1")
    page.sees("1 of 16 processes")
    (row,) = page.texts(".part tbody tr")[:1]
    assert "SIGKILL, out of memory" in row and "gpu-1" in row and "\t129\t" in row
    page.reload()
    page.sees("1 of 16 processes")
    page.type("input[type=number]", "99")
    page.sees("No process of that rank and attempt")
    page.click_text("Show all")
    page.sees("16 of 16 processes")
    page.go(f"{LLAMA}/processes?{stretch(page, 1, 2)}")
    page.sees("Only", ".window")
    page.click_text("Whole run")
    page.see("!document.querySelector('.window')")


def test_a_configuration_is_searched_and_compared(page: Visitor) -> None:
    page.go(f"{LLAMA}/config")
    page.sees("gs://corpus/shards")
    page.type("input[type=search]", "betas")
    page.see("document.querySelectorAll('.leaf').length === 1")
    page.sees("[0.9,0.95]", ".leaf")
    page.type("input[type=search]", "no such thing")
    page.sees("No setting matches")
    page.click_text("Show all")
    page.sees("Run configuration")
    page.click_text("optimizer", "summary")
    page.see("!document.body.innerText.includes('[0.9,0.95]')")
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
    page.sees("stopped reporting", "[aria-labelledby=nodes-title]")
    assert page.texts("[aria-labelledby=nodes-title] tbody tr")[0].startswith("gpu-3\t▲ silent")
    page.point(".cell")
    page.sees("gpu-1 gpu0 · llama", ".above")
    for name, unit in (("Tensor activity", "%"), ("Memory", "%"), ("Power", "W"),
                       ("Temperature", "°C")):  # fmt: skip
        page.click_text(name)
        page.sees(unit, ".scale")
        page.see(f"document.querySelector('.choice [aria-pressed=true]').innerText === '{name}'")
    assert page.query()["shown"] == "temperature"
    page.click_text("Utilisation")
    page.see("!location.hash.includes('shown=')")
    first = "document.querySelector('[aria-labelledby=devices-title] tbody tr').innerText"
    page.choose("[aria-labelledby=devices-title] select", "host")
    page.see(f"{first}.startsWith('gpu-1 gpu0')")
    page.type("input[type=search]", "xid")
    page.sees("1 of 12 devices")
    page.click_text("llama", "tbody a")
    page.see("location.hash.startsWith('#/run/run-llama/devices')")


def test_sessions_are_started_stopped_and_exported(page: Visitor, tmp_path: Path) -> None:
    own = "[aria-labelledby=sessions-title] tr:has([aria-label$='session a look'])"
    page.go("cluster")
    page.type("[aria-label='Name of the new session']", "a look")
    page.click_text("Start a session")
    page.sees("active", own)
    page.click("[aria-label='Stop session a look']")
    page.sees("stopped", own)
    page.click("[aria-label='Resume session a look']")
    page.sees("active", own)
    page.click("[aria-label='Stop session a look']")
    page.sees("stopped", own)
    told = json.loads(page.downloads("JSON", tmp_path, f"{own} a"))
    assert "a look" in json.dumps(told)
    assert page.downloads("Parquet", tmp_path, f"{own} a")[:4] == b"PAR1"
