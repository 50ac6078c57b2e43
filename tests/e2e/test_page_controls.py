"""Every control of every page is operated by some test: a new one without a test fails here."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import tokens
from tests.e2e.browsing import Visitor, needs_browser, needs_page, visitor
from tests.e2e.controls import CONTROLS, NOT_WALKED, called, claimed, without_gesture
from tests.integration.chromium import Chromium

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
LLAMA = "run/run-llama"
MISTRAL = "run/run-mistral"
CROWD = "run/run-crowd"
DETAILS = "section[aria-label=Details]"


@dataclass(frozen=True)
class View:
    """A state of a page: where it is, what shows that it has come, and what is clicked on then."""

    place: str
    ready: str
    clicks: tuple[str, ...] = ()


WORLD = (
    View("?by=group&select=run-llama", "tbody .name a"),
    View("?sum=group", "tfoot"),
    View("?sum=user", "tfoot"),
    View("?group=pretraining", "tbody .name a", (".picker > button",)),
    View("compare", ".empty"),
    View("compare?runs=run-llama,run-bert&metrics=loss", ".u-over", (".picker > button",)),
    View(LLAMA, "[data-lane=heat]", (".delete",)),
    View(LLAMA, "[data-lane=heat]", (".share", "[aria-labelledby=share-title] .primary")),
    View(f"{LLAMA}?sel=profile:warm-up", f"{DETAILS} a", (".picker > button",)),
    View(f"{LLAMA}?sel=incident:i1", f"{DETAILS} a", ("[aria-label='Zoom in']",)),
    View(f"{LLAMA}/goodput?from=1&to=2", ".window button"),
    View(f"{LLAMA}/goodput", "svg[tabindex]"),
    View(f"{LLAMA}/metrics?q=loss&first=1&last=100", "article .u-over"),
    View(f"{LLAMA}/metrics?q=no+such", ".empty button"),
    View(f"{LLAMA}/devices?device=gpu-1/gpu0", "#now-title"),
    View(f"{LLAMA}/devices?from=1&to=2", ".window button"),
    View(f"{LLAMA}/logs?stream=exception", ".row button"),
    View(f"{LLAMA}/logs?t=1", ".row"),
    View(f"{LLAMA}/logs?from=1&to=2", ".empty button"),
    View(f"{MISTRAL}/logs", ".empty"),
    View(f"{LLAMA}/stacks", "[aria-pressed=false]"),
    View(f"{LLAMA}/stacks?incident=i1", "article summary"),
    View(f"{MISTRAL}/stacks", ".tools .primary"),
    View(f"{LLAMA}/profiles?session=warm-up", ".detail p .bare"),
    View(f"{LLAMA}/profiles?session=step-200", ".detail p .bare", (".detail p .bare",)),
    View(f"{MISTRAL}/profiles", ".tools .primary", (".tools .primary",)),
    View(f"{LLAMA}/processes?from=1&to=2", ".part tbody tr"),
    View(f"{LLAMA}/processes?rank=99", ".empty button"),
    View(f"{LLAMA}/config?with=run-bert", "tr.changed"),
    View(f"{LLAMA}/config?q=no+such", ".empty button"),
    View(f"{LLAMA}/config", ".leaf"),
    View("cluster", ".cell", ("[aria-labelledby=sessions-title] [type=submit]",)),
    View("nowhere", ".lost a"),
    View("run/nobody", "[role=alert] button"),
)
CROWDED = (
    View("", "tbody .name a"),
    View(f"{CROWD}/processes", ".part > button"),
    View("cluster", "[aria-labelledby=sessions-title] a"),
    View(f"{CROWD}/stacks", "article .more"),
    View(f"{CROWD}/profiles?session=large", ".files + div button"),
)
GUARDED = (View("", "#token"),)


def found(page: Visitor, views: tuple[View, ...]) -> set[str]:
    all = set()
    for view in views:
        page.go(view.place)
        page.there(view.ready)
        for selector in view.clicks:
            page.click(selector)
        page.place("body")
        all |= {called(*one) for one in page.page.evaluate("controls.all()")}
    return all


def test_every_control_is_operated_by_a_test(
    browser: Chromium, world: str, crowded: str, guarded: str
) -> None:
    there: set[str] = set()
    for address, views in ((world, WORLD), (crowded, CROWDED), (guarded, GUARDED)):
        with visitor(browser, address, apart=True) as page:
            page.meant = "Failed to load resource"  # of a run that is not there, and without token
            if address != guarded:
                page.page.ask("Page.navigate", url=tokens.link(address))
                page.see("location.href.startsWith('http') && !location.search.includes('token')")
            there |= found(page, views)
    operated = claimed() | {without_gesture(control) for control in claimed()}
    assert sorted(there - operated) == [], "no test operates these"
    gone = {control for control in claimed() if not {control, without_gesture(control)} & there}
    assert sorted(gone - NOT_WALKED) == [], "these are not on any page"


def test_every_test_that_is_named_exists_once() -> None:
    modules = [f"tests.e2e.{file.stem}" for file in Path(__file__).parent.glob("test_page_*.py")]
    known = Counter(name for module in modules for name in vars(importlib.import_module(module)))
    named = {test for tests in CONTROLS.values() for test in tests}
    assert {test for test in named if known[test] != 1} == set()
