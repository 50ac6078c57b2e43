"""The list of runs and their comparison, in a real browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browsing import Visitor, head, needs_browser, needs_page, visitor
from tests.e2e.page_world import build
from tests.integration.chromium import Chromium

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
NAMES = "tbody tr:not([aria-hidden]) .name a"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("world")
    build(root, time.time_ns())
    with head(root) as at:
        yield at.http


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


@pytest.fixture
def runs(browser: Chromium, address: str) -> Iterator[Visitor]:
    with visitor(browser, address) as opened:
        opened.see(f"document.querySelectorAll('{NAMES}').length === 2")
        yield opened


def names(runs: Visitor, *expected: str) -> None:
    wanted = " ".join(expected)
    runs.see(
        f"[...document.querySelectorAll('{NAMES}')].map(e => e.innerText).join(' ') === '{wanted}'"
    )


def test_it_tells_of_every_run_how_it_stands(runs: Visitor) -> None:
    runs.sees("2 runs")
    names(runs, "llama", "bert")
    row = runs.texts("tbody tr")[0]
    assert "pretraining" in row and "completed" in row and "step 359 of 400" in row
    assert "8" in row and "2 hosts" in row
    # Accounts come by and by, without anybody doing anything.
    runs.see("document.querySelectorAll('tbody .goodput [role=img]').length === 2")


def test_filter_sort_and_group_are_in_the_address(runs: Visitor) -> None:
    runs.type("input[type=search]", "ber")
    names(runs, "bert")
    assert runs.query()["q"] == "ber"
    runs.reload()
    names(runs, "bert")
    assert runs.page.evaluate("document.querySelector('input[type=search]').value") == "ber"
    runs.go("?q=host:gpu-2")
    names(runs, "llama")
    runs.go("?state=failed")
    runs.sees("No run is like that.")
    runs.go()
    runs.click_text("Run")
    names(runs, "bert", "llama")
    assert runs.query() == {"sort": "name"}
    runs.page.evaluate("history.back()")
    names(runs, "llama", "bert")
    runs.click_text("By group")
    runs.sees("2 runs: 2 completed", "tbody")
    runs.click("tbody .group button")
    runs.see(f"document.querySelectorAll('{NAMES}').length === 0")


def test_values_of_chosen_metrics(runs: Visitor) -> None:
    runs.click_text("Values")
    runs.sees("learning_rate", ".menu")
    runs.page.evaluate(
        "[...document.querySelectorAll('.menu label')]"
        ".find(e => e.innerText.trim() === 'learning_rate').click()"
    )
    runs.sees("learning_rate", "thead")
    runs.sees("3.00e−4", "tbody")
    assert runs.query()["metrics"] == "learning_rate"


def test_runs_are_compared(runs: Visitor) -> None:
    for row in (1, 2):
        runs.click(f"tbody tr:nth-of-type({row}) input[type=checkbox]")
    runs.click_text("Compare 2 runs", "a")
    runs.sees("Compare", "h1")
    runs.see("document.querySelectorAll('.charts canvas').length >= 1")
    assert runs.query()["runs"] == "run-llama,run-bert"
    runs.see("document.querySelectorAll('.charts .u-over').length >= 1")
    runs.sees("optimizer.name", "table")
    assert (
        "sgd" in " ".join(runs.texts("tbody tr.differs"))
        and "shuffle" not in runs.texts("table")[0]
    )
    runs.click_text("Also those alike")
    runs.sees("data.shuffle", "table")
    runs.choose("input[type=range]", "0.8")
    runs.see("location.hash.includes('smooth=0.8')")
    for name, said in (
        ("Log scale", "log=1"),
        ("Wall time", "along=wall"),
        ("Relative time", "along=relative"),
    ):
        runs.click_text(name)
        runs.see(f"location.hash.includes('{said}')")
    runs.click(".away")
    runs.see("document.querySelectorAll('.runs .card').length === 1")
    runs.check_accessible()


def test_anyone_can_use_it_in_any_light_and_on_a_phone(runs: Visitor) -> None:
    runs.check_accessible()
    runs.theme("dark")
    runs.check_accessible()
    runs.click("header button")
    assert runs.page.evaluate("document.documentElement.dataset.theme") == "light"
    runs.reload()
    names(runs, "llama", "bert")
    assert runs.page.evaluate("document.documentElement.dataset.theme") == "light"
    runs.click("header button")
    runs.size(390, 800)
    runs.see("document.documentElement.scrollWidth <= 390")


def test_a_link_to_nowhere_says_so(runs: Visitor) -> None:
    runs.go("nowhere")
    runs.sees("There is no such page")
    runs.go()
    names(runs, "llama", "bert")
