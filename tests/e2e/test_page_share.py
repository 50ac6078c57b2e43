"""Who may see the page: the token, a link for looking, what such a guest is not offered."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.browsing import Visitor, needs_browser, needs_page, operating, visitor
from tests.e2e.conftest import TOKEN
from tests.integration.chromium import Chromium

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
PANEL = "[aria-labelledby=share-title]"
DELETE = "[aria-labelledby=delete-title]"
ACTS = (
    "Capture",
    "Take stacks now",
    "Delete …",
    "Start a session",
    "Stop",
    "Resume",
    "Share",
    "Log out",
)


@pytest.fixture
def owner(browser: Chromium, guarded: str, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """Logged in."""
    with operating(browser, guarded, request, apart=True) as opened:
        opened.meant = "401"
        opened.go("run/run-llama")
        log_in(opened)
        opened.sees("llama", "h1")
        yield opened


def log_in(page: Visitor) -> None:
    page.see("document.activeElement?.id === 'token'")
    page.type("#token", TOKEN)
    page.click("#in button")


def shared(owner: Visitor, note: str) -> str:
    """A new link of the run that is looked at, made in the page."""
    owner.click_text("Share")
    owner.type(f"{PANEL} input[type=text]", note)
    owner.choose(f"{PANEL} select", "1")
    owner.click_text("Make a link")
    found: str = owner.see(f'document.querySelector("{PANEL} input[readonly]")?.value')
    return found


def buttons(page: Visitor) -> list[str]:
    return [text for text in page.texts("button") if text in ACTS]


def test_in_with_the_token_and_out_again(browser: Chromium, owner: Visitor) -> None:
    assert owner.page.evaluate("location.hash") == "#/run/run-llama"
    owner.click_text("Log out")
    owner.see("document.activeElement?.id === 'token'")
    owner.type("#token", "a guess")
    owner.click("#in button")
    owner.sees("does not know", "#said")


def test_a_run_is_deleted_only_when_that_is_meant(owner: Visitor) -> None:
    owner.go("run/run-bert")
    owner.sees("bert", "h1")
    owner.click_text("Delete")
    owner.sees("points", DELETE)
    owner.click_text("Keep it")
    owner.see(f'!document.querySelector("{DELETE}")')
    owner.click_text("Delete")
    owner.sees("For a week", DELETE)
    owner.meant = "status of 40"  # the page may ask for it once more before it leaves
    try:
        owner.click_text("Delete it")
        owner.sees("llama", "tbody")
        owner.see("!document.querySelector('tbody').textContent.includes('bert')")
    finally:  # others look at it, too
        asked = urllib.request.Request(
            f"{owner.address}/api/v1/deleted/run-bert/restore",
            b"{}",
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        urllib.request.urlopen(asked, timeout=100).close()


def test_a_link_is_made_used_and_taken_back(browser: Chromium, owner: Visitor) -> None:
    link = shared(owner, "for the review")
    assert owner.copy("Copy it") == link
    owner.sees("for the review", f"{PANEL} tbody")
    owner.focus(f"{PANEL} input[readonly]")
    owner.see("document.getSelection().toString().includes('token=')")
    with visitor(browser, owner.address, apart=True) as guest:
        guest.meant = "401"
        guest.page.ask("Page.navigate", url=link)
        guest.sees("llama", "h1")
        guest.sees("Read-only access", "header")
        guest.see("!location.href.includes('token=')")
        guest.click_text("Goodput", "nav a")
        guest.sees("60.2 %", ".lead")
        owner.click("[aria-label='Revoke for the review']")
        owner.see("""!document.querySelector("[aria-label='Revoke for the review']")""")
        guest.sees("You are logged out")
        guest.click_text("Log in")
        guest.sees("expired or was taken back")
        guest.click("#out button")
        guest.see("document.activeElement?.id === 'token'")
        owner.used |= guest.used
    owner.click("[aria-label='Close the sharing panel']")
    owner.see(f'!document.querySelector("{PANEL}")')


def test_who_may_only_look_is_offered_nothing_else(browser: Chromium, owner: Visitor) -> None:
    link = shared(owner, "for a guest")
    with visitor(browser, owner.address, apart=True) as guest:
        guest.meant = "401"
        guest.page.ask("Page.navigate", url=link)
        guest.sees("Read-only access", "header")
        guest.click_text("Stacks", "nav a")
        guest.sees("Hang: rank 5", "main")
        assert buttons(guest) == []
        guest.click_text("Profiles", "nav a")
        guest.sees("aten::", "article .detail")
        assert buttons(guest) == []
        guest.go("cluster")
        guest.sees("of 8 devices", ".facts")  # of this run alone
        guest.sees("gpu-1", "[aria-labelledby=devices-title]")
        assert buttons(guest) == []
        guest.go()
        guest.see("document.querySelectorAll('tbody .name a').length === 1")
        guest.click_text("Leave this link", "header button")
        guest.see("document.activeElement?.id === 'token'")
        owner.used |= guest.used


# ── tokens with roles ─────────────────────────────────────────────────────────────────────────


@contextmanager
def holder(browser: Chromium, address: str, role: str, *projects: str) -> Iterator[Visitor]:
    """Somebody who came with a token of this role."""
    body = {"role": role, "projects": projects}
    asked = urllib.request.Request(
        f"{address}/api/v1/tokens",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=100) as answer:
        word = json.load(answer)["token"]
    with visitor(browser, address, apart=True) as page:
        page.page.ask("Page.navigate", url=f"{address}/?token={word}")
        page.sees("Log out", "header")
        page.see("!location.href.includes('token=')")
        yield page


def title(page: Visitor, button: str) -> str:
    """Why a button cannot be used; empty if it can."""
    found: str = page.see(
        f"""(() => {{ const one = [...document.querySelectorAll("button")]
            .find((each) => each.innerText.trim() === {json.dumps(button)});
            return one && (one.disabled ? one.title || "disabled" : "may"); }})()"""
    )
    return "" if found == "may" else found


def test_who_may_view_is_offered_nothing_to_do(browser: Chromium, guarded: str) -> None:
    with holder(browser, guarded, "view") as page:
        page.sees("Read-only access", "header")
        page.go("run/run-llama/stacks")
        page.sees("Hang: rank 5", "main")
        assert buttons(page) == ["Log out"]
        page.go("run/run-llama/profiles")
        page.sees("aten::", "article .detail")
        assert buttons(page) == ["Log out"]
        page.go("cluster")
        page.sees("Sessions", "main")
        page.sees("devices", ".facts")
        assert buttons(page) == ["Log out"]


def test_who_may_operate_is_told_what_needs_more(browser: Chromium, guarded: str) -> None:
    why = "Your token is for operate. This needs one for admin."
    with holder(browser, guarded, "operate") as page:
        page.go("run/run-llama")
        page.sees("llama", "h1")
        assert title(page, "Share") == title(page, "Delete") == why
        page.go("run/run-mistral/profiles")
        page.sees("mistral", "h1")
        assert title(page, "Capture") == ""
        page.go("run/run-mistral/stacks")
        assert title(page, "Take stacks now") == ""
        page.go("run/run-llama/profiles")
        page.sees("aten::", "article .detail")
        assert "Delete …" not in buttons(page)
        page.go("cluster")
        assert title(page, "Start a session") == ""


def test_a_token_of_a_project_shows_that_project(browser: Chromium, guarded: str) -> None:
    with holder(browser, guarded, "admin", "pretraining") as page:
        page.sees("Project pretraining", "header")
        page.see("document.querySelectorAll('tbody .name a').length === 2")
        page.go("run/run-bert")
        page.sees("bert", "h1")
        assert "project pretraining" in title(page, "Share")
        assert title(page, "Delete") == ""
        page.go("cluster")
        page.sees("of 8 devices", ".facts")
        assert buttons(page) == ["Log out"]
        page.see("!document.querySelector('#nodes-title')")
