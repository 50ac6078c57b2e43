"""Lists that are longer than a screen: they show a part, and the rest when asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import crowd
from tests.e2e.browsing import Visitor, needs_browser, needs_page, operating
from tests.integration.chromium import Chromium

pytestmark = [needs_browser, needs_page, pytest.mark.xdist_group("page")]
CROWD = "run/run-crowd"


@pytest.fixture
def page(browser: Chromium, crowded: str, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    with operating(browser, crowded, request) as opened:
        yield opened


def rows(page: Visitor, wanted: int, inside: str = "main") -> None:
    page.see(f"document.querySelectorAll('{inside} tbody tr').length === {wanted}")


def test_a_long_list_of_runs_is_scrolled(page: Visitor) -> None:
    page.go()
    page.see(f"document.querySelector('[role=status]').innerText === '{crowd.JOBS + 1} runs'")
    page.sees("job-000", "tbody")
    assert page.page.evaluate("document.querySelectorAll('tbody tr').length") < crowd.JOBS
    assert "job-139" not in page.texts("tbody")[0]
    page.focus(".scroller")
    page.key("End")
    page.sees("job-139", "tbody")
    assert "job-000" not in page.texts("tbody")[0]


def test_more_processes_are_shown(page: Visitor) -> None:
    page.go(f"{CROWD}/processes")
    page.sees(f"{crowd.RANKS} of {crowd.RANKS} processes")
    rows(page, 200, ".part")
    page.click_text("10 more processes")
    rows(page, crowd.RANKS, ".part")


def test_more_devices_and_sessions_are_shown(page: Visitor) -> None:
    page.go("cluster")
    page.sees(f"of {crowd.HOSTS * crowd.PER_HOST} devices", ".facts")
    rows(page, 100, "[aria-labelledby=devices-title]")
    page.click_text("20 more devices")
    rows(page, crowd.HOSTS * crowd.PER_HOST, "[aria-labelledby=devices-title]")
    rows(page, 20, "[aria-labelledby=sessions-title]")
    page.click_text(f"All {crowd.SESSIONS} sessions")
    rows(page, crowd.SESSIONS, "[aria-labelledby=sessions-title]")


def test_more_frames_are_shown(page: Visitor) -> None:
    page.go(f"{CROWD}/stacks")
    frames = "document.querySelectorAll('article ol')[0]?.children.length"
    page.see(f"{frames} === 8")
    page.click_text("and 51 more")
    page.see(f"{frames} === 59")


def test_more_files_are_shown_and_a_session_is_deleted(page: Visitor) -> None:
    page.go(f"{CROWD}/profiles?session=large")
    files = "[aria-label='Profile large'] .files li"
    page.see(f'document.querySelectorAll("{files}").length === 12')
    page.click_text("3 more files")
    page.see(f'document.querySelectorAll("{files}").length === {crowd.FILES}')
    page.click("[aria-label='Profile spare'] button[aria-expanded]")
    page.click_text("Delete …")
    page.sees("Its files are deleted for good.")
    page.click_text("Delete spare")
    page.see("!document.querySelector('[aria-label=\"Profile spare\"]')")
    page.sees("large", "article")


def test_many_checkpoints_are_one_line(page: Visitor) -> None:
    page.go(CROWD)
    page.sees("Also 14 checkpoints.", "section[aria-label^=What]")
    assert page.texts('[data-lane="checkpoints"] .value') == ["14"]


def test_more_runs_than_lines_can_be_told_apart(page: Visitor) -> None:
    page.go("compare?runs=" + ",".join(f"job-{number:03d}" for number in range(10)))
    page.sees("The first 8 of 10 runs")
    page.see("document.querySelectorAll('.runs .card').length === 8")
