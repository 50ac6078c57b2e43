"""The log of a run on the page, in a real browser over a real head."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.testing import until
from tests.e2e.browsing import Visitor, head, log_in, needs_browser, needs_page, visitor
from tests.integration.chromium import Chromium
from tests.integration.sdk_programs import start_program

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
LLAMA = "run/run-llama"
ROWS = "[...document.querySelectorAll('.list .row .text')].map(e => e.innerText)"


def rows(page: Visitor) -> list[str]:
    page.there(".list .row")
    found: list[str] = page.page.evaluate(ROWS)
    return found


def all_say(page: Visitor, words: str) -> None:
    page.see(f"(r => r.length > 0 && r.every(t => t.includes({words!r})))({ROWS})")


def test_lines_are_searched_and_chosen(page: Visitor) -> None:
    page.go(f"{LLAMA}/logs")
    page.there(".list .row")
    assert "step 359 of rank" in rows(page)[-1], "the end is what one sees first"
    assert len(rows(page)) < 150, "only what is visible is drawn"
    page.focus(".list")
    page.key("Home")
    page.see(f"!{ROWS}.some(t => t.includes('step 359'))")
    page.type("input[type=search]", "Step 12")
    page.sees("No such lines")
    page.type("input[type=search]", "step 12 ")
    all_say(page, "step 12 of rank")
    page.see(f"{ROWS}.length === 8")
    page.see("document.querySelectorAll('.list mark').length === 8")
    page.type("input[type=search]", "step 12")
    page.type("input[type=number]", "5")
    all_say(page, "of rank 5")
    page.choose(".tools label:last-of-type select", "2")
    all_say(page, "of rank 5, attempt 2")
    page.see("new URLSearchParams(location.hash.split('?')[1]).get('attempt') === '2'")
    page.choose(".tools label:nth-of-type(2) select", "err")
    page.sees("No such lines")
    page.go(f"{LLAMA}/logs?stream=err")
    page.see(f"{ROWS}.length === 2")
    page.sees("the allocator is nearly full", ".list")
    page.sees("1,200 lines (87.9 KiB) left out", ".list")


def test_an_exception_is_open_and_can_be_folded(page: Visitor) -> None:
    page.go(f"{LLAMA}/logs?stream=exception")
    page.sees("uncaught: MemoryError: no room", ".list")
    page.sees('File "train.py", line 7', ".list")
    page.click(".row button")
    page.see("!document.querySelector('.list').innerText.includes('train.py')")
    page.check_accessible()


def test_a_line_leads_to_its_moment_and_back(page: Visitor) -> None:
    page.go(f"{LLAMA}/logs?q=allocator")
    page.click(".row.err .when")
    page.see("location.hash.includes('/timeline?from=')")
    start_ns = page.see(
        "fetch('api/v1/runs/run-llama').then(r => r.json()).then(r => r.started_ns)"
    )
    page.go(f"{LLAMA}/logs?t={start_ns + 120 * 10**9}")
    page.sees("the allocator is nearly full", ".row.sought.line")
    page.click_text("To the end")
    page.see(f"{ROWS}.at(-1).includes('step 359')")
    assert "t" not in page.query()


def test_a_moment_leads_to_the_log_of_that_time(page: Visitor) -> None:
    page.go(f"{LLAMA}?sel=incident:i1")
    page.click_text("See the log of that time", "a")
    page.there(".row.sought")


def test_what_is_not_said_is_not_found(page: Visitor) -> None:
    page.go(f"{LLAMA}/logs?q=nobody+says+this")
    page.sees("No such lines")
    page.click_text("Show all lines")
    page.there(".list .row")
    page.go(f"{LLAMA}/logs?from=1&to=2")
    page.sees("No such lines")
    page.click_text("Whole run")
    page.there(".list .row")


def test_the_log_of_a_run_that_goes_on_can_be_followed(page: Visitor) -> None:
    page.go("run/run-mistral/logs")
    page.there("button[aria-pressed=true]")
    page.click_text("Follow")
    page.there(".tools button[aria-pressed=false]")


def test_new_lines_come_by_themselves(browser: Chromium, tmp_path: Path) -> None:
    go, root = tmp_path / "go", tmp_path / "runs"
    root.mkdir()
    with head(root) as at:
        log_in(browser, at.http)
        program = start_program(
            f"""
            import os, time, runwatch
            run = runwatch.init("talks", console=True)
            print("the first line", flush=True)
            while not os.path.exists({str(go)!r}):
                time.sleep(0.02)
            print("the second line")
            raise ValueError("the last word")
            """,
            root,
        )
        with program, visitor(browser, at.http) as page:
            assert program.stdout is not None and program.stdout.readline()
            page.go()
            page.sees("talks", "tbody")
            page.click_text("talks", "tbody a")
            page.click_text("Logs", "nav a")
            page.sees("the first line", ".list")
            go.touch()
            page.sees("the second line", ".list")
            page.sees("uncaught: ValueError: the last word", ".list")
            until(lambda: program.poll() is not None, 30, "the program's end")
