"""What holds for every page: who can use it, and what it says where there is nothing to show."""

from __future__ import annotations

import pytest

from runwatch.testing import until
from tests.e2e.browsing import Visitor, needs_browser, needs_page

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
TABS = (
    "timeline", "goodput", "metrics", "devices", "logs", "stacks", "profiles", "processes",
    "config",
)  # fmt: skip
LLAMA = "run/run-llama"


@pytest.mark.parametrize("tab", [*TABS[1:], "cluster"])
def test_anyone_can_use_it_in_any_light_and_on_a_phone(page: Visitor, tab: str) -> None:
    page.go("cluster" if tab == "cluster" else f"{LLAMA}/{tab}")
    page.see("document.querySelector('main h2, main article, main .list') &&"
             "!document.body.innerText.includes('Loading …')")  # fmt: skip
    page.check_accessible()
    page.theme("dark")
    page.check_accessible()
    page.size(390, 844)
    page.see("document.documentElement.scrollWidth <= 390")
    if tab == "processes":  # what is wider scrolls by itself, but this is read on a phone
        page.see("document.querySelector('.scroll.part').scrollWidth <= 390")
        page.sees("SIGKILL, out of memory", ".part tbody")


@pytest.mark.parametrize(
    ("tab", "words"),
    [
        ("devices", "No device reported for this run"),
        ("logs", "This run has recorded no lines"),
        ("stacks", "No stacks of this run yet"),
        ("profiles", "No profiles of this run yet"),
        ("processes", "No warning and no exit."),
        ("goodput", "None: no attempt stopped."),
    ],
)
def test_where_there_is_nothing_it_says_so(page: Visitor, tab: str, words: str) -> None:
    page.go(f"run/run-bert/{tab}")
    page.sees(words)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("run/run-llama/stacks?incident=nobody", "has no incident"),
        ("run/run-llama/config?with=nobody", "The other run cannot be read"),
        ("compare?runs=run-llama,nobody", "Not found: nobody."),
        ("run/nobody", "there is no run with id or name"),
    ],
)
def test_what_is_not_there_is_said_not_to_be(page: Visitor, place: str, words: str) -> None:
    page.meant = "404"
    page.go(place)
    page.sees(words)
    page.check_accessible()


def test_who_has_come_to_a_wrong_run_finds_back(page: Visitor) -> None:
    page.meant = "404"
    page.go("run/nobody")
    page.click_text("Try again")
    page.sees("there is no run with id or name", "[role=alert]")
    assert len(page.texts("[role=alert]")) == 1  # the head is there, only that run is not
    page.click_text("All runs", "main a")
    page.sees("Runs", "h1")


OLDER = """const asked = window.fetch; window.fetch = (where, how) => /WHICH/.test(where) ?
    Promise.resolve(new Response('{"error": {"code": "not_found", "message": "none"}}',
    {status: 404})) : asked(where, how);"""


@pytest.mark.parametrize(
    ("tab", "which", "words"),
    [
        ("stacks", "incidents", "This head is too old for stacks and incidents"),
        ("devices", "heatmap", "This head is too old for heat maps"),
    ],
)
def test_what_an_older_head_has_not_is_said_to_be_missing(
    page: Visitor, tab: str, which: str, words: str
) -> None:
    source = OLDER.replace("WHICH", which)
    page.page.ask("Page.addScriptToEvaluateOnNewDocument", source=source)
    page.go(f"{LLAMA}/{tab}")
    page.sees("Not available on this head")
    page.sees(words)


def test_what_failed_is_tried_again(page: Visitor) -> None:
    def asked() -> list[str]:
        events = page.page.events("Network.requestWillBeSent")
        return [e["request"]["url"] for e in events if "/goodput?" in e["request"]["url"]]

    page.meant = "ERR_"
    # News of the run would make the page ask again by itself, and take the button away.
    news = "*/live*"
    page.page.ask("Network.setBlockedURLs", urls=["*/goodput*", news])
    page.go(f"{LLAMA}/goodput")
    page.sees("The head does not answer.", "[role=alert]")
    until(lambda: len(asked()) >= 2, 30, "the question about the run as it came")
    page.page.ask("Network.setBlockedURLs", urls=[news])
    page.click_text("Try again")
    page.sees("60.2 %", ".lead")


def test_every_tab_is_a_click_away(page: Visitor) -> None:
    page.go(f"{LLAMA}/{TABS[-1]}")
    for tab in TABS:
        page.click_text(tab.capitalize(), "nav a")
        page.see(f"location.hash.startsWith('#/{LLAMA}/{tab}')")
        page.see("document.querySelector('nav a[aria-current]').innerText.toLowerCase() === 'runs'"
                 f" && [...document.querySelectorAll('nav a[aria-current]')].pop().innerText"
                 f".toLowerCase() === '{tab}'")  # fmt: skip
